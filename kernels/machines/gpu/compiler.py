"""Compile with the real compilers for GPUs and without a GPU, in a child process."""

import difflib
import math
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernels.machines import cache
from kernels.machines.checks import fail, one_of, positive
from kernels.machines.child import Child, ChildDied, ChildError, ChildLate, Spares, how, python
from kernels.machines.compat import xla_gpu
from kernels.machines.exporting import ExportedProgram
from kernels.machines.gpu import chips, toolchain
from kernels.machines.gpu.errors import GpuCompileError, first_line, overflow, translate
from kernels.machines.gpu.export import export
from kernels.machines.gpu.kernel import GpuKernel
from kernels.machines.gpu.operations import left_by_triton
from kernels.machines.hlo import Module, parse

TIMEOUT = 120.0  # seconds for one program
WORKER = str(Path(__file__).with_name("worker.py"))
FORMS = ("library", "triton", "emitted")
CALL = f'custom_call_target="{xla_gpu.MOSAIC}"'
# What decides on an answer beside the question: another text of these asks the compiler anew.
MAKERS = tuple(
    Path(__file__).parents[1] / name
    for name in ("exporting.py", "compat/xla_gpu.py", "gpu/toolchain.py", "gpu/worker.py")
)
_spares = Spares(most=2)


@dataclass(frozen=True)
class Tile:
    """The tile of a matrix product that Triton multiplies, as XLA's autotuner describes it.

    Args:
        m, n, k: rows, columns and depth that a block takes at a time.
        stages: tiles in flight.
        warps: of a block.
        split_k: blocks that share the depth of one tile of the result.
    """

    m: int
    n: int
    k: int
    stages: int = 4
    warps: int = 8
    split_k: int = 1


@dataclass(frozen=True)
class Pass:
    """A pass that changed the program.

    Args:
        name: of the pass.
        pipeline: that it is part of.
        before, after: the program in HLO, without what says where it came from.
    """

    name: str
    pipeline: str
    before: str = field(repr=False)
    after: str = field(repr=False)

    @property
    def diff(self) -> str:
        """The lines that went and those that came, without the backend's configuration."""
        old, new = xla_gpu.brief(self.before), xla_gpu.brief(self.after)
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
        return "\n".join(
            f"{line[0]} {line[1:].strip()}"
            for line in lines
            if not line.startswith(("---", "+++", "@@")) and line[1:].strip()
        )


@dataclass(frozen=True)
class Thunk:
    """A step of the compiled program: a kernel, a call of a library, a copy, a collective.

    Args:
        kind: as XLA calls it, such as CustomKernel, Gemm, CublasLtMatmul.
        name: of the kernel, or of what is called.
        grid, threads: of a kernel, in three directions; () of anything else.
        shared_bytes: of a kernel, that the launch gives each block.
    """

    kind: str
    name: str
    grid: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    shared_bytes: int = 0


@dataclass(frozen=True)
class BufferValue:
    """A value of the program, at its place in a buffer.

    Args:
        name: of the instruction that makes it.
        offset, size: bytes.
        shape: in HLO.
    """

    name: str
    offset: int
    size: int
    shape: str


@dataclass(frozen=True)
class Buffer:
    """Memory that the program has from its beginning to its end.

    Args:
        number: XLA's.
        size: bytes.
        purpose: in XLA's words: a parameter, a result, a constant, temporary.
        values: what lies in it; two that overlap are never alive at once.
    """

    number: int
    size: int
    purpose: str
    values: tuple[BufferValue, ...] = field(repr=False)


