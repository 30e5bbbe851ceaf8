"""Catalog entries on this machine's wall clock: against each other, and against a limit."""

from __future__ import annotations

import functools
import inspect
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels import optional
from kernels.catalog import Implementation, Operator
from kernels.checks import brief, fail
from kernels.records.schema import Key, Record, title, versions
from kernels.timing import Timing, measure
from kernels.workload import Workload

# Languages whose functions take PyTorch's tensors; the others take JAX's or NumPy's arrays.
TENSORS = ("PyTorch", "Taichi")
QUEUED = 8  # calls in one reading where a device works through a queue
PACKAGES = ("numpy", "jax", "torch", "taichi", "quadrants")


@dataclass(frozen=True)
class Measurement:
    """What was read of one workload.

    Args:
        gradient: whether the gradients were timed, forward pass included.
        timings: by implementation.
        limit: the name of the one among them that no implementation can beat, its seconds scaled to
            the workload, or None.
        refused: by implementation, why it does not solve the workload here.
        calls: in one reading.
    """

    operator: Operator
    workload: Workload
    gradient: bool
    machine: str
    timings: dict[str, Timing]
    limit: str | None
    refused: dict[str, str] = field(default_factory=dict)
    calls: int = 1

    @property
    def title(self) -> str:
        """The workload, and whether its gradients were timed."""
        return f"{self.workload}{' gradient' * self.gradient}"

    @property
    def plain(self) -> str:
        """The one that the others are compared with: the operator's plainest, if it was timed."""
        return (
            self.operator.plain if self.operator.plain in self.timings else next(iter(self.timings))
        )

    def ratio(self, slower: str, faster: str) -> tuple[float, float, float]:
        """How many times as long `slower` takes as `faster`, reading by reading of the same round:
        20th percentile, median, 80th."""
        pairs = zip(self.timings[slower].seconds, self.timings[faster].seconds, strict=True)
        return tuple(np.quantile([a / b for a, b in pairs], (0.2, 0.5, 0.8)))

    def records(self) -> list[Record]:
        """Medians in ms, with their 20th and 80th percentiles and the rounds."""
        found = []
        rounds = "rounds" if self.calls == 1 else f"rounds of {self.calls} calls"
        pass_ = "gradient" if self.gradient else "forward"
        for name, timing in self.timings.items():
            low, high = (1e3 * timing.quantile(q) for q in (0.2, 0.8))
            key = Key.of(self.operator.name, name, self.workload, timing.device, pass_)
            found.append(
                key.record(
                    workload=title(self.workload),
                    quantity="limit" if name == self.limit else "time",
                    kind="measured",
                    value=round(1e3 * timing.median, 6),
                    method=f"median of {len(timing.seconds)} interleaved {rounds}, p20 {low:.3f}, "
                    f"p80 {high:.3f}{self._remark(name)}",
                    versions=versions(*_used(timing.device)),
                )
            )
        return found

    def _remark(self, name: str) -> str:
        language = {i.name: i.language for i in self.operator.implementations}.get(name)
        return "; copies from and to the host included" if language == "NKI" else ""


def _used(device: str) -> list[str]:
    """The packages that a measurement on `device` names."""
    from kernels import neuron, tpu
    from kernels.taichi import runtime

    idle = {name for name in runtime.MODULES if name != runtime.name()}
    used = [name for name in PACKAGES if optional.available(name) and name not in idle]
    if device in tpu.CHIPS:
        used.append("libtpu")
    if device in neuron.CHIPS:
        used.append("neuronx-cc")
    return used


def chip(implementation: Implementation, device: str = "cpu") -> str:
    """What an implementation runs on here, as records name it: "v5e", "inf2", a GPU or a CPU.

    JAX's arrays are where JAX puts them, whatever `device` says of PyTorch's and Taichi's.
    """
    import jax

    from kernels import neuron, tpu

    if implementation.language == "NKI":
        return neuron.chips.here()
    if implementation.language not in ("XLA", "Pallas TPU", "Pallas GPU"):
        return machine(device if implementation.language in TENSORS else "cpu")
    if jax.default_backend() == "cpu":
        return machine()
    return tpu.chips.here(fallback=jax.devices()[0].device_kind)


def machine(device: str = "cpu") -> str:
    """The processor that is timed, in words."""
    if device == "cuda":
        torch = optional.require("torch", "timing on a GPU")
        return torch.cuda.get_device_name().removeprefix("NVIDIA ").removeprefix("GeForce ")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {cores} cores"


