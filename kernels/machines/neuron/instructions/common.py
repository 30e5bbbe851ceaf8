"""What all instructions ask of their operands, and the enumerations that kernels hand them."""

from enum import Enum, IntEnum
from types import ModuleType

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import PSUM, View
from kernels.machines.neuron.operations import resolve
from kernels.machines.neuron.tensors import Beyond

GPSIMD_START = 150  # cycles of a GpSimd program's start (nki.isa.iota, affine_select)
READ_OUT = 64  # cycles more to write an accumulator out (nki.isa.activation_reduce)

engine = Enum("engine", "unknown tensor scalar gpsimd dma vector sync", start=0)
# What an instruction does with its engine's accumulators.
reduce_cmd = Enum("reduce_cmd", "idle reset reduce reset_reduce load_reduce", start=0)
dge_mode = Enum("dge_mode", "unknown swdge hwdge none", start=0)  # who makes a DMA's descriptors
oob_mode = Enum("oob_mode", "error skip", start=0)  # what an index out of bounds does
matmul_perf_mode = Enum("matmul_perf_mode", {"none": "none", "double_row": "double_row"})
nc_version = IntEnum("nc_version", {"gen2": 2, "gen3": 3, "gen4": 4})
dma_engine = Enum("dma_engine", "dma gpsimd_dma")  # who moves between two cores
ENUMERATIONS = {
    kind.__name__: kind
    for kind in (dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd)
}


def constants(name: str) -> ModuleType:
    """The vendor's module `name` that holds the enumerations."""
    module = ModuleType(name)
    vars(module).update(ENUMERATIONS)
    return module


# The same under names that the arguments of instructions, `engine` and `reduce_cmd`, do not hide.
UNKNOWN, TENSOR, VECTOR = engine.unknown, engine.tensor, engine.vector
SCALAR, GPSIMD = engine.scalar, engine.gpsimd
IDLE, RESET, REDUCE = reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce
RESET_REDUCE, LOAD_REDUCE = reduce_cmd.reset_reduce, reduce_cmd.load_reduce
_NAMES = {VECTOR: "Vector", SCALAR: "Scalar", GPSIMD: "GpSimd", TENSOR: "Tensor"}


def get_nc_version() -> nc_version:
    """The generation of the core that is simulated."""
    return nc_version(machine().chip.generation)


def on(what: str, chosen, *accepted: str) -> str:
    """The engine's name; the first accepted one where the kernel does not choose."""
    if chosen in (None, UNKNOWN):
        return accepted[0]
    if (name := _NAMES.get(chosen)) in accepted:
        return name
    refuse(f"{what} cannot run on {chosen}; accepted: {', '.join(accepted)}")


def tiles(what: str, **operands) -> None:
    """Refuse operands that are none."""
    for name, operand in operands.items():
        if isinstance(operand, Beyond):
            raise operand._error
        if isinstance(operand, View) and not operand.size:
            refuse(f"{what}: {name} is {operand}, which has no elements")
        if not isinstance(operand, View):
            refuse(f"{what}: {name} is a {type(operand).__name__}; accepted: a tile")


