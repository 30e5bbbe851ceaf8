"""Compile with the real TPU compiler and without a TPU, in a small pool of children.

The caller's process never loads libtpu. It hands an exported program to a child process, so that a
compiler that crashes, hangs or eats the memory ends only that child. A child that has done its work
waits for the next program of its kind: starting one takes about a second.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernels.machines import cache, optional
from kernels.machines.checks import positive
from kernels.machines.child import Child, ChildError, Spares, how, python
from kernels.machines.compat import libtpu
from kernels.machines.compat.libtpu import Dump
from kernels.machines.exporting import ExportedProgram
from kernels.machines.hlo import Module, parse
from kernels.machines.tpu import chips
from kernels.machines.tpu.diagnose import TpuCompileError, buffers_of, disk, overflowing, translate
from kernels.machines.tpu.export import export

TIMEOUT = 300.0  # seconds for one program
HOPELESS = 20.0  # seconds for a program whose blocks do not fit; the compiler may search for long
CROWDED = 3  # times the limit that a program may take where others have the processor
IDLE = 0.1  # of its time: a child that works less than this is not crowded out but hangs
STARTUP = 60.0  # seconds that a child may take to start, on a busy machine
SPARE = 1 << 18  # bytes free on a disk that is taken to be full
PATIENCE = 2.0  # seconds after which a wait is shown
CHILDREN = "KERNELS_TPU_CHILDREN"  # environment variable: how many children compile side by side
DUMPS, LOGS = "dumps", "logs"  # the parts of a child's folder
WORKER = str(Path(__file__).with_name("worker.py"))
# The variables that a child's libraries read: a child serves those that have the same ones.
READ = ("JAX_", "LD_", "LIBTPU_", "PYTHON", "TF_", "TPU_", "XLA_")

# What decides on an answer beside the question: another text of these asks the compiler anew.
MAKERS = tuple(
    Path(__file__).parents[1] / name
    for name in (
        *("base.py", "exporting.py", "compat/libtpu.py"),
        *("tpu/diagnose.py", "tpu/pool.py", "tpu/worker.py"),
    )
)

# Flags that the installed libtpu refused, of those that kernels.machines.compat.libtpu has.
_dropped: set[str] = set()
_spares = Spares()


@dataclass(frozen=True)
class Memory:
    """Bytes of HBM that a compiled program takes on each chip, by what they are for."""

    arguments: int
    results: int
    aliased: int
    temporaries: int
    code: int

    @property
    def total(self) -> int:
        """Bytes in HBM at once; a result that shares an argument's memory counts once."""
        return self.arguments + self.results - self.aliased + self.temporaries + self.code


@dataclass(frozen=True)
class TpuProgram:
    """A program compiled for a chip. Nothing of it was measured.

    Args:
        name: of the program.
        chip: one of CHIPS.
        memory: bytes in HBM, of each chip.
        cost: XLA's cost analysis (flops, bytes accessed, optimal_seconds …); it knows nothing
            of a Pallas call that brings no pl.CostEstimate.
        hlo: the optimised HLO text.
        executable: what a TPU VM could load, or None where it was not asked for or is not to be
            had.
        seconds: the compiler's wall time.
        libtpu: its version.
        dumps: what the compiler wrote of its kernels, where that was asked for.
        mesh: axes and sizes of the chips that share it, each of which runs this same program on
            its part; () for one chip.
    """

    name: str
    chip: str
    memory: Memory
    cost: Mapping[str, float] = field(repr=False)
    hlo: str = field(repr=False)
    executable: bytes | None = field(repr=False)
    seconds: float
    libtpu: str
    dumps: tuple[Dump, ...] = field(default=(), repr=False, compare=False)
    mesh: tuple[tuple[str, int], ...] = ()

    @cached_property
    def module(self) -> Module:
        """The optimised HLO, read."""
        return parse(self.hlo)

    @property
    def optimal_seconds(self) -> float | None:
        """XLA's own estimate; None where a Pallas call without a cost estimate hides in it."""
        seconds = self.cost.get("optimal_seconds")
        hidden = any(i.is_kernel and not libtpu.has_cost(i.config) for i in self.module.run)
        return seconds if seconds and seconds > 0 and not hidden else None