def why_not(implementation: Implementation, device: str) -> str:
    """Why an implementation cannot be timed on "cpu" or "cuda" here; empty where it can."""
    import jax

    language, backend = implementation.language, jax.default_backend()
    if device == "cuda" and not _has_cuda():
        return "PyTorch sees no CUDA device here"
    needs = {"Pallas TPU": "tpu", "Pallas GPU": "gpu"}.get(language)
    if needs:
        return "" if backend == needs else f"needs a {needs.upper()}; interpreted, it tells nothing"
    if language == "NKI":
        from kernels import neuron

        if not neuron.device():
            return "needs a NeuronCore; simulated, it tells nothing"
        found = neuron.vendor.find(implementation.name)
        return "" if found else f"needs AWS's package: {neuron.vendor.SETUP}"
    if language == "GpSimd C++":
        return "emulated, it tells nothing; a device needs AWS's build of it"
    if language in TENSORS:
        package = "torch" if language == "PyTorch" else "taichi"
        return "" if optional.available(package) else f"{package} is not installed"
    if device == "cuda" and (language == "NumPy" or backend != "gpu"):
        return "runs on the CPU here"
    return ""


def _has_cuda() -> bool:
    if not optional.available("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def prepare(
    operator: Operator,
    implementation: Implementation,
    workload: Workload,
    device: str = "cpu",
    gradient: bool = False,
) -> Callable[[], Any]:
    """A call without arguments that solves a workload.

    Args:
        operator, implementation: of the catalog.
        workload: its operands are put on the device, and so is the result where the operator takes
            an `out`.
        device: "cpu" or "cuda", for PyTorch and Taichi.
        gradient: whether the call gives the gradients, forward pass included.
    """
    call = functools.partial(
        operator.function, implementation=implementation.name, **workload.options
    )
    given = operator.workloads.arguments(workload)
    writes = "out" in inspect.signature(operator.function).parameters
    if implementation.language in TENSORS:
        return _of_tensors(call, given, device, gradient, writes)
    if implementation.language in ("NumPy", "NKI"):
        return functools.partial(call, *given, **({"out": call(*given)} if writes else {}))
    return _of_arrays(call, given, gradient)


def _of_tensors(
    call: Callable[..., Any], given: Sequence[Any], device: str, gradient: bool, writes: bool
) -> Callable[[], Any]:
    import torch

    def move(value: Any) -> Any:
        return torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value

    given = [move(value) for value in given]
    if not gradient:
        # Memory that the system hands out anew each time takes longer than some kernels.
        return functools.partial(call, *given, **({"out": call(*given)} if writes else {}))
    tensors = [g.requires_grad_() for g in given if torch.is_tensor(g) and g.is_floating_point()]
    cotangent = torch.ones_like(call(*given))

    def pull() -> Any:
        return torch.autograd.grad(call(*given), tensors, cotangent)

    return pull


def _of_arrays(call: Callable[..., Any], given: Sequence[Any], gradient: bool) -> Callable[[], Any]:
    import jax

    arrays = [jax.device_put(value) for value in given if hasattr(value, "shape")]
    numbers = [value for value in given if not hasattr(value, "shape")]

    def forward(*arrays: Any) -> Any:
        return call(*arrays, *numbers)

    def backward(cotangent: Any, *arrays: Any) -> Any:
        result, back = jax.vjp(forward, *arrays)
        return result, back(cotangent)

    if not gradient:
        return functools.partial(jax.jit(forward), *arrays)
    shape = jax.eval_shape(forward, *arrays)
    return functools.partial(jax.jit(backward), np.ones(shape.shape, shape.dtype), *arrays)


def bench(
    operator: Operator,
    implementations: Sequence[Implementation],
    workload: Workload,
    *,
    repeats: int = 20,
    device: str = "cpu",
    gradient: bool = False,
) -> Measurement:
    """Time implementations of one workload in turn, and in the same rounds what bounds them.

    One that refuses the workload, or has no room for it, is left out and says why.

    Args:
        operator, implementations: of the catalog.
        workload: the problem.
        repeats: readings of each.
        device: "cpu" or "cuda", for PyTorch and Taichi.
        gradient: whether to time the gradients, forward pass included.

    Raises:
        ValueError: where none of them runs on `device`.
    """
    calls, chips, refused = {}, {}, {}
    for each in implementations:
        if why_not(each, device) or (gradient and not each.differentiable):
            continue
        try:
            call = prepare(operator, each, workload, device, gradient)
            call()
        except (ValueError, RuntimeError, MemoryError) as error:
            refused[each.name] = brief(error)
        else:
            calls[each.name], chips[each.name] = call, chip(each, device)
    if not calls:
        reasons = "".join(f"; {name}: {reason}" for name, reason in refused.items())
        names = ", ".join(i.name for i in implementations)
        fail("entry", names + reasons, f"one that runs on {device}")
    limit, scale = None, 1.0
    if operator.workloads.limit and not gradient:
        limit, run, scale = operator.workloads.limit(workload, device)
        calls[limit], chips[limit] = run, machine(device)
    count = QUEUED if set(chips.values()) - {machine()} else 1
    timings = {
        name: replace(timing, device=chips[name])
        for name, timing in measure(calls, repeats=repeats, calls=count, device="").items()
    }
    if limit:
        read = timings[limit]
        timings[limit] = replace(read, seconds=tuple(scale * s for s in read.seconds))
    here = ", ".join(dict.fromkeys(chips.values()))
    return Measurement(operator, workload, gradient, here, timings, limit, refused, count)
