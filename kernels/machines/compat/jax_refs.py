"""How the equations of a Pallas kernel name parts of its refs: reads, writes, copies, scratch.

Private: the trees in the parameters of `get`, `swap`, `addupdate` and `dma_start`, NDIndexer,
Slice, the transforms of a ref, AbstractRef, `run_scoped`. Seen in JAX 0.10.2 and 0.12.0.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.machines.compat import jaxprs

ACCESSES = ("get", "swap", "addupdate")


@dataclass(frozen=True)
class OperandSlot:
    """Stands for the operand of that number in an equation."""

    number: int


Size = OperandSlot | int


@dataclass(frozen=True)
class Part:
    """A part of a ref: the ref, and one index after another that is taken of it."""

    ref: OperandSlot  # as an operand
    # Each a tuple with an entry for each dimension, a place or (start, size, stride); None instead
    # of it for what changes the shape otherwise.
    steps: tuple[tuple[Any, ...] | None, ...]
    shape: tuple[int, ...]  # of the whole ref
    dtype: str  # of the ref

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the part, those that an index drops left out."""
        for step in reversed(self.steps):
            if step is not None:
                return tuple(index[1] for index in step if isinstance(index, tuple))
        return self.shape


@dataclass(frozen=True)
class Copy:
    """A copy that a kernel starts or waits for, `remote` where another chip takes part: then
    `device` says which, by operands or numbers. The first of its semaphores is waited for."""

    source: Part
    target: Part
    remote: bool
    device: tuple[Any, ...] = ()
    semaphores: tuple[Part, ...] = ()


def access(equation: Any) -> tuple[Part, OperandSlot | None]:
    """The part that a get, swap or addupdate touches, and the operand that it writes there."""
    writes = jaxprs.operation(equation) != "get"
    first = 2 if writes else 1
    slots = [OperandSlot(i) for i in range(first, len(jaxprs.inputs(equation)))]
    transforms = equation.params["tree"].unflatten(slots)
    return _part(equation, OperandSlot(0), transforms), OperandSlot(1) if writes else None


def copy(equation: Any) -> Copy:
    """What a dma_start moves, or a dma_wait waits for."""
    slots = [OperandSlot(i) for i in range(len(jaxprs.inputs(equation)))]
    # Source, target, its semaphore, the source's, device.
    *ends, device = equation.params["tree"].unflatten(slots)
    source, target, *semaphores = (
        _part(equation, getattr(end, "ref", end), getattr(end, "transforms", ()))
        for end in ends
        if end is not None
    )
    whole = device if isinstance(device, (tuple, list)) else (device,)
    places = [v for d in whole for v in (d.values() if isinstance(d, Mapping) else (d,))]
    remote = device is not None
    return Copy(source, target, remote, tuple(places) if remote else (), tuple(semaphores))


def signals_remotely(equation: Any) -> bool:
    """Whether a semaphore_signal reaches another chip."""
    slots = [OperandSlot(i) for i in range(len(jaxprs.inputs(equation)))]
    tree = equation.params.get("args_tree")
    return tree is not None and tree.unflatten(slots)[3] is not None


def memory(variable: Any) -> str:
    """JAX's word for the memory that a ref lies in, such as "vmem"; "" for what is no ref."""
    space = getattr(variable.aval, "memory_space", None)
    return str(getattr(space, "value", space) or "").lower()


def is_ref(variable: Any) -> bool:
    """Whether a variable is a ref, and not a value."""
    return hasattr(variable.aval, "inner_aval")


def scoped(equation: Any) -> Any:
    """The jaxpr that a run_scoped runs: its inputs are the refs, its constants the operands."""
    return jaxprs.opened(equation.params["jaxpr"])


def scalars(variable: Any) -> tuple[int, ...] | None:
    """The shape of a ref in scalar memory; None for any other."""
    aval = getattr(variable.aval, "inner_aval", variable.aval)
    return tuple(aval.shape) if memory(variable) == "smem" and hasattr(aval, "shape") else None


def _part(equation: Any, ref: OperandSlot, transforms: Sequence[Any]) -> Part:
    variable = jaxprs.inputs(equation)[ref.number]
    aval = getattr(variable.aval, "inner_aval", variable.aval)
    steps = tuple(_step(transform) for transform in transforms or ())
    return Part(ref, steps, tuple(aval.shape), str(aval.dtype))


def _step(transform: Any) -> tuple[Any, ...] | None:
    indices = getattr(transform, "indices", None)
    if indices is None:
        return None
    return tuple(
        (index.start, index.size, index.stride) if hasattr(index, "stride") else index
        for index in indices
    )
