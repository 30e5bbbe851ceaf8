"""Run a kernel on the simulated core, in either generation of NKI."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.checks import fail
from kernels.neuron.errors import HERE, NeuronError, located
from kernels.neuron.kernel import GENERATIONS, generation_of
from kernels.neuron.machine import SHARED_HBM, Machine, View, _machine
from kernels.neuron.rebinding import simulated


@dataclass(frozen=True)
class InterpretParams:
    """How a kernel is simulated.

    limits: hold the NeuronCore's limits; False computes only, in memory that is zero at first.
    order: seed of the order in which the iterations of nl.affine_range run; None is the order
    written, 0 is backwards.
    """

    limits: bool = True
    order: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.limits, bool):
            fail("limits", repr(self.limits), "True or False")
        seed = self.order
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            fail("order", repr(seed), "None or a whole number of at least 0")


class Kernel:
    """What @nki.jit makes of a function. Called inside another kernel it is part of it; called with
    arrays it simulates."""

    def __init__(self, function: Callable[..., Any], generation: str) -> None:
        self.function = function
        self.generation = generation
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if _machine.get() is not None:
            return self.function(*arguments, **options)
        return simulate(self, *arguments, **options)


def simulate(
    kernel: Any, *arrays: Any, params: InterpretParams | None = None, **options: Any
) -> Any:
    """Run `kernel` on NumPy arrays, on a simulated NeuronCore-v2; no Neuron package is needed.

    kernel: a function with @nki.jit, of the modern API or of beta 1. arrays: its arguments; what
    is no array is passed on as it is, and so are `options`, its keyword arguments. params: by
    default the limits are held and loops run in the order written. Returns what the kernel returns,
    as NumPy arrays; arrays that it writes to are updated.

    Refused, with NeuronError in one line that names the instruction, the tile and the limit: more
    than 128 partitions; a step along the partitions; an operand that starts at a partition where
    none of its size may; operands in HBM; slices beyond a tile; a read of elements never written;
    operands that differ in shape; an element of HBM written twice; an output element never
    written; more than 192 KiB of SBUF or 8 banks of PSUM a partition at once; and in the modern
    API operators on tiles, nl.divide, masks, nl.arange, and instructions without dst.

    Not simulated: time (see `estimate`), the engines' parallelism beyond the order of independent
    iterations, the scalar engine's approximations, and whatever a compiler does wrong.
    """
    return run_recorded(kernel, arrays, options, params or InterpretParams())[0]


def run_recorded(
    kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any], params: InterpretParams
) -> tuple[Any, Machine]:
    """The kernel's result, and the machine with all instructions that ran."""
    if not isinstance(params, InterpretParams):
        fail("params", repr(params), "neuron.InterpretParams or None")
    function = simulated(kernel)
    core = Machine(params.limits, params.order)
    kind = GENERATIONS[generation_of(kernel)].tile
    names = list(inspect.signature(function).parameters)
    given, views = [], []
    for position, argument in enumerate(arguments):
        array = as_array(argument)
        if array is None:
            given.append(argument)
            continue
        name = names[position] if position < len(names) else f"argument {position}"
        if array.dtype.itemsize > 4:
            fail(name, f"{array.dtype}", "a dtype of at most 32 bits: a NeuronCore has no other")
        view = core.given(array, name, kind)
        given.append(view)
        views.append((argument, view))
    token = _machine.set(core)
    try:
        returned = function(*given, **options)
        outputs = _outputs(returned)
        written = [(argument, view) for argument, view in views if view._storage.stored]
        core.finish([*outputs, *(view for _, view in written)])
    except TypeError as error:
        raise _translated(error) from error
    finally:
        _machine.reset(token)
    for argument, view in written:
        if isinstance(argument, np.ndarray):
            argument[...] = view._data
    return _arrays(returned), core


def as_array(value: Any) -> np.ndarray | None:
    """A copy of an array or tensor in NumPy; zeros for a ShapeDtypeStruct; None for the rest."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return None
    if not hasattr(value, "__array__"):
        return np.zeros(value.shape, value.dtype)
    return np.array(np.asarray(value), order="C")


def _outputs(returned: Any) -> list[View]:
    if returned is None:
        return []
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    for output in outputs:
        if not isinstance(output, View):
            raise NeuronError(f"the kernel returns a {type(output).__name__}; accepted: a tensor")
        if output.buffer != SHARED_HBM:
            raise NeuronError(
                f"the kernel returns {output}; accepted: a tensor with buffer=nl.shared_hbm"
            )
    return outputs


def _arrays(returned: Any) -> Any:
    if isinstance(returned, (tuple, list)):
        return type(returned)(_arrays(each) for each in returned)
    return None if returned is None else np.array(returned._data)


def _translated(error: TypeError) -> Exception:
    """A call of an instruction with the wrong arguments is the kernel's mistake, not ours."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    if last is None or last.tb_frame.f_code.co_filename.startswith(HERE):
        return error
    text = str(error)
    if "missing" in text and "'dst'" in text:
        text = f"{text.split('()')[0]} without dst: instructions write into dst, and return nothing"
    elif "unexpected keyword argument 'mask'" in text:
        text = f"{text.split('()')[0]} with mask=: masks are gone, cut the slice with min()"
    return NeuronError(text, located(last.tb_frame.f_code.co_filename, last.tb_lineno))
