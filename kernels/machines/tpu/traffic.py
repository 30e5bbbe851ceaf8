"""What XLA's own instructions read from a TPU's HBM and write to it, as their HLO tells."""

import math
from collections.abc import Callable
from dataclasses import replace

from kernels.machines.hlo import Array, HloInstruction, Module

# The share of an operand that a kernel reads, of the kernel and the operand's place.
KernelShare = Callable[[HloInstruction, int], float]
# What a fusion does only for the elements that are asked for.
_LAZY = {"copy", "transpose", "reshape", "convert"}
# What reads only a part of its first operand.
PARTS = {"slice", "dynamic-slice", "gather", "slice-start"}
# What writes only a part of its result, which is its first operand.
UPDATES = {"dynamic-update-slice", "scatter"}


def moved(
    module: Module, instruction: HloInstruction, weigh: Callable[[Array], float] = lambda array: 1.0
) -> tuple[float, float]:
    """Bytes that an instruction of the program's entry, XLA's own, reads from HBM, and writes to
    it, in one run; `weigh` is how much a byte of an array counts.

    Of an operand that is sliced or gathered from, the part that is read; of a result that is
    updated in place, the part that is written. What a product's windows fetch again counts again.
    """
    operands = instruction.operands
    shares = [1.0] * len(operands)
    if len(instruction.inputs) == len(operands):  # none of them is a tuple
        whole = lambda *_: 1.0
        for place in range(len(operands)):
            shares[place] = _share_of(module, module.entry, instruction, place, whole, None)
    again = instruction.fetches if module.multiplies(instruction) else ()
    read = sum(
        share * times * a.bytes * weigh(a)
        for share, times, a in zip(shares, again or [1] * len(operands), operands)
        if a.space == 0
    )
    written = sum(
        share * a.bytes * weigh(a)
        for share, a in zip(_written(module, instruction), instruction.results)
        if a.space == 0
    )
    return read, written


def share_read(module: Module, parameter: HloInstruction, kernel: KernelShare) -> float:
    """How much of a parameter the program reads, 0 to 1: the sum over its readers, at most 1.
    `kernel` says of a Pallas kernel and the place of an operand the share that it reads."""
    return _share(module, module.entry, parameter.name, kernel, None)


def _updated(instruction: HloInstruction) -> float:
    """The share of its result that an update in place writes."""
    # The update itself comes second, or after the indices.
    update = instruction.operands[1 if instruction.opcode == "dynamic-update-slice" else -1 :][:1]
    sizes = [math.prod(a.shape) for a in (*update, *instruction.results[:1])]
    return min(1.0, sizes[0] / sizes[1]) if len(sizes) == 2 and sizes[1] else 1.0


def _written(module: Module, instruction: HloInstruction) -> list[float]:
    """The share that is written of each result."""
    if instruction.opcode in UPDATES:
        return [_updated(instruction)]
    name = instruction.called[0] if instruction.called else ""
    inside = {i.name: i for i in module.computations.get(name, ())}
    root = inside.get(module.roots.get(name, ""))
    if instruction.opcode != "fusion" or root is None:
        return [1.0] * len(instruction.results)
    makers = [inside.get(i) for i in root.inputs] if root.opcode == "tuple" else [root]
    shares = []
    for maker in makers:
        while maker is not None and maker.opcode == "bitcast" and maker.inputs:
            maker = inside.get(maker.inputs[0])
        updates = maker is not None and maker.opcode in UPDATES
        shares.append(_updated(maker) if maker is not None and updates else 1.0)
    return shares


def _share(
    module: Module, computation: str, name: str, kernel: KernelShare, asked: float | None
) -> float:
    """The share of an array that a computation reads; of a fusion's result `asked` is read."""
    share = asked or 0.0 if module.roots.get(computation) == name else 0.0  # it may be the array
    for reader in module.computations.get(computation, ()):
        for place, operand in enumerate(reader.inputs):
            if operand == name and share < 1:
                share += _share_of(module, computation, reader, place, kernel, asked)
    return min(share, 1.0)


def _share_of(
    module: Module,
    computation: str,
    reader: HloInstruction,
    place: int,
    kernel: KernelShare,
    asked: float | None,
) -> float:
    """The share of an operand that one of its readers reads."""
    if reader.is_kernel:
        return kernel(reader, place)
    if reader.opcode == "bitcast" or (asked is not None and reader.opcode in _LAZY):
        return _share(module, computation, reader.name, kernel, asked)
    if reader.opcode in UPDATES and place == 0:
        return 0.0  # it is updated where it lies
    if reader.opcode in PARTS and place == 0:
        # An asynchronous one names its operand among its results, and first.
        part = reader.results[reader.opcode == "slice-start" :][:1]
        if reader.opcode != "gather" and part and reader.operands:
            # Whole tiles of its layout, as each lies in HBM in one piece.
            whole = reader.operands[0]
            return replace(whole, shape=part[0].shape).bytes / (whole.bytes or 1)
        sizes = [math.prod(a.shape) for a in (*part, *reader.operands[:1])]
        return sizes[0] / sizes[1] if len(sizes) == 2 and sizes[1] else 1.0
    if reader.opcode == "fusion" and reader.called:
        body = reader.called[0]
        # A fusion in a fusion, such as a copy between tilings, makes only what is read of it.
        inner = None if asked is None else _share(module, computation, reader.name, kernel, asked)
        for inside in module.computations.get(body, ()):
            if inside.opcode == "parameter" and inside.value.strip() == str(place):
                return _share(module, body, inside.name, kernel, 1.0 if inner is None else inner)
    return 1.0
