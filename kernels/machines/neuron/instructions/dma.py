"""What the DMA engines move: between HBM and SBUF, and between the cores of a launch; and
registers, numbers that an engine holds, for loops on the device and offsets."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import (
    GPSIMD,
    dge_mode,
    dma_engine,
    oob_mode,
    tiles,
    typed,
)
from kernels.machines.neuron.machine import NeedsNumbers, machine
from kernels.machines.neuron.memory import PSUM, SBUF, Picked, View, is_undefined
from kernels.machines.neuron.operations import resolve
from kernels.machines.neuron.tensors import Register

ERROR = oob_mode.error
ORDERS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}  # of dma_transpose, by its dimensions


def dma_copy(
    dst,
    src,
    priority=None,
    oob_mode=ERROR,
    dge_mode=dge_mode.unknown,
    engine=None,
    name=None,
    *,
    what: str = "dma_copy",
) -> None:
    """Copy between HBM and SBUF: as many elements, in any shape; dtypes may differ."""
    tiles(what, dst=dst, src=src)
    _check_indirect(what, oob_mode, dst, src)
    taken = getattr(src, "_taken", None)
    if taken is not None:  # the rows of dst that get nothing stay as they are
        taken = np.broadcast_to(taken, src.shape).reshape(dst.shape)
        if (own := getattr(dst, "_taken", None)) is not None:
            taken = taken & own
        dst = Picked(dst._storage, dst._places(), taken, dst._storage.data)
    machine().copy(what, dst, src)


def _check_indirect(what: str, beyond, *operands: View) -> None:
    core = machine()
    for operand in operands:
        bad = getattr(operand, "_bad", None)
        if bad is None or not bad.any() or not isinstance(operand, Picked):
            continue
        if beyond == ERROR and core.limits:
            refuse(
                f"{what}: {int(bad.sum())} of {bad.size} offsets into {operand} are out of bounds; "
                "oob_mode.skip leaves them out"
            )
        operand._taken = ~bad.reshape(-1, *[1] * (operand.ndim - 1))


def dma_transpose(
    dst,
    src,
    axes: Sequence[int] | None = None,
    priority=None,
    dge_mode=dge_mode.unknown,
    oob_mode=ERROR,
    name=None,
) -> None:
    """dst = src with its dimensions in the order that the documents give."""
    what = "dma_transpose"
    tiles(what, dst=dst, src=src)
    order = ORDERS.get(src.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        refuse(f"{what}: {src} by axes {axes}; accepted: {', '.join(map(str, ORDERS.values()))}")
    core = machine()
    if core.limits and (dst.buffer != SBUF or src.buffer == PSUM):
        refuse(f"{what}: {src} into {dst}; from HBM or SBUF into SBUF")
    typed(what, dst, src.dtype)
    _check_indirect(what, ERROR, src)
    states = core.check_written(what, src)
    values = src._values().transpose(order) if core.numbers else None
    if tuple(src.shape[a] for a in order) != tuple(dst.shape):
        refuse(f"{what}: {src} does not become dst {dst}")
    fresh = core.write(what, dst, values, once=True)
    if states is not None:
        loose = is_undefined(states).transpose(order)
        core.mark_undefined(what, dst, loose, (src,), (states,))
    core.read_from(src)
    moved = dst.size * dst.dtype.itemsize
    # Its elements go one by one on the side where they are not together.
    core.note("DMA", what, dst, (src,), bytes=moved, run=dst.dtype.itemsize, fresh=fresh)


def identity(tile: View) -> None:
    """Fill a tile with an identity matrix."""
    what, core = "shared_identity_matrix", machine()
    fresh = core.write(what, tile, np.eye(*tile.shape, dtype=np.float32))
    moved = tile.size * tile.dtype.itemsize
    core.note("DMA", what, tile, (), bytes=moved, run=tile._run, fresh=fresh)


def dma_compute(
    dst,
    srcs: Sequence[Any],
    reduce_op,
    scales=None,
    unique_indices: bool = True,
    oob_mode=ERROR,
    name=None,
) -> None:
    """dst = the sum of the sources, by the DMA engines."""
    what = "dma_compute"
    if (operation := resolve(what, reduce_op)).name != "add":
        refuse(f"{what}: {operation!r}; accepted: nl.add")
    if isinstance(dst, Picked) and np.unique(dst._chosen()).size < dst._chosen().size:
        refuse(f"{what}: dst {dst} has a place twice: which of its sums stays is open")
    if scales is not None and any(scale != 1.0 for scale in scales):
        refuse(f"{what}: scales are {list(scales)}; accepted: 1.0 for each")
    if not 1 <= len(srcs) <= 16:
        refuse(f"{what}: {len(srcs)} sources; accepted: 1 to 16")
    core = machine()
    total = None
    for src in srcs:
        tiles(what, src=src)
        if src.size != dst.size:
            refuse(f"{what}: {src} and dst {dst} differ in their number of elements")
        values = core.read(what, src)
        core.read_from(src)
        if core.numbers:
            total = values.reshape(dst.shape) + (0 if total is None else total)
    fresh = core.write(what, dst, total)
    moved = dst.size * dst.dtype.itemsize * len(srcs)
    core.note("DMA", what, dst, tuple(srcs), bytes=moved, run=dst._run, fresh=fresh)


def core_barrier(data, cores, engine=GPSIMD, name=None) -> None:
    """Both cores of kernel[2] have come this far."""
    machine().meet("core_barrier")


def sendrecv(
    src,
    dst,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int = 0,
    dma_engine=dma_engine.dma,
    name=None,
) -> None:
    """This core's src becomes the other's dst, and the other way around."""
    what = "sendrecv"
    tiles(what, src=src, dst=dst)
    core = machine()
    if core.limits and (src.shape != dst.shape or src.dtype != dst.dtype):
        refuse(f"{what}: src {src} and dst {dst} differ in shape or dtype")
    states = core.check_written(what, src)
    states = None if states is None else states.copy()
    sent = core.mail.setdefault((pipe_id, core.program, int(send_to_rank)), deque())
    sent.append((src._values().copy(), states))
    core.meet(what)
    letters = core.mail.get((pipe_id, int(recv_from_rank), core.program))
    if not letters:
        refuse(f"{what}: core {int(recv_from_rank)} sent nothing to core {core.program}")
    values, states = letters.popleft()
    fresh = core.write(what, dst, values)
    if states is not None:
        core.loosen(what, dst, (src,), (states,))
    size = dst.size * dst.dtype.itemsize
    core.note("DMA", what, dst, (src,), bytes=size, run=dst._run, fresh=fresh)


def register_alloc(x=None) -> Register:
    """A register, and perhaps a number in it."""
    register = Register()
    if isinstance(x, (int, Register)):
        register.value = int(x)
    elif x is not None:
        register_load(register, x)
    return register


def register_load(dst: Register, src) -> None:
    """A number of memory into a register."""
    tiles("register_load", src=src)
    if src.size != 1:
        refuse(f"register_load: {src}; accepted: a tensor of one element")
    core = machine()
    if not core.numbers:
        raise NeedsNumbers("register_load")
    core.check_written("register_load", src, whole=True)
    core.read_from(src)
    dst.value = int(src._values().reshape(-1)[0])
