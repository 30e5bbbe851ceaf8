"""The programs behind published times of GPUs, and what they are made of: bytes and instructions.

Of tokamax they are its own kernels at the row's configuration, or its plain JAX; of what others
wrote in CUDA C++ or in a guide, ours of the same shape.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import jax
import jax.numpy as jnp

from kernels.figures.schema import Key, versions
from kernels.machines import optional
from kernels.machines.checks import one_of
from kernels.machines.gpu.chips import chip
from kernels.machines.gpu.compiler import compile_program
from kernels.machines.gpu.estimate import Parts, parts
from kernels.machines.gpu.export import export
from kernels.machines.gpu.operations import operations
from kernels.matmul import matmul
from validation import blackwell
from validation import tokamax_door as tokamax
from validation.gpu_times import SORTS, Bracketed
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
    causal = options.get("causal", False)
    op = tokamax.op("attention", key.implementation, key.tuning.typed())
    product: Any = jax.lax.Precision.DEFAULT
    if options.get("precision"):
        product = jax.lax.DotAlgorithmPreset[str(options["precision"])]

    def attention(q, k, v, bias, mask):
        return tokamax.call_as_if(
            DEVICE,
            op,
            *(q, k, v),
            precision=(product, product),
            logits_dtype=jnp.float32,
            logits_scale=1 / math.sqrt(size["d"]),
            bias=bias,
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
    if causal and key.implementation != "xla":  # XLA multiplies what the mask hides as well
        pairs *= 0.5
    flops = 2 * pairs * (size["d"] + size["e"])
    return PublishedProgram(attention, attention_arguments(key), flops=flops)


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


_BUILDS: dict[str, Callable[[Key], PublishedProgram]] = {
    "dot_product_attention": _attention,
    "gated_linear_unit": _gated,
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
    compiled = compile_program(export(ran.function, *ran.arguments, chip=key.chip), timeout=timeout)
    steps = operations(compiled.module)
    moved = sum(step.bytes for step in steps)
    largest = max(compiled.kernels, key=lambda kernel: len(kernel.instructions), default=None)
    known = {column.name: getattr(key, column.name) for column in fields(Key)}
    row = Bracketed(**known, published_ms=published_ms, memory_ms=0.0, source=source)
    if SORTS[row.sort][2] == "pallas" and largest is not None:
        seconds = parts(largest, ran.flops, moved)
    else:
        rates = chip(key.chip)
        seconds = Parts(moved / rates.bytes_per_second, ran.flops / rates.bf16_flops)
    return Bracketed(
        **known,
        published_ms=published_ms,
        **{f"{name}_ms": 1e3 * value for name, value in asdict(seconds).items()},
        kernels=len(steps),
        registers=largest.registers if largest else 0,
        spills=largest.spills if largest else 0,
        versions=versions("jax"),
        date=time.strftime("%Y-%m-%d"),
        source=source,
    )