def dropped() -> frozenset[str]:
    """The flags that the installed libtpu was found not to have."""
    return frozenset(_dropped)


def libtpu_version() -> str:
    """The version of the installed libtpu; MissingPackage says how to install it."""
    if not optional.available("libtpu"):
        optional.require("libtpu", "compiling for a TPU (the wheel is for Linux on x86-64)")
    try:
        return version("libtpu")
    except PackageNotFoundError:
        return "unknown"


def compile(  # its public name; the builtin is not used in this module
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = TIMEOUT,
    executable: bool = True,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    **options: Any,
) -> TpuProgram:
    """Compile `function(*args, **options)` for `chip` ahead of time, in a child process.

    Args:
        function: kernels inside are taken as compiled, whatever they do on this machine.
        args: arrays or jax.ShapeDtypeStruct, of the whole arrays.
        chip: one of CHIPS.
        timeout: seconds.
        executable: whether to keep what a TPU VM could load.
        mesh: axis name → size, such as {"x": 16, "y": 16}, for several chips.
        in_specs, out_specs: a jax.sharding.PartitionSpec for each argument and result, as
            jax.shard_map takes them; what they leave out, the partitioner chooses.
        options: any other keyword argument is the function's own: arrays, and what is fixed when
            it is traced, such as causal=True. One that goes by a name above: functools.partial.

    Raises:
        TpuCompileError: for what the compiler refuses, a timeout, a child that died, a full disk.
        ValueError: for an unknown chip, a mesh or specs that do not fit, or a kernel that insists
            on being interpreted.
        MissingPackage: without libtpu.
    """
    libtpu_version()
    specs = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
    program = export(function, *args, chip=chip, **specs, **options)
    return compile_program(program, timeout=timeout, executable=executable)


def compile_program(program: ExportedProgram, **options: Any) -> TpuProgram:
    """Compile one exported program; options as in compile_all. Raises TpuCompileError."""
    [result] = compile_all([program], **options)
    if isinstance(result, TpuCompileError):
        raise result
    return result


def compile_all(
    programs: Sequence[ExportedProgram],
    *,
    purposes: Collection[str] = (),
    executable: bool = False,
    timeout: float = TIMEOUT,
    progress: bool = True,
) -> list[TpuProgram | TpuCompileError]:
    """Compile several programs in a small pool of children, each of which starts libtpu once; in
    order, what each became or why it did not: it never raises for one.

    Args:
        programs: of any chips.
        purposes: what the compiler shall dump, of "schedule" and "profile".
        executable: whether to keep what a TPU VM could load.
        timeout: seconds for each program.
        progress: show a bar on stderr when it takes long and stderr is a terminal.
    """
    results: dict[int, TpuProgram | TpuCompileError] = {}
    for index, result in compile_each(
        programs, purposes=purposes, executable=executable, timeout=timeout, progress=progress
    ):
        results[index] = result
    return [results[i] for i in range(len(programs))]


def compile_each(
    programs: Iterable[ExportedProgram],
    *,
    purposes: Collection[str] = (),
    executable: bool = False,
    timeout: float = TIMEOUT,
    progress: bool = True,
) -> Iterator[tuple[int, TpuProgram | TpuCompileError]]:
    """As compile_all, but yield (index, result) as soon as one is there, in any order. `programs`
    may be a generator; the next one is made while the children are busy."""
    pool = _Pool(programs, tuple(purposes), executable, timeout, libtpu_version())
    with _shown(programs, progress) as advance, contextlib.closing(pool):
        for index, result in pool.run():
            advance()
            yield index, result


def close() -> None:
    """End the compilers that wait for another program; the next program starts one anew."""
    _spares.close()


