"""Run a kernel on the simulated core, in either generation of NKI."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.checks import fail
from kernels.machines.neuron import dtypes
from kernels.machines.neuron.chips import chip as find_chip
from kernels.machines.neuron.chips import target
from kernels.machines.neuron.errors import HERE, NeuronError, located
from kernels.machines.neuron.grid import Turns
from kernels.machines.neuron.kernel import GENERATIONS, generation_of, simulated
from kernels.machines.neuron.loops import Sample
from kernels.machines.neuron.machine import NeuronMachine
from kernels.machines.neuron.memory import ON_CHIP, View, running


@dataclass(frozen=True)
class InterpretParams:
    """How a kernel is simulated.

    Args:
        limits: hold the NeuronCore's limits; False computes only, in memory that is zero at
            first.
        order: seed of the order in which the iterations of nl.affine_range run; 0 is backwards.
            None is the order written; what is right in that alone is warned of in the modern API,
            which keeps it, and refused in any other order.
        chip: whose limits are held.
    """

    limits: bool = True
    order: int | None = None
    chip: str = "inf2"

    def __post_init__(self) -> None:
        if not isinstance(self.limits, bool):
            fail("limits", repr(self.limits), "True or False")
        seed = self.order
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            fail("order", repr(seed), "None or a whole number of at least 0")
        find_chip(self.chip)


class NkiKernel:
    """What @nki.jit makes of a function. Called inside another kernel it is part of it; called with
    arrays it simulates. kernel[grid] starts as many programs.

    target: the chip that the decorator asks for; None for the simulator's default.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        generation: str,
        grid: tuple[int, ...] = (),
        target: str | None = None,
    ) -> None:
        self.function = function
        self.generation = generation
        self.grid = grid
        self.chip = target
        functools.update_wrapper(self, function)

    def __getitem__(self, grid) -> NkiKernel:
        sizes = tuple(int(size) for size in (grid if isinstance(grid, tuple) else (grid,)))
        if not sizes or min(sizes) < 1:
            raise NeuronError(f"the grid is {grid}; accepted: whole numbers of at least 1")
        return NkiKernel(self.function, self.generation, sizes, self.chip)

    def __call__(self, *arguments, **options) -> Any:
        if running.get() is not None:
            return self.function(*arguments, **options)
        return simulate(self, *arguments, **options)


def jit_of(generation: str) -> Callable[..., Any]:
    """nki.jit of a generation of the API."""

    def jit(kernel=None, *, platform_target: str | None = None, **options) -> Any:
        """The decorator of a kernel; options of the vendor's compiler are taken and ignored.

        Args:
            kernel: the function; None where options stand before it.
            platform_target: the chip whose limits hold, such as "trn2".
            options: of the vendor's compiler.
        """
        if kernel is None:
            return lambda function: jit(function, platform_target=platform_target, **options)
        return NkiKernel(getattr(kernel, "function", kernel), generation, target=platform_target)

    return jit


_ALWAYS = {
    "NKI_SIMULATOR": "kernels are simulated",
    "NKI_PRECISE_FP": "numbers are rounded to the dtype of their tile",
}


def simulate(kernel, *arrays, params: InterpretParams | None = None, **options) -> Any:
    """Run `kernel` on NumPy arrays, on a simulated NeuronCore; no Neuron package is needed.

    Refused, with NeuronError in one line that names the instruction, the tile and the limit:
    more than 128 partitions; a step along the partitions; an operand that starts at a partition
    where none of its size may; operands in HBM; slices beyond a tile; a read of elements never
    written; operands that differ in shape; dtypes that an instruction does not take; an element
    of HBM written twice and not read between; an output element never written; an iteration of
    nl.affine_range that reads what another one wrote; a sum in PSUM on what no product wrote;
    more than a partition's room in SBUF or PSUM at once; and in the modern API operators on
    tiles, nl.divide, masks, nl.arange, and instructions without dst. A name that is missing
    here is refused as "not simulated", with those that are there.

    Not simulated: time (see `estimate`), the engines' parallelism beyond independent
    iterations, the scalar engine's approximations, and whatever a compiler does wrong.

    Args:
        kernel: a function with @nki.jit, of the modern API or of beta 1, or kernel[grid].
        *arrays: its arguments; what is no array is passed on as it is.
        **options: its keyword arguments.
        params: by default the limits of Inf2 are held (or of the chip that the decorator
            names, or else NEURON_PLATFORM_TARGET_OVERRIDE), and loops run in the order written.

    Returns:
        What the kernel returns, as NumPy arrays, or as tensors of PyTorch where an argument is one
        (but for dtypes that it lacks); arrays and tensors that it writes to are updated.
    """
    if params is None:
        params = InterpretParams(chip=target(getattr(kernel, "chip", None)))
    for variable, always in _ALWAYS.items():
        if os.environ.get(variable) == "0":
            warnings.warn(f"{variable}=0 has no effect: here {always}, always", stacklevel=2)
    return run_recorded(kernel, arrays, options, params)[0]