@dataclass(frozen=True)
class Life:
    """When a value is alive.

    Args:
        name: of the instruction that makes it, and {0} and so on for a part of a tuple.
        size: bytes; 0 where it has no memory of its own.
        first, last: places in the order of the program; that of a result goes one beyond its end.
    """

    name: str
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class GpuProgram:
    """A program compiled for a GPU. Nothing of it was measured.

    Args:
        name: of the function.
        chip: one of CHIPS.
        hlo: the optimised program.
        passes: those that changed it, in their order.
        thunks: its steps, in their order.
        buffers: its memory.
        kernels: those that are compiled with it; a library brings its own.
        llvm: the LLVM IR of the kernels that XLA emitted itself.
        memory: bytes by what they are for: argument, output, alias, temp, generated_code.
        seconds: of the compiler.
        mesh: axes and sizes of the GPUs that share it; () for one.
        triton: the TritonIR of the kernels that XLA has Triton write.
        graphs: the stretches of steps that are recorded as a CUDA graph and launched as one.
        order: the instructions as they are scheduled.
        lives: when each value is alive, in places of that order.
    """

    name: str
    chip: str
    hlo: str = field(repr=False)
    passes: tuple[Pass, ...] = field(repr=False)
    thunks: tuple[Thunk, ...]
    buffers: tuple[Buffer, ...] = field(repr=False)
    kernels: tuple[GpuKernel, ...]
    llvm: tuple[str, ...] = field(repr=False)
    memory: Mapping[str, int] = field(repr=False)
    seconds: float
    mesh: tuple[tuple[str, int], ...] = ()
    triton: tuple[str, ...] = field(repr=False, default=())
    graphs: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = field(repr=False, default=())
    lives: tuple[Life, ...] = field(repr=False, default=())

    @cached_property
    def module(self) -> Module:
        """The optimised program, read."""
        return parse(self.hlo)

    @property
    def entry(self) -> str:
        """The optimised program's entry, without the backend's configuration."""
        return "ENTRY" + xla_gpu.brief(self.hlo).split("\nENTRY")[-1].rstrip()

    def changed_by(self, name: str) -> Pass:
        """The pass of that name that changed the program, the first where there are several.

        Args:
            name: of the pass.

        Raises:
            ValueError: where it changed nothing.
        """
        by_name: dict[str, Pass] = {}
        for step in self.passes:
            by_name.setdefault(step.name, step)
        one_of("name", name, tuple(by_name))
        return by_name[name]

    def kernel(self, name: str = "") -> GpuKernel:
        """The kernel of that name, or the only one.

        Args:
            name: of the kernel; may be left out where there is one.

        Raises:
            ValueError: where there is none of that name, or several.
        """
        if not name and len(self.kernels) == 1:
            return self.kernels[0]
        by_name = {kernel.name: kernel for kernel in self.kernels}
        one_of("name", name, by_name)
        return by_name[name]


