"""Registers: numbers that an engine holds, for loops on the device and offsets."""

from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import tiles
from kernels.machines.neuron.machine import NeedsNumbers, machine
from kernels.machines.neuron.tensors import Register


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
