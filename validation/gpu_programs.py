"""The programs behind published times of GPUs, and what they are made of: bytes and instructions.

Of tokamax they are its own kernels at the row's configuration, or its plain JAX; of what others
wrote in CUDA C++ or in a guide, ours of the same shape.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp

from kernels.figures.schema import Key, Named, versions
from kernels.machines import optional
from kernels.machines.checks import one_of
from kernels.machines.exporting import ExportedProgram
from kernels.machines.gpu.compiler import GpuProgram, compile_program
from kernels.machines.gpu.estimate import estimate_compiled
from kernels.machines.gpu.export import export
from kernels.matmul import matmul
from validation import blackwell, gpu_measured, tpu_programs
from validation import tokamax_door as tokamax
from validation.gpu_times import JIT, OURS, Bracketed
from validation.tpu_programs import (
    BF16,
    PublishedProgram,
    array,
    attention_arguments,
    gated_arguments,
    leading,
)

CHIPS = ("h100", "b200")
DEVICE = {  # as tokamax asks for it
    "device_kind": "NVIDIA H100 80GB HBM3",
    "core_count": 132,
    "compute_capability": "9.0",
}
TOKAMAX = ("dot_product_attention", "gated_linear_unit", "normalization")


def program(key: Key) -> PublishedProgram:
    """The program of a row.

    Args:
        key: of the row; its chip is one of CHIPS.

    Raises:
        ValueError: for an operator that nothing here runs.
        MissingPackage: without tokamax, where the kernel is its own.
    """
    one_of("chip", key.chip, CHIPS)
    if key.implementation in (JIT, OURS):
        return gpu_measured.program(key)
    one_of("operator", key.operator, _BUILDS)
    if key.operator in TOKAMAX:
        optional.require("tokamax", f"the kernels of {key.operator}/{key.implementation}")
    return _BUILDS[key.operator](key)


def _matmul(key: Key) -> PublishedProgram:
    """A step of the ladder on Blackwell; on Hopper the product that fast.cu's is held against."""
    m, k, n = (key.sizes[name] for name in "mkn")
    if key.chip == "b200":
        step = blackwell.STEPS.index(str(key.options["step"]).replace("_", " "))
        product = functools.partial(blackwell.product, step=step)
    else:
        product = functools.partial(matmul, implementation="mosaic_gpu")
    arguments = array((m, k), key.dtype), array((k, n), key.dtype)
    return PublishedProgram(product, arguments, flops=2 * m * k * n)


def _sum(key: Key) -> PublishedProgram:
    return PublishedProgram(jnp.sum, (array((key.sizes["n"],), key.dtype),))


def _attention(key: Key) -> PublishedProgram:
    size, options = key.sizes, key.options.typed()
    causal, backward = options.get("causal", False), key.pass_ == "backward"
    kind = "attention backward" if backward else "attention"
    op = tokamax.op(kind, key.implementation, key.tuning.typed())
    product = jax.lax.DotAlgorithmPreset[str(options.get("precision", "DEFAULT"))]
    q, k, v, bias, mask = attention_arguments(key)
    before: tuple[Any, ...] = ()
    if backward:  # the softmax's greatest values and sums, the result, and its gradient
        sums = array((*q.shape[:-3], size["h"], size["n"]), "float32")
        out = array((*q.shape[:-1], size["e"]), key.dtype)
        before = (sums, sums), out, out

    def attention(before, q, k, v, bias, mask):
        return tokamax.call_as_if(
            DEVICE,
            op,
            *before,
            *(q, k, v),
            precision=(product, product),
            logits_dtype=jnp.dtype("float32"),
            logits_scale=1 / math.sqrt(size["d"]),
            bias=bias,
            logits_soft_cap=None,
            mask=tokamax.mask(mask, causal),
            dropout_mask=None,
            dropout_rate=0.0,
            paging_info=None,
            q_indices=None,
            k_indices=None,
            normalize_output=True,
            return_residuals=options.get("residuals", False),
        )

    pairs = size["b"] * size["h"] * size["n"] * size["m"]
    if causal and not key.implementation.startswith("xla"):  # XLA multiplies what is hidden too
        pairs *= 0.5
    # Backwards two kernels take four products and three.
    flops = 2 * pairs * (size["d"] + size["e"]) * (3.5 if backward else 1)
    return PublishedProgram(attention, (before, q, k, v, bias, mask), flops=flops)