def constant(what: str, name: str, value) -> np.float32:
    """A number of the instruction's own."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
        refuse(f"{what}: {name} is {value!r}; accepted: a number or a tile [partitions, 1]")
    return np.float32(value)


def column(what: str, name: str, operand, float32: bool = False) -> View | np.float32:
    """An operand of one number for each partition, a tile, of float32 where only that will do; or
    of one for all."""
    if not isinstance(operand, View):
        return constant(what, name, operand)
    if float32:
        typed(f"{what}: {name}", operand, dtypes.float32)
    return operand


def on_gpsimd(what: str, function, dst: View, *sources: View, **options) -> None:
    """A program of the GpSimd engine, which takes a while to start; options of core.compute."""
    machine().compute("GpSimd", what, function, dst, *sources, extra=GPSIMD_START, **options)


def sized(what: str, name: str, operand: View, partitions: int, elements: int) -> None:
    """Refuse a tile of another size."""
    if machine().limits and (operand.shape[0], operand._elements) != (partitions, elements):
        refuse(f"{what}: {name} {operand}; accepted: {partitions} partitions of {elements}")


def typed(what: str, operand: View, *accepted: np.dtype) -> None:
    """Refuse a tile of another element type."""
    if machine().limits and operand.dtype not in accepted:
        names = ", ".join(map(dtypes.name, accepted))
        refuse(f"{what}: {operand} is {dtypes.name(operand.dtype)}; accepted: {names}")


def not_both_in_psum(what: str, one: View, other: View) -> None:
    """Refuse two inputs in PSUM."""
    if machine().limits and one.buffer == other.buffer == PSUM:
        refuse(f"{what}: {one} and {other}; only one of the inputs may be in PSUM")


def needs(what: str, generation: int) -> None:
    """Refuse what an older core does not have."""
    core = machine()
    if core.limits and core.chip.generation < generation:
        chips = {3: "trn2", 4: "trn3"}[generation]
        refuse(
            f"{what} needs NeuronCore-v{generation} ({chips}); {core.chip.name} has "
            f"NeuronCore-v{core.chip.generation}"
        )


def halves(*operands: View) -> bool:
    """Whether all have 16 bits, as a performance mode needs."""
    return all(o.dtype in dtypes.HALVES for o in operands)


def packed_in_row(*operands: View) -> bool:
    """Whether the elements of each stand side by side."""
    return all(o._stride == o.dtype.itemsize for o in operands)


IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}
REDUCERS = tuple(name for name in IDENTITY if name != "subtract")


def accumulators(where: str, view: View) -> list[np.ndarray]:
    """An engine's accumulators for the partitions of a tile, and which of them are undefined."""
    empty = np.full(128, np.nan, np.float32), np.zeros(128, bool)
    registers = machine().registers.setdefault(where, empty)
    return [every[view._start : view._start + view.shape[0]] for every in registers]


def begin(sums: np.ndarray, command, operation, name: str, initial) -> None:
    """What a command puts into accumulators before an instruction adds to them: nothing, or what an
    operation begins with, or `initial`, a number or a tile with one for each partition."""
    if command in (RESET, RESET_REDUCE):
        sums[:] = IDENTITY[operation.name]
    elif command == LOAD_REDUCE and isinstance(initial, View):
        sums[:] = machine().read(name, initial).reshape(-1)
    elif command == LOAD_REDUCE:
        sums[:] = constant("reduce", name, initial)


def reduce_last(
    where: str,
    result: View,
    numbers: np.ndarray | None,
    operation,
    out: View | None,
    command,
    initial=None,
    negate: bool = False,
) -> None:
    """Reduce what an instruction has just made into its engine's accumulators, in the same pass, if
    anybody asks for it; reading them out is a short instruction more.

    Args:
        where, result: the engine, and where the instruction put it.
        numbers: what it put there, in float32, before they were cast to the dtype of result.
        operation, command: what reduces, such as nl.add, and a reduce_cmd.
        out, negate: where the accumulators go, if anywhere, and whether negated.
        initial: what load_reduce starts from.
    """
    if out is None and command == IDLE:
        return
    core = machine()
    operation = resolve("reduce", operation)
    sums, spoilt = accumulators(where, result)
    if command not in (IDLE, REDUCE):
        spoilt[:] = False
    undefined = core.loose
    begin(sums, command, operation, "reduce_init", initial)
    if core.numbers and command in (REDUCE, RESET_REDUCE, LOAD_REDUCE):
        if core.limits and np.isnan(sums).all():
            refuse(
                "reduce_cmd.reduce: nothing was put into the accumulators; start with reset_reduce"
            )
        assert numbers is not None
        values = dtypes.wide(np.asarray(numbers)).reshape(result.shape[0], -1)
        ufunc = operation.function
        assert isinstance(ufunc, np.ufunc)
        with np.errstate(all="ignore"):
            sums[:] = ufunc(sums, ufunc.reduce(values, axis=1))
        if undefined is not None:
            spoilt |= undefined.reshape(result.shape[0], -1).any(axis=1)
    if out is not None:
        sized("reduce_res", "dst", out, result.shape[0], 1)
        fresh = core.write("reduce_res", out, -sums if negate else sums.copy())
        loose = spoilt.reshape(out.shape)
        core.mark_undefined("reduce_res", out, loose, (result,), (loose,))
        core.note(where, "reduce_res", out, (), work=READ_OUT, elements=READ_OUT, fresh=fresh)
