"""The steps of a program that was compiled for a GPU: the bytes and the products of each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kernels.machines.hlo import FREE, HloInstruction, Module

# As GpuChip.peak takes them; the tensor cores multiply float16 as fast as bfloat16.
_DTYPES = {"bf16": "bfloat16", "f16": "bfloat16", "s8": "int8", "u8": "uint8"}


@dataclass(frozen=True)
class GpuOperation:
    """A step of the optimised program."""

    name: str  # of the instruction
    target: str  # of a custom call; else its opcode
    bytes: int  # of its operands, each once, and of its result
    flops: int  # of matrix products in it, a library's or a fusion's, a multiply-add counting two
    dtype: str  # of the factors; of the result where nothing is multiplied
    product: tuple[int, ...] = ()  # batch, m, k and n where it is one product; else ()


def operations(module: Module) -> list[GpuOperation]:
    """The steps of the optimised program."""
    entry = {i.name: i for i in module.computations.get(module.entry, ())}
    steps = []
    for step in entry.values():
        if step.opcode in FREE:
            continue
        target = re.search(r'custom_call_target="([^"]*)"', step.attributes)
        inputs = [a for name in dict.fromkeys(step.inputs) for a in entry[name].results]
        result = step.results[:1] if target else step.results  # the rest is a library's workspace
        product = _product(step) if target and "cublas" in target[1] else ()
        flops = 2 * math.prod(product) if product else 0
        dtype = inputs[0].dtype if product else (result[0].dtype if result else "f32")
        for dot, count in module.dots(step):
            flops, dtype = flops + count, dot.operands[0].dtype
        steps.append(
            GpuOperation(
                step.name,
                target[1] if target else step.opcode,
                sum(a.bytes for a in (*inputs, *result)),
                flops,
                _DTYPES.get(dtype, "float32"),
                product,
            )
        )
    return steps


def left_by_triton(module: Module) -> list[HloInstruction]:
    """The products that Triton was to make and did not: since JAX 0.12 XLA then writes its own
    loops, and says nothing.
    """
    return [
        dot
        for instructions in module.computations.values()
        for fusion in instructions
        if "kind=kCustom" in fusion.attributes and '"kind":"' not in fusion.attributes
        for dot, _ in module.dots(fusion)
    ]


def _product(call: HloInstruction) -> tuple[int, ...]:
    """batch, m, k, n of a library's product; () where its text is not as it is known."""
    summed, batches = (
        re.search(rf'"lhs_{kind}_dimensions":\[([^\]]*)\]', call.attributes)
        for kind in ("contracting", "batch")
    )
    if not summed or len(call.operands) < 2 or not call.results:
        return ()
    left, right, result = (a.shape for a in (*call.operands[:2], call.results[0]))
    depth = math.prod(left[int(axis)] for axis in re.findall(r"\d+", summed[1]))
    batch = math.prod(left[int(axis)] for axis in re.findall(r"\d+", batches[1])) if batches else 1
    rows, columns = math.prod(left) // (batch * depth), math.prod(right) // (batch * depth)
    same = batch * rows * columns == math.prod(result)
    return (batch, rows, depth, columns) if same else ()