def run_recorded(
    kernel,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    params: InterpretParams,
    numbers: bool = True,
    sample: Sample | None = None,
) -> tuple[Any, NeuronMachine]:
    """The kernel's result, and the machine with all instructions that ran. Without `numbers` the
    result is empty memory; `sample` says where loops leave iterations out."""
    if not isinstance(params, InterpretParams):
        fail("params", repr(params), "neuron.InterpretParams or None")
    function = simulated(kernel)
    grid = getattr(kernel, "grid", ())
    grid = grid if isinstance(grid, tuple) else ()
    generation = generation_of(kernel)
    beta1, kind = generation == "neuronxcc", GENERATIONS[generation].tile
    chip = find_chip(params.chip)
    core = NeuronMachine(params.limits, params.order, chip, numbers, grid, sample, beta1)
    names = list(inspect.signature(function).parameters)
    views: list[tuple[Any, View]] = []

    def entered(argument, name: str) -> Any:
        if isinstance(argument, (list, tuple)) and not hasattr(argument, "_fields"):
            return type(argument)(entered(one, f"{name}[{at}]") for at, one in enumerate(argument))
        array = None if isinstance(argument, np.generic) else as_array(argument, numbers)
        if array is None:
            return argument
        if array.dtype.itemsize > 4:
            fail(name, f"{array.dtype}", "a dtype of at most 32 bits: a NeuronCore has no other")
        view = core.argument(array, name, kind)
        views.append((argument, view))
        return view

    positional = [
        entered(argument, names[at] if at < len(names) else f"argument {at}")
        for at, argument in enumerate(arguments)
    ]
    named = {name: entered(argument, name) for name, argument in options.items()}
    token = running.set(core)
    try:
        returned = _run(core, lambda: function(*positional, **named))
        outputs = _outputs(returned)
        written = [(argument, view) for argument, view in views if view._storage.stored]
        core.finish([*outputs, *(view for _, view in written)])
    except (TypeError, ValueError) as error:
        raise _translated(error) from error
    finally:
        running.reset(token)
    torchs = any(_is_torchs(argument) for argument, _ in views)
    for argument, view in written if numbers else ():
        if isinstance(argument, np.ndarray):
            argument[...] = view._data
        elif _is_torchs(argument):
            argument.data.copy_(_like(view._data, True))
    return _arrays(returned, torchs), core


def _run(core: NeuronMachine, call: Callable[[], Any]) -> Any:
    """All programs of the grid, in this run's order."""
    if not core.grid:
        return call()
    programs = list(core.grid_programs)
    if core.order is not None:
        programs.reverse()
    if 1 < len(programs) <= 8 and not core.beta1:  # cores, which may wait for each other
        core.turns = Turns(core, programs)
        return core.turns.run(call)
    returned = None
    for program in programs:
        core.enter(program)
        returned = call()
    return returned


def as_array(value, numbers: bool = True) -> np.ndarray | None:
    """A copy of an array or tensor in NumPy; zeros for a ShapeDtypeStruct; None for the rest."""
    if isinstance(value, (View, type)) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return None
    if _is_torchs(value):
        import torch

        name = str(value.dtype).removeprefix("torch.")
        value, bits = value.detach().cpu(), _BITS.get(name)  # NumPy knows it as whole numbers only
        if bits is None:
            value = value.numpy()
        else:
            value = value.view(getattr(torch, bits)).numpy().view(dtypes.ALL[name])
    if not hasattr(value, "__array__") or not numbers:
        return np.zeros(value.shape, dtypes.of(value.dtype))
    return np.array(np.asarray(value), order="C")


_BITS = {dtypes.name(kind): "uint8" for kind in dtypes.EIGHTS} | {"bfloat16": "int16"}


def _is_torchs(value) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _like(array: np.ndarray, torchs: bool) -> Any:
    """An array as a tensor of PyTorch, if that is wanted and it has the dtype."""
    if not torchs:
        return array
    import torch

    name = dtypes.name(array.dtype)
    kind = getattr(torch, name, None)
    return array if kind is None else torch.from_numpy(array.view(_BITS.get(name, name))).view(kind)


def _outputs(returned) -> list[View]:
    if returned is None:
        return []
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    for output in outputs:
        if not isinstance(output, View):
            raise NeuronError(f"the kernel returns a {type(output).__name__}; accepted: a tensor")
        if output.buffer in ON_CHIP:
            raise NeuronError(
                f"the kernel returns {output}; accepted: a tensor with buffer=nl.shared_hbm"
            )
    return outputs


def _arrays(returned, torchs: bool) -> Any:
    if isinstance(returned, (tuple, list)):
        return type(returned)(_arrays(one, torchs) for one in returned)
    return None if returned is None else _like(np.array(returned._data), torchs)


def _translated(error: Exception) -> Exception:
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
    elif "truth value of an array" in text:
        text = "a grid of indices is neither true nor false: join masks with &, and not with `and`"
    elif isinstance(error, ValueError):
        return error
    elif "unexpected keyword argument" in text:
        text = f"{text.split('()')[0]} has no argument {text.rpartition(' ')[2]}"
    return NeuronError(text, located(last.tb_frame.f_code.co_filename, last.tb_lineno))
