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
    attention_call,
    gated_arguments,
    normalization_call,
)

CHIPS = ("h100", "b200")
DEVICE = {  # as tokamax asks for it
    "device_kind": "NVIDIA H100 80GB HBM3",
    "core_count": 132,
    "compute_capability": "9.0",
}
_call = functools.partial(tokamax.call_as_if, DEVICE)
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
    size, backward = key.sizes, key.pass_ == "backward"
    attention, arguments = attention_call(key, key.implementation)
    pairs = size["b"] * size["h"] * size["n"] * size["m"]
    if key.options.typed().get("causal") and not key.implementation.startswith("xla"):
        pairs *= 0.5  # XLA multiplies what is hidden too
    # Backwards two kernels take four products and three.
    flops = 2 * pairs * (size["d"] + size["e"]) * (3.5 if backward else 1)
    return PublishedProgram(functools.partial(attention, _call), arguments, flops=flops)


def _gated(key: Key) -> PublishedProgram:
    op = tokamax.op("gated_linear_unit", key.implementation, key.tuning.typed())
    activation = getattr(jax.nn, str(key.options["activation"]))

    def gated_linear_unit(x, weights):
        options = {"activation": activation, "precision": BF16, "return_residuals": False}
        return _call(op, x, weights, **options)

    flops = 4 * math.prod(key.sizes[name] for name in "mkn")
    return PublishedProgram(gated_linear_unit, gated_arguments(key), flops=flops)


def _normalization(key: Key) -> PublishedProgram:
    normalization, arguments = normalization_call(key, key.implementation)
    return PublishedProgram(functools.partial(normalization, _call), arguments)


_BUILDS: dict[str, Callable[[Key], PublishedProgram]] = {
    "dot_product_attention": _attention,
    "gated_linear_unit": _gated,
    "linear_cross_entropy": tpu_programs.program,
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