def _gated(key: Key) -> PublishedProgram:
    op = tokamax.op("gated_linear_unit", key.implementation, key.tuning.typed())
    activation = getattr(jax.nn, str(key.options["activation"]))

    def gated_linear_unit(x, weights):
        options = {"activation": activation, "precision": BF16, "return_residuals": False}
        return tokamax.call_as_if(DEVICE, op, x, weights, **options)

    flops = 4 * math.prod(key.sizes[name] for name in "mkn")
    return PublishedProgram(gated_linear_unit, gated_arguments(key), flops=flops)


def _normalization(key: Key) -> PublishedProgram:
    size, options = key.sizes, key.options.typed()
    op = tokamax.op("normalization", key.implementation, key.tuning.typed())

    def normalization(x, scale, offset):
        return tokamax.call_as_if(
            DEVICE,
            op,
            *(x, scale, offset),
            axis=-1,
            epsilon=1e-6,
            scale_offset=0.0,
            subtract_mean=options.get("subtract_mean", False),
            return_residuals=options.get("residuals", False),
        )

    shape = (*leading(options, size["m"]), size["n"])
    one = array((size["n"],), "float32")
    offset = one if options.get("subtract_mean") else None
    return PublishedProgram(normalization, (array(shape, key.dtype), one, offset))


def _cross_entropy(key: Key) -> PublishedProgram:
    """Forwards as on a TPU. Backwards as tokamax's plain JAX has it."""
    if key.pass_ == "forward":
        return tpu_programs.program(key)
    x, labels, w = tpu_programs.program(key).arguments
    count = key.sizes["t"] if key.options["reduction"] == "mean" else 1

    def gradients(sums, gradient, x, labels, w):
        right = jax.nn.one_hot(labels, w.shape[1], dtype=x.dtype)
        scores = jnp.exp(x @ w - sums[:, None]) - right
        return gradient * (scores @ w.T) / count, gradient * (x.T @ scores) / count

    before = array(labels.shape, key.dtype), array((), "float32")
    return PublishedProgram(gradients, (*before, x, labels, w))


_BUILDS: dict[str, Callable[[Key], PublishedProgram]] = {
    "dot_product_attention": _attention,
    "gated_linear_unit": _gated,
    "linear_cross_entropy": _cross_entropy,
    "normalization": _normalization,
    "matmul": _matmul,
    "sum": _sum,
}


def bracketed(key: Key, published_ms: float, source: str, *, timeout: float = 60.0) -> Bracketed:
    """Compile what a row ran, and read its parts from the code.

    Args:
        key: of the row.
        published_ms: what was measured.
        source: who published it.
        timeout: seconds for the compiler.

    Raises:
        CompileError: for what a compiler refuses.
        ValueError: for what nothing here runs.
        MissingPackage: without tokamax, the plugin or NVIDIA's tools.
    """
    ran = program(key)
    exported = export(ran.function, *ran.arguments, chip=key.chip)
    compiled = compile_program(exported, timeout=timeout)
    return row_of(key, published_ms, source, ran.flops, exported, compiled)


def row_of(
    key: Key,
    published_ms: float,
    source: str,
    flops: float,
    exported: ExportedProgram,
    compiled: GpuProgram,
) -> Bracketed:
    """The same of a program that is compiled already.

    Args:
        key, published_ms, source: as for `bracketed`.
        flops: of its Pallas kernels, where nothing counts them.
        exported, compiled: the program.
    """
    try:
        estimate = estimate_compiled(exported, compiled)
    except ValueError:  # Mosaic GPU's products, and those of a grid too large to walk
        estimate = estimate_compiled(exported, compiled, flops=flops)
    made_of = {
        f"{name}_ms": 1e3 * sum(step.times * getattr(step.parts, name) for step in estimate.steps)
        for name in ("memory", "products", "issue", "accesses", "cached")
    }
    pallas = {step.name for step in estimate.steps if step.kind == "pallas"}
    code = [kernel for kernel in compiled.kernels if kernel.name in pallas]
    largest = max(code, key=lambda kernel: len(kernel.ptx), default=None)
    return Bracketed(
        **{column.name: getattr(key, column.name) for column in fields(Key)},
        published_ms=published_ms,
        **made_of,
        kernels=sum(step.times for step in estimate.steps),
        registers=largest.registers if largest else 0,
        spills=largest.spills if largest else 0,
        kind=estimate.kind,
        terms=Named({name: f"{value:.6g}" for name, value in estimate.terms.items() if value}),
        versions=versions("jax"),
        date=time.strftime("%Y-%m-%d"),
        source=source,
    )
