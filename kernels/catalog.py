"""The one list: every operator, its implementations, and the workloads they are proven on.

Tests, the command line, the records and the book's tables all read it. To add an operator, add a
folder and one entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels.checks import fail
from kernels.workload import Workload, Workloads

RUNGS = ("interpret", "simulate", "compile", "measure")


def _everything(workload: Workload) -> bool:
    return True


def _no_options(workload: Workload) -> bool:
    return not workload.options


def _only_products(workload: Workload) -> bool:
    fused = set(workload.options) - {"transpose_rhs"}
    return not fused and workload.dtype in ("float32", "bfloat16")


def _finite(workload: Workload) -> bool:
    return workload.values != "nonfinite"


def _seconds_in_numpy(workload: Workload) -> bool:
    return workload.sizes["b"] * workload.sizes["c"] * workload.sizes["t"] ** 2 < 2**28


def _one_scale(workload: Workload) -> bool:
    return workload.values not in ("nonfinite", "wide")


def _whole_lanes(workload: Workload) -> bool:
    sizes = workload.sizes
    n, m, d = sizes["n"], sizes.get("m", sizes["n"]), sizes["d"]
    return n % 128 == m % 128 == 0 and (d <= 128 or d % 128 == 0)


@dataclass(frozen=True)
class Implementation:
    """One way in which an operator is written.

    language: decides how each rung is climbed (see kernels.ladder). rungs: those it claims.
    accepts: whether it takes a workload; others are not offered to it. tunable: whether it takes a
    workload's tuning; XLA never does. differentiable: whether it has the operator's gradients.
    chapter: the notebook that builds it, where that is not the operator's.
    """

    name: str
    language: str
    rungs: tuple[str, ...]
    accepts: Callable[[Workload], bool] = _everything
    tunable: bool = True
    differentiable: bool = True
    chapter: str = ""


@dataclass(frozen=True)
class Operator:
    """One operator: a public function, its float64 reference, and its implementations.

    The folder `package` holds the function `name`; reference.py in it a function of that name, and
    perhaps NAME_magnitude, NAME_rounding and NAME_gradient_magnitude; workloads.py the operator's
    Workloads under that name.
    """

    name: str
    package: str
    summary: str
    chapter: str
    implementations: tuple[Implementation, ...]
    differentiable: tuple[str, ...] = ()  # argument names; empty where no gradient is defined
    plain: str = "xla"  # the plainest implementation, which sets the error budget

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self.package}.{name}")

    @property
    def function(self) -> Callable[..., Any]:
        """The public function: it validates its arguments, then hands over."""
        return getattr(importlib.import_module(self.package), self.name)

    @property
    def reference(self) -> Callable[..., Any]:
        """The oracle."""
        return getattr(self._module("reference"), self.name)

    @property
    def magnitude(self) -> Callable[..., Any] | None:
        """The sums of absolute values behind the result, where the operator adds up."""
        return getattr(self._module("reference"), f"{self.name}_magnitude", None)

    @property
    def rounding(self) -> Callable[..., Any] | None:
        """The root of the sum of the squares of the terms, where the operator rounds each term to
        the dtype of its arguments before it adds them up."""
        return getattr(self._module("reference"), f"{self.name}_rounding", None)

    @property
    def gradient_magnitude(self) -> Callable[..., Any] | None:
        """The sums of absolute values behind each gradient: a function of the arguments and the
        cotangent. None where pulling a cotangent back through `magnitude` gives them, as it does
        for what is linear in each argument."""
        return getattr(self._module("reference"), f"{self.name}_gradient_magnitude", None)

    @property
    def workloads(self) -> Workloads:
        """The named and the random problems."""
        return getattr(self._module("workloads"), self.name)

    def __getitem__(self, name: str) -> Implementation:
        for implementation in self.implementations:
            if implementation.name == name:
                return implementation
        known = ", ".join(i.name for i in self.implementations)
        fail("implementation", repr(name), f"{known} (of {self.name})")
        raise AssertionError


_PALLAS_TPU = ("interpret", "simulate", "compile")
_PALLAS_GPU = ("interpret", "compile")
_NEURON = ("interpret", "simulate", "compile")
_TAICHI = ("interpret", "simulate", "measure")


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            "add_vectors",
            "kernels.vector",
            "x + y for vectors of any length",
            "01_hello_pallas",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                Implementation("triton", "Pallas GPU", _PALLAS_GPU),
            ),
            differentiable=("x", "y"),
        ),
        Operator(
            "iota",
            "kernels.vector",
            "0, 1, … n - 1, a program for each number",
            "02_grids_and_memory",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                Implementation("triton", "Pallas GPU", _PALLAS_GPU),
            ),
        ),
        Operator(
            "matmul",
            "kernels.matmul",
            "x y for matrices of any shape, with a fused activation",
            "03_blockspec_matmul",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                *(
                    Implementation(
                        f"v{level}",
                        "Pallas TPU",
                        _PALLAS_TPU,
                        accepts=_no_options,
                        tunable=False,
                        differentiable=False,
                        chapter="07_pipelined_matmul",
                    )
                    for level in range(6)
                ),
                Implementation(
                    "nki",
                    "NKI",
                    _NEURON,
                    accepts=_only_products,
                    tunable=False,
                    differentiable=False,
                    chapter="18_matmul_softmax_nki",
                ),
            ),
            differentiable=("x", "y"),
        ),
        Operator(
            "quantized_matmul",
            "kernels.matmul",
            "a linear layer on int8, scaled back in the kernel",
            "08_int8_matmul",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
            ),
        ),
        Operator(
            "block_sparse_matmul",
            "kernels.matmul",
            "x y where only some blocks of x are stored",
            "07_pipelined_matmul",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
            ),
            differentiable=("blocks", "y"),
        ),
        Operator(
            "softmax",
            "kernels.softmax",
            "exp(x) over its sum along the last axis",
            "18_matmul_softmax_nki",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("nki", "NKI", _NEURON, differentiable=False),
            ),
        ),
        Operator(
            "attention",
            "kernels.attention",
            "softmax(scale q kᵀ) v, without the probabilities in memory",
            "09_flash_attention",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("sdpa", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                Implementation(
                    "jax_flash", "Pallas TPU", _PALLAS_TPU, accepts=_whole_lanes, tunable=False
                ),
            ),
            differentiable=("q", "k", "v"),
        ),
        Operator(
            "vit_attention",
            "kernels.attention",
            "attention from a packed qkv to the projection's input",
            "10_vit_attention",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("sdpa", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                Implementation(
                    "jax_flash", "Pallas TPU", _PALLAS_TPU, accepts=_whole_lanes, tunable=False
                ),
            ),
            differentiable=("qkv",),
        ),
        Operator(
            "giou",
            "kernels.giou",
            "generalised intersection over union of pairs of boxes",
            "11_giou_pallas",
            (
                Implementation("numpy", "NumPy", ("interpret",), differentiable=False),
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
                Implementation("torch", "PyTorch", ("interpret",)),
                *(
                    Implementation(
                        name,
                        language,
                        _NEURON,
                        accepts=_finite,
                        differentiable=False,
                        chapter=chapter,
                    )
                    for name, language, chapter in (
                        ("nki", "NKI", "13_giou_nki"),
                        ("neuronxcc", "NKI", "13_giou_nki"),
                        ("gpsimd", "GpSimd C++", "14_giou_gpsimd"),
                    )
                ),
                *(
                    Implementation(f"v{level}", "Pallas TPU", _PALLAS_TPU, differentiable=False)
                    for level in range(4)
                ),
            ),
            differentiable=("preds", "targets"),
        ),
        Operator(
            "nms",
            "kernels.nms",
            "of boxes that overlap, the one with the best score",
            "12_nms",
            (
                Implementation("xla", "XLA", ("interpret",)),
                Implementation("xla_matrix", "XLA", ("interpret",)),
                Implementation("pallas", "Pallas TPU", _PALLAS_TPU),
            ),
        ),
        Operator(
            "brick_pad",
            "kernels.padding",
            "an image's border, laid with copies of it like bricks",
            "15_brick_padding",
            (
                Implementation("numpy", "NumPy", ("interpret",)),
                Implementation("torch", "PyTorch", ("interpret",)),
                Implementation("torch_table", "PyTorch", ("interpret",)),
                Implementation("jax", "XLA", ("interpret",)),
                Implementation("taichi", "Taichi", _TAICHI),
                *(Implementation(f"v{level}", "Taichi", _TAICHI) for level in range(5)),
            ),
            plain="numpy",
        ),
        Operator(
            "depthwise_conv",
            "kernels.depthwise_conv",
            "causal depthwise convolution with a weight for every lag",
            "16_depthwise_conv",
            (
                Implementation(
                    "numpy",
                    "NumPy",
                    ("interpret",),
                    accepts=_seconds_in_numpy,
                    differentiable=False,
                ),
                Implementation("torch", "PyTorch", ("interpret",), accepts=_finite),
                Implementation("fft", "PyTorch", ("interpret",), accepts=_one_scale),
                Implementation("taichi", "Taichi", _TAICHI),
                *(
                    Implementation(f"v{level}", "Taichi", _TAICHI, differentiable=False)
                    for level in range(4)
                ),
            ),
            differentiable=("w", "k"),
            plain="torch",
        ),
    )
}


def find(*paths: str | None) -> Iterator[tuple[Operator, Implementation]]:
    """Every entry that "OPERATOR", "OPERATOR/IMPLEMENTATION" or a folder such as "matmul" names, in
    that order; all of them for nothing at all."""
    for path in paths or (None,):
        name, _, implementation = (path or "").partition("/")
        named = [o for o in OPERATORS.values() if name in ("", o.name)]
        named = named or [o for o in OPERATORS.values() if o.package == f"kernels.{name}"]
        if not name and implementation:
            has = [o for o in named if implementation in {i.name for i in o.implementations}]
            named = has or named  # where none has it, the first one says what there is
        if not named:
            fail("operator", repr(name), ", ".join(OPERATORS))
        for operator in named:
            if implementation:
                yield operator, operator[implementation]
            else:
                for each in operator.implementations:
                    yield operator, each
