"""Registers: numbers that an engine holds, for loops on the device and offsets."""

import numpy as np

from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import tiles
from kernels.machines.neuron.machine import NeedsNumbers, machine
from kernels.machines.neuron.tensors import Register


def register_alloc(x=None) -> Register:
    """A register, and perhaps a number in it."""
    register = Register()
    if x is not None:
        register_move(register, x) if isinstance(x, (int, Register)) else register_load(register, x)
    return register


def register_move(dst: Register, src) -> None:
    """A number, or another register's, into a register."""
    dst.value = src.number() if isinstance(src, Register) else int(src)


def register_load(dst: Register, src) -> None:
    """A number of memory into a register."""
    _one("register_load", src=src)
    core = machine()
    if not core.numbers:
        raise NeedsNumbers("register_load")
    core.check_written("register_load", src, whole=True)
    core.read_from(src)
    dst.value = int(src._values().reshape(-1)[0])


def register_store(dst, src: Register) -> None:
    """A register into memory."""
    _one("register_store", dst=dst)
    machine().write("register_store", dst, np.full(dst.shape, src.number()))


def _one(what: str, **operand) -> None:
    tiles(what, **operand)
    (tile,) = operand.values()
    if tile.size != 1:
        refuse(f"{what}: {tile}; accepted: a tensor of one element")