def compile(  # its public name; the builtin is not used in this module
    function: Callable[..., Any],
    *args: Any,
    chip: str = "h100",
    gemm: str = "library",
    tile: Tile | tuple[int, ...] | None = None,
    passes: bool = True,
    timeout: float = TIMEOUT,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    options: Mapping[str, Any] | None = None,
) -> GpuProgram:
    """Compile `function(*args)` for `chip`, in a child process; nothing runs.

    Args:
        function: Pallas kernels inside are taken as compiled, whatever they do on this machine.
        args: arrays or jax.ShapeDtypeStruct, of the whole arrays.
        chip: one of CHIPS.
        gemm: what becomes of a matrix product of XLA's: "library" calls cuBLAS, which is what XLA
            does with most of them on a GPU; "triton" makes a kernel with this `tile`; "emitted"
            makes one of XLA's own loops.
        tile: for gemm="triton": a Tile, or its (m, n, k) and more. XLA would choose it by trying
            it out on the GPU; there is none, so it has to be given.
        passes: whether to keep the program before and after each pass.
        timeout: seconds.
        mesh: axis name → size, such as {"x": 8}, for several GPUs of one machine.
        in_specs, out_specs: a jax.sharding.PartitionSpec for each argument and result, as
            jax.shard_map takes them; what they leave out, the partitioner chooses.
        options: more of XLA's compiler options.

    Returns:
        The program, with its passes, thunks, buffers and kernels.

    Raises:
        GpuCompileError: for what a compiler refuses, a timeout, a child that died.
        ValueError: for an unknown chip or form, a missing tile, or a kernel that insists on being
            interpreted.
        MissingPackage: without the plugin or NVIDIA's tools.
    """
    chips.chip(chip)
    one_of("gemm", gemm, FORMS)
    if gemm == "triton" and tile is None:
        fail("tile", tile, 'with gemm="triton" a gpu.Tile, such as gpu.Tile(128, 128, 64)')
    if gemm != "triton" and tile is not None:
        fail("tile", tile, f'None with gemm="{gemm}": only "triton" takes one')
    wanted = tile if isinstance(tile, Tile) or tile is None else Tile(*tile)
    _check_tools()
    program = export(function, *args, chip=chip, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    names = ("block_m", "block_n", "block_k", "num_stages", "num_warps", "split_k")
    chosen = xla_gpu.gemm(gemm, dict(zip(names, astuple(wanted))) if wanted else {})
    compiled = compile_program(
        program, options=chosen | dict(options or {}), passes=passes, timeout=timeout
    )
    if wanted:
        _check_taken(wanted, compiled)
    return compiled


def compile_program(
    program: ExportedProgram,
    *,
    options: Mapping[str, Any] | None = None,
    passes: bool = False,
    timeout: float = TIMEOUT,
) -> GpuProgram:
    """Compile one exported program, as `compile` does; options=None calls libraries of products."""
    positive("timeout", timeout)
    _check_tools()
    question = {
        "program": program.data,
        "spec": xla_gpu.target(chips.chip(program.chip)),
        "mesh": dict(program.mesh),
        "options": dict(xla_gpu.gemm("library", {}) if options is None else options),
        "passes": passes,
    }
    same = question | {"program": program.fingerprint or program.data}  # whichever line asks
    made_by = toolchain.stamps(), version("jax"), version("jaxlib")
    key = cache.digest(cache.code(MAKERS), *made_by, *same.items())
    if known := cache.GPU.get(key):
        return _read(program, known)
    # Once Mosaic GPU has compiled for one chip, it cannot for another: each has a child of its own.
    chip = program.chip if program.mosaic else ""
    kind = (WORKER, chip, *sorted(toolchain.environment().items()))
    compiler = _spares.take(kind) or _start()
    try:
        answer = compiler.ask(question, timeout)
    except ChildLate:
        raise GpuCompileError(
            "timeout",
            f"the compiler had not finished {program.name} for {program.chip} after {timeout:g} s",
            seconds=timeout,
        ) from None
    except ChildDied as died:
        raise _death(program, died) from None
    except ChildError as error:
        compiler.close()
        raise GpuCompileError("other", f"the compiler's answer was lost: {error}") from None
    said = compiler.stderr()
    # Mosaic GPU writes down a kernel when it compiles it, and one process compiles it only once.
    if compiler.asked > 1 and len(answer.get("mosaic", ())) < answer.get("hlo", "").count(CALL):
        compiler.close()
        return compile_program(program, options=options, passes=passes, timeout=timeout)
    _spares.keep(kind, compiler)
    if "error" in answer:
        refused = translate(answer["error"], said)
        refused.seconds = answer["seconds"]
        raise refused
    cache.GPU.put(key, answer)
    return _read(program, answer)


def close() -> None:
    """End the compiler that waits for another program; the next program starts one anew."""
    _spares.close()


def _check_tools() -> None:
    for name in (toolchain.PLUGIN, toolchain.PTXAS, toolchain.LIBDEVICE):
        toolchain.part(name, "compiling for a GPU")


def _check_taken(tile: Tile, compiled: GpuProgram) -> None:
    """Refuse a program in which XLA did without the tile that it was given, as 0.12 does silently.
    Triton keeps the tiles of both factors in shared memory, those of all stages."""
    limit = chips.chip(compiled.chip).shared_bytes_per_block
    for dot in left_by_triton(compiled.module):
        left, right = (a.bytes // math.prod(a.shape) for a in dot.operands)
        asked = tile.stages * tile.k * (tile.m * left + tile.n * right)
        refused = (
            overflow(asked, limit)
            if asked > limit
            else GpuCompileError("other", f"Triton does not take {tile}, and XLA does not say why")
        )
        refused.seconds = compiled.seconds
        raise refused


def _start() -> Child:
    folder = Path(tempfile.mkdtemp(prefix="kernels-gpu-"))
    try:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XLA_", "CUDA_", "MOSAIC_", "LD_PRELOAD"))
        }
        environment |= toolchain.environment()
        environment |= {"TMPDIR": str(folder), "MOSAIC_GPU_DUMP_TO": str(folder / "mosaic")}
        plugin = str(toolchain.part(toolchain.PLUGIN, "compiling for a GPU"))
        return Child(python(WORKER, plugin), environment=environment, folder=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _death(program: ExportedProgram, died: ChildDied) -> GpuCompileError:
    """What to say of a compiler that ended its process."""
    said = died.stderr
    for known in (
        r"(Shared memory size limit exceeded[^\n]*)",
        r"(?:F\d{4} [^\]]*\] |Check failed: |LLVM ERROR: )([^\n]*)",
    ):
        if cause := re.search(known, said):
            major, minor = chips.chip(program.chip).capability
            known_error = translate(f"{cause[1]} for sm_{major}{minor}")
            if known_error.kind != "other":
                known_error.original = said
                return known_error
            why = f": {first_line(cause[1])}"
            break
    else:
        why = ""
    by = "Mosaic GPU" if "mosaic" in said.lower() else "the compiler"
    message = f"{by} ended its process on {program.name} for {program.chip} ({how(died.status)})"
    if died.status == -signal.SIGKILL:
        why = "; most often the machine ran out of memory"
    return GpuCompileError("crashed", message + why, said)


def _read(program: ExportedProgram, answer: dict) -> GpuProgram:
    steps = tuple(
        Thunk(kind, name, **details) for kind, name, details in xla_gpu.thunks(answer["thunks"])
    )
    names = [step.name for step in steps]

    def place(name: str) -> int:  # XLA compiles kernels side by side, and dumps them as they come
        return names.index(name) if name in names else len(names)

    buffers = tuple(
        Buffer(number, size, purpose, tuple(BufferValue(*value) for value in values))
        for number, size, purpose, values in xla_gpu.allocations(answer["buffers"])
    )
    sizes = {value.name: value.size for buffer in buffers for value in buffer.values}
    order, lives = xla_gpu.lives(answer["lives"])
    return GpuProgram(
        name=program.name,
        chip=program.chip,
        hlo=answer["hlo"],
        passes=tuple(Pass(name, line, a, b) for line, name, a, b in answer["passes"]),
        thunks=steps,
        buffers=buffers,
        kernels=tuple(sorted(_kernels(program.chip, steps, answer), key=lambda k: place(k.name))),
        llvm=tuple(sorted(answer["llvm"], key=lambda text: place(xla_gpu.defined(text)))),
        memory=answer["memory"],
        seconds=answer["seconds"],
        mesh=program.mesh,
        triton=tuple(answer["triton"]),
        graphs=tuple(xla_gpu.graphs(answer["graphs"])),
        order=tuple(order),
        lives=tuple(
            # The list of a tuple's parts has memory too, of a few bytes: it is none of the values.
            Life(name, 0 if f"{name}{{0}}" in sizes else sizes.get(name, sizes.get(raw, 0)), *when)
            for raw, *when in lives
            for name in [raw.removesuffix("{}")]
        ),
    )


def _kernels(chip: str, steps: tuple[Thunk, ...], answer: dict) -> list[GpuKernel]:
    """Each kernel with the launch that the program makes of it."""
    launches = {step.name: step for step in steps if step.grid}
    kernels = []
    for ptx in answer["ptx"]:
        for name in re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.M):
            kernels.append(_kernel(name, chip, ptx, launches.get(name) or Thunk("", name)))
    for ptx, details in answer["mosaic"]:
        if entry := re.search(r"^\.visible \.entry (\w+)\(", ptx, re.M):
            name = entry[1].removesuffix("_mosaic_gpu_kernel")
            kernels.append(_kernel(name, chip, ptx, Thunk("CustomCall", name, **details)))
    return kernels


def _kernel(name: str, chip: str, ptx: str, launch: Thunk) -> GpuKernel:
    threads = launch.threads
    if not threads and (bound := re.search(r"^\.(?:req|max)ntid ([\d, ]+)", ptx, re.M)):
        threads = tuple(map(int, bound[1].split(",")))
    return GpuKernel(name, chip, ptx, launch.grid, math.prod(threads), launch.shared_bytes)