class _Pool:
    """At most a few children, fed from one queue of programs."""

    def __init__(
        self,
        programs: Iterable[ExportedProgram],
        purposes: tuple[str, ...],
        executable: bool,
        timeout: float,
        version: str,
    ) -> None:
        positive("timeout", timeout)
        self.purposes = purposes
        self.source: Iterator[ExportedProgram] | None = iter(programs)
        self.programs: list[ExportedProgram] = []
        self.executable, self.timeout, self.version = executable, timeout, version
        self.pending: deque[int] = deque()
        self.known: deque[tuple[int, TpuProgram | TpuCompileError]] = deque()
        self.compilers: list[_Compiler] = []
        self.selector = selectors.DefaultSelector()
        limit = os.environ.get(CHILDREN, "")
        self.limit = int(limit) if limit.isdigit() and int(limit) else 2

    def run(self) -> Iterator[tuple[int, TpuProgram | TpuCompileError]]:
        self._next()
        while self.known or self.pending or self.compilers:
            while self.known:
                yield self.known.popleft()
            try:
                self._feed()
            except OSError as error:
                failed = [*self.pending, *(c.job for c in self.compilers if c.job is not None)]
                self.pending.clear()
                self.close()
                while self._next():
                    failed += self.pending
                    self.pending.clear()
                yield from self.known
                for index in failed:
                    yield index, disk(error)
                return
            if not self.pending:
                self._next()  # to have one ready when a child is
            wait = min((c.deadline for c in self.compilers), default=0) - time.monotonic()
            ready = {key.data for key, _ in self.selector.select(max(wait, 0) + 0.05)}
            for compiler in list(self.compilers):
                if compiler in ready:
                    yield from self._hear(compiler)
                if compiler in self.compilers and self._is_late(compiler):
                    assert compiler.job is not None  # of what has no program nobody waits
                    index, text = compiler.job, compiler.child.stderr()
                    self._drop(compiler)
                    yield index, self._late(index, text)

    def _hear(self, compiler: _Compiler) -> Iterator[tuple[int, TpuProgram | TpuCompileError]]:
        """What a child has to say, or how it died."""
        began = compiler.child.started
        for answer in compiler.child.answers():
            job, compiler.job = compiler.job, None
            assert job is not None  # an answer is to a question
            result = self._collect(compiler, job, answer)
            if isinstance(result, TpuProgram):  # a refusal names a line, and is quick
                cache.TPU.put(self._key(self.programs[job]), result)
            yield job, result
        if compiler.child.ended:
            yield from self._bury(compiler)
        elif compiler.job is not None and compiler.child.started and not began:
            compiler.deadline = time.monotonic() + self._limit(compiler.job)
            compiler.before = compiler.child.worked()

    def _is_late(self, compiler: _Compiler) -> bool:
        """Whether its program has had its time: on the clock, and as long as others had the
        processor instead, of processor time too. So a busy machine estimates as an idle one does.
        """
        over = time.monotonic() - compiler.deadline
        if compiler.job is None or over <= 0:
            return False
        limit, now = self._limit(compiler.job), compiler.child.worked()
        if compiler.before is None or now is None or over >= (CROWDED - 1) * limit:
            return True
        worked = now - compiler.before
        return worked >= limit or worked < IDLE * (limit + over)

    def _limit(self, index: int) -> float:
        """Seconds for a program."""
        hopeless = overflowing(self.programs[index]) is not None
        return min(self.timeout, HOPELESS) if hopeless else self.timeout

    def _late(self, index: int, text: str) -> TpuCompileError:
        """What to say of a program that took too long."""
        program, seconds = self.programs[index], self._limit(index)
        message = (
            f"the compiler had not finished {program.name} for {program.chip} after {seconds:g} s"
        )
        error = None if seconds == self.timeout else overflowing(program)
        if error is None:
            return TpuCompileError("timeout", message, text, seconds=seconds)
        error.message = f"{error.message} ({message})"
        error.original, error.seconds = text, seconds
        return error

    def _next(self) -> bool:
        """Take the caller's next program that has to be compiled; False where there is none."""
        for program in self.source or ():
            index = len(self.programs)
            self.programs.append(program)
            if known := cache.TPU.get(self._key(program)):
                self.known.append((index, known))
            else:
                self.pending.append(index)
                return True
        self.source = None
        return False

    def _key(self, program: ExportedProgram) -> str:
        """Of the compiler's answer: what it is asked, what it reads beside that, what reads it."""
        # Whichever line asks for it, which only its HLO's metadata tells, and with whatever values.
        question = self._question(program)
        question["program"] = program.fingerprint.partition(" ")[0] or program.data
        return cache.digest(
            cache.code(MAKERS),
            (self.version, version("jax"), version("jaxlib")),
            [s for s in sorted(_settings(self.purposes, _dropped).items()) if "PYTHON" not in s[0]],
            program.name,
            *question.values(),
        )

    def _question(self, program: ExportedProgram) -> dict[str, Any]:
        return {
            "topology": chips.topology(program.chip, dict(program.mesh) or None),
            "mesh": dict(program.mesh),
            "program": program.data,
            "row_major": program.row_major,
            "donated": program.donated,
            "executable": self.executable,
        }

    def _feed(self) -> None:
        """Give every idle child a program; take another child where programs wait for one."""
        for compiler in list(self.compilers):
            if compiler.job is None:
                if self.pending or self._next():
                    self._submit(compiler)
                else:
                    self._drop(compiler)
        while len(self.compilers) < self.limit and (self.pending or self._next()):
            compiler = _Compiler.get(self.purposes)
            self.compilers.append(compiler)
            self.selector.register(compiler.child, selectors.EVENT_READ, compiler)
            self._submit(compiler)

    def _submit(self, compiler: _Compiler) -> None:
        index = self.pending.popleft()
        program = self.programs[index]
        compiler.clear()
        compiler.before = None
        compiler.job, compiler.deadline = index, time.monotonic() + self.timeout + STARTUP
        compiler.child.send(self._question(program))

    def _collect(
        self, compiler: _Compiler, index: int, answer: dict | ChildError
    ) -> TpuProgram | TpuCompileError:
        program = self.programs[index]
        if isinstance(answer, ChildError):
            return TpuCompileError("other", f"the compiler's answer was lost: {answer}")
        if "error" in answer:
            compiler.clear()
            error = translate(answer["error"])
            if error.kind == "vmem" and not error.buffers:
                error = translate(answer["error"], buffers=buffers_of(program, answer["error"]))
            error.seconds = answer["seconds"]
            return error
        memory = answer["memory"]
        try:
            return TpuProgram(
                name=program.name,
                chip=program.chip,
                memory=Memory(
                    arguments=memory["argument"],
                    results=memory["output"],
                    aliased=memory["alias"],
                    temporaries=memory["temp"],
                    code=memory["generated_code"],
                ),
                cost=answer["cost"],
                hlo=answer["hlo"],
                executable=answer["executable"],
                seconds=answer["seconds"],
                libtpu=self.version,
                dumps=compiler.dumps() if "schedule" in self.purposes else (),
                mesh=program.mesh,
            )
        except OSError as error:
            return disk(error)
        finally:
            compiler.clear()

    def _bury(self, compiler: _Compiler) -> Iterator[tuple[int, TpuCompileError]]:
        """A child ended by itself: begin again without a flag it lacks, or say how it died."""
        index, text, code = compiler.job, compiler.child.stderr(), compiler.child.process.returncode
        full = compiler.disk_is_full()  # then stderr is cut short too
        self._drop(compiler)
        flag = libtpu.unknown_flag(text)
        if flag in libtpu.names(self.purposes) and flag not in compiler.without:
            _dropped.add(flag)
            if index is not None:
                self.pending.appendleft(index)
            return
        if index is None:
            return
        if compiler.spare and not compiler.child.started:
            self.pending.appendleft(index)  # it died waiting, and not of this program
            return
        program = self.programs[index]
        if full or "No space left on device" in text:
            yield index, disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), text)
            return
        why = libtpu.profile_abort(text)
        if why:
            message = f"the compiler's static profile gave up on {program.name}: {why}"
        elif code == -signal.SIGKILL:
            message = (
                f"the compiler's process was killed while it compiled {program.name} for "
                f"{program.chip}; most often the machine ran out of memory"
            )
        else:
            message = f"the compiler crashed on {program.name} for {program.chip} ({how(code)})"
        error = TpuCompileError("crashed", message, text)
        if why:  # it will again
            cache.TPU.put(self._key(program), error)
        yield index, error

    def _drop(self, compiler: _Compiler) -> None:
        """Let go of a child: for the next caller where it waits for a program, else for good."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(compiler.child)
        self.compilers.remove(compiler)
        _spares.keep(compiler.kind, compiler.child)

    def close(self) -> None:
        for compiler in list(self.compilers):
            self._drop(compiler)
        self.selector.close()


class _Compiler:
    """A child that holds libtpu, while it is this pool's. Children of one `kind` do the same;
    `without` are flags that it was started without; `spare`: whether another caller had it."""

    def __init__(self, child: Child, kind: Hashable, without: frozenset[str], spare: bool) -> None:
        self.child, self.kind, self.without, self.spare = child, kind, without, spare
        assert child.folder is not None  # `get` makes one for each
        self.folder = child.folder
        self.job: int | None = None
        self.deadline = 0.0
        self.before: float | None = None

    @classmethod
    def get(cls, purposes: Collection[str]) -> _Compiler:
        """One that waits for work, or a new one."""
        without = frozenset(_dropped)  # another child may find out more meanwhile
        kind = (WORKER, *sorted(_settings(purposes, without).items()))
        if spare := _spares.take(kind):
            return cls(spare, kind, without, spare=True)
        folder = Path(tempfile.mkdtemp(prefix="kernels-tpu-"))
        try:
            for part in (DUMPS, LOGS):
                (folder / part).mkdir()
            environment = dict(os.environ) | libtpu.environment(folder / DUMPS, purposes, without)
            environment["TMPDIR"] = str(folder / LOGS)  # where libtpu leaves what it logs
            # These are meant for the caller's CPU, and libtpu refuses some.
            environment.pop("XLA_FLAGS", None)
            child = Child(python(WORKER), environment=environment, folder=folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(child, kind, without, spare=False)

    def dumps(self) -> tuple[Dump, ...]:
        """What the compiler wrote of the last program."""
        return tuple(libtpu.dumps(self.folder / DUMPS))

    def clear(self) -> None:
        """Free the disk of it; the next program's must not be taken for this one's."""
        for path in (self.folder / DUMPS).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def disk_is_full(self) -> bool:
        """Whether there is no room left where it writes."""
        return shutil.disk_usage(self.folder).free < SPARE


def _settings(purposes: Collection[str], without: Collection[str]) -> dict[str, str]:
    """The variables that a child's libraries read."""
    read = {k: v for k, v in os.environ.items() if k.startswith(READ) and k != "XLA_FLAGS"}
    return read | libtpu.environment(Path("{}"), purposes, without)


@contextlib.contextmanager
def _shown(programs: Iterable[ExportedProgram], progress: bool) -> Iterator[Callable[[], None]]:
    """Yield a function to call for each finished program; draws a bar once it takes long."""
    if not (progress and sys.stderr.isatty()):
        yield lambda: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    known = programs if isinstance(programs, Sequence) else ()
    what = known[0].name if len(known) == 1 else "programs"
    on = ", ".join(sorted({p.chip for p in known}))
    bar = Progress(
        TextColumn(f"compiling {what} for {on or 'TPU'}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=len(known) or None)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
