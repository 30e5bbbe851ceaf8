"""The steps of a program that was compiled for a GPU: the bytes and the products of each."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernels.machines.checks import fail
from kernels.machines.hlo import FREE, Array, HloInstruction, Module

_SLICES, _UPDATE = ("dynamic-slice", "slice", "gather"), "dynamic-update-slice"
# As GpuChip.peak takes them; the tensor cores multiply float16 as fast as bfloat16.
_DTYPES = {"bf16": "bfloat16", "f16": "bfloat16", "s8": "int8", "u8": "uint8"}


@dataclass(frozen=True)
class GpuOperation:
    """A step of the optimised program."""

    name: str  # of the instruction
    target: str  # of a custom call; else its opcode
    moves: tuple[tuple[int, int], ...]  # of each array its bytes, and those that are moved
    flops: int  # of matrix products in it, a library's or a fusion's, a multiply-add counting two
    dtype: str  # of the factors; of the result where nothing is multiplied
    product: tuple[int, ...] = ()  # batch, m, k and n where it is one product; else ()
    times: int = 1  # how often it runs, as the loops around it tell

    @property
    def bytes(self) -> int:
        """All that one run moves."""
        return sum(moved for _, moved in self.moves)


def operations(module: Module) -> list[GpuOperation]:
    """The steps of the optimised program, those of a loop once; ValueError for a loop whose rounds
    only data tell."""
    steps = []
    for step in _steps(module, module.entry, 1):
        calls = [i for i in (step, *module.inside(step)) if i.opcode == "custom-call"]
        target = re.search(r'custom_call_target="([^"]*)"', calls[0].attributes) if calls else None
        library = target and "cublas" in target[1]
        # Of a library's results all but the first are its workspace.
        result = step.results[:1] if library else step.results
        product = _product(calls[0]) if library else ()
        flops = 2 * math.prod(product) if product else 0
        dtype = calls[0].operands[0].dtype if product else (result[0].dtype if result else "f32")
        for dot, count in module.dots(step):
            flops, dtype = flops + count, dot.operands[0].dtype
        steps.append(
            GpuOperation(
                step.name,
                target[1] if target else step.opcode,
                tuple(_moves(module, step, result)),
                flops,
                _DTYPES.get(dtype, "float32"),
                product,
                step.times,
            )
        )
    return steps


def _steps(module: Module, computation: str, times: int) -> Iterator[HloInstruction]:
    for step in module.computations.get(computation, ()):
        if step.opcode == "while":
            if (rounds := module.trips(step)) is None:
                what = f"one whose loop {step.name} {step.origin} runs as often as data tell"
                counted = "jax.lax.scan, or fori_loop between constants"
                fail("function", what, f"one with a fixed count of rounds: {counted}")
            body = re.findall(r"\bbody=%([^\s,]+)", step.attributes)
            yield from _steps(module, body[0], times * rounds)
        elif step.opcode == "call":
            for called in step.called:
                yield from _steps(module, called, times)
        elif step.opcode not in FREE:
            yield replace(step, times=times)


def _moves(
    module: Module, step: HloInstruction, result: Sequence[Array]
) -> Iterator[tuple[int, int]]:
    """Of each array of a step its bytes, and those that it moves. Where a fusion takes only a slice
    of one, the slice counts; where it changes one in place, what it writes."""
    fused = module.computations.get(step.called[0], ()) if step.opcode == "fusion" else (step,)
    parameters = {i.value: i.name for i in fused if i.opcode == "parameter"}
    updates = {i.results[0].bytes: i.operands[1].bytes for i in fused if i.opcode == _UPDATE}
    yield from ((array.bytes, updates.get(array.bytes, array.bytes)) for array in result)
    if len(step.inputs) != len(step.operands):  # some is a tuple
        yield from ((array.bytes, array.bytes) for array in step.operands)
        return
    read: dict[str, tuple[int, int]] = {}
    for place, (name, array) in enumerate(zip(step.inputs, step.operands)):
        same, parts = {parameters.get(str(place), name)}, []
        for user in fused:
            if not same.intersection(user.inputs):
                continue
            if user.opcode == "bitcast":
                same.add(user.name)
            elif user.opcode in (*_SLICES, _UPDATE) and user.inputs[0] in same:
                parts.append(0 if user.opcode == _UPDATE else user.results[0].bytes)
            else:
                parts.append(array.bytes)
        moved = min(array.bytes, sum(parts)) if parts else array.bytes
        read[name] = array.bytes, max(read.get(name, (0, 0))[1], moved)
    yield from read.values()


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
    return (batch, rows, depth, columns) if batch * rows * columns == math.prod(result) else ()
