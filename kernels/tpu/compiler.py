"""Compile a JAX program, Pallas kernels included, with the real TPU compiler and without a TPU.

The caller's process never loads libtpu. It exports the program (StableHLO, a few kilobytes) and
hands it to a child process, so that a compiler that crashes, hangs or eats the memory ends only
that child.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kernels import optional
from kernels.compat import jax_pallas, jaxprs
from kernels.tpu import chips, undocumented, worker
from kernels.tpu.errors import TpuCompileError, overflow, translate
from kernels.tpu.lowering import abstract_device

TIMEOUT = 300.0  # seconds for one program
HOPELESS = 20.0  # seconds for a program whose blocks do not fit; the compiler may search for long
STARTUP = 60.0  # seconds that a child may take to start, on a busy machine
SPARE = 1 << 18  # bytes free on a disk that is taken to be full
PATIENCE = 2.0  # seconds after which a wait is shown
CHILDREN = "KERNELS_TPU_CHILDREN"  # environment variable: how many children compile side by side

# Flags that the installed libtpu refused; found out once in a process.
_dropped: set[str] = set()


@dataclass(frozen=True)
class Program:
    """A program exported for a chip: what a child compiles.

    data: jax.export's serialisation. jaxpr: what JAX traced. fingerprint: the same for the same
    program, whichever line of code asked for it. row_major: lay its arguments and results out row
    by row, instead of as XLA would choose. mesh: axes and sizes of the chips that share it; () for
    one chip.
    """

    name: str
    chip: str
    data: bytes = field(repr=False)
    jaxpr: Any = field(repr=False, compare=False)
    fingerprint: str = field(default="", repr=False)
    row_major: bool = False
    mesh: tuple[tuple[str, int], ...] = ()

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """Its pallas_calls as kernels.pallas.Call, in order."""
        from kernels.pallas.calls import calls_in

        return tuple(calls_in(self.jaxpr))


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
class Compiled:
    """A program compiled for a chip. Nothing of it was measured.

    memory: bytes in HBM, of each chip. cost: XLA's cost analysis (flops, bytes accessed,
    optimal_seconds …); it knows nothing of a Pallas call that brings no pl.CostEstimate.
    hlo: the optimised HLO text. executable: what a TPU VM could load, or None where it was not
    asked for or is not to be had. seconds: the compiler's wall time. libtpu: its version.
    mesh: axes and sizes of the chips that share it, each of which runs this same program on its
    part; () for one chip.
    """

    name: str
    chip: str
    memory: Memory
    cost: Mapping[str, float] = field(repr=False)
    hlo: str = field(repr=False)
    executable: bytes | None = field(repr=False)
    seconds: float
    libtpu: str
    dumps: tuple[undocumented.Dump, ...] = field(default=(), repr=False, compare=False)
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def optimal_seconds(self) -> float | None:
        """XLA's own lower bound; None where a Pallas call without a cost estimate hides in it."""
        seconds = self.cost.get("optimal_seconds")
        return seconds if seconds and seconds > 0 else None


def dropped() -> frozenset[str]:
    """The flags that the installed libtpu was found not to have."""
    return frozenset(_dropped)


def libtpu_version() -> str:
    """The version of the installed libtpu; MissingPackage says how to install it."""
    from importlib.metadata import PackageNotFoundError, version

    if not optional.available("libtpu"):
        optional.require("libtpu", "compiling for a TPU (the wheel is for Linux on x86-64)")
    try:
        return version("libtpu")
    except PackageNotFoundError:
        return "unknown"


def export(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    name: str = "",
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Program:
    """Export `function(*args)` for `chip`, without libtpu; nothing runs.

    args: arrays or jax.ShapeDtypeStruct. A kernel inside must not be interpreted (interpret=False).
    mesh, in_specs, out_specs: as in compile. Raises TpuCompileError for what JAX already knows the
    hardware to refuse, ValueError for an unknown chip or an impossible mesh, and whatever
    `function` itself raises.
    """
    import jax

    chips.topology(chip, mesh)
    optional.require("flatbuffers", "handing a program to the TPU compiler")
    named = function
    while hasattr(named, "func"):  # functools.partial
        named = named.func
    name = name or getattr(named, "__name__", "") or type(named).__name__
    with abstract_device(chip, mesh):
        jitted = jax.jit(function, **_shardings(mesh, in_specs, out_specs))
        try:
            traced = jitted.trace(*args)
        except Exception as error:
            found = translate(_text(error), source=_user_line(error))
            if found.kind == "other":
                raise
            raise found from error
        try:
            exported = jax.export.export(jitted, platforms=["tpu"])(*args)
            data = exported.serialize()
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            found = translate(_text(error))
            found.source = found.source or _primitive_line(traced.jaxpr, _text(error))
            raise found from error
    fingerprint = _fingerprint(exported.mlir_module())
    over = tuple((mesh or {}).items())
    return Program(name, chip, bytes(data), traced.jaxpr, fingerprint, mesh=over)


def _fingerprint(module: str) -> str:
    """A digest of StableHLO text without its source locations and its name."""
    lines = (line for line in module.splitlines() if not line.startswith("#loc"))
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)|(?<=^module) @\S+", "", "\n".join(lines))
    return hashlib.sha256(text.encode()).hexdigest()


def _shardings(mesh: Mapping[str, int] | None, in_specs: Any, out_specs: Any) -> dict[str, Any]:
    """Options of jax.jit that cut arguments and results over the mesh of the context."""
    import jax

    given = {"in_specs": in_specs, "out_specs": out_specs}
    given = {name: specs for name, specs in given.items() if specs is not None}
    if mesh is None:
        if given:
            raise ValueError(f"{' and '.join(given)} cut arrays over a mesh; accepted: with mesh=")
        return {}
    chips_of = jax.sharding.get_abstract_mesh()

    def leaf(value: Any) -> bool:
        return isinstance(value, jax.sharding.PartitionSpec)

    options = {}
    for name, specs in given.items():
        for spec in jax.tree.leaves(specs, is_leaf=leaf):
            if not leaf(spec):
                raise ValueError(f"{name} holds {spec!r}; accepted: jax.sharding.PartitionSpec")
        try:
            options[name.replace("specs", "shardings")] = jax.tree.map(
                lambda spec: jax.sharding.NamedSharding(chips_of, spec), specs, is_leaf=leaf
            )
        except Exception as error:  # JAX has several kinds for it
            raise ValueError(f"{name}: {error}") from error
    return options


def compile(  # its public name; the builtin is not used in this module
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = TIMEOUT,
    executable: bool = True,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Compiled:
    """Compile `function(*args)` for `chip` ahead of time, in a child process.

    args: arrays or jax.ShapeDtypeStruct, of the whole arrays; a kernel inside gets interpret=False.
    timeout: seconds. mesh: axis name → size, such as {"x": 16, "y": 16}, for several chips.
    in_specs, out_specs: a jax.sharding.PartitionSpec for each argument and result, as jax.shard_map
    takes them; what they leave out, the partitioner chooses. Raises TpuCompileError for what the
    compiler refuses, a timeout, a child that died, or a full disk; MissingPackage without libtpu;
    ValueError for an unknown chip, or a mesh or specs that do not fit.
    """
    libtpu_version()
    program = export(function, *args, chip=chip, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return compile_program(program, timeout=timeout, executable=executable)


def compile_program(program: Program, **options: Any) -> Compiled:
    """Compile one exported program; options as in compile_all. Raises TpuCompileError."""
    [result] = compile_all([program], **options)
    if isinstance(result, TpuCompileError):
        raise result
    return result


def compile_all(
    programs: Sequence[Program],
    *,
    purposes: Collection[str] = (),
    executable: bool = False,
    timeout: float = TIMEOUT,
    progress: bool = True,
) -> list[Compiled | TpuCompileError]:
    """Compile several programs in a small pool of children, each of which starts libtpu once.

    purposes: what the compiler shall dump, of "schedule" and "profile". timeout: seconds for each
    program. progress: show a bar on stderr when it takes long and stderr is a terminal.
    Returns, in order, for each program what it became or why it did not; never raises for one.
    """
    results: dict[int, Compiled | TpuCompileError] = {}
    for index, result in compile_each(
        programs, purposes=purposes, executable=executable, timeout=timeout, progress=progress
    ):
        results[index] = result
    return [results[i] for i in range(len(programs))]


def compile_each(
    programs: Iterable[Program],
    *,
    purposes: Collection[str] = (),
    executable: bool = False,
    timeout: float = TIMEOUT,
    progress: bool = True,
) -> Iterator[tuple[int, Compiled | TpuCompileError]]:
    """As compile_all, but yield (index, result) as soon as one is there, in any order.

    programs: may be a generator; the next one is made while the children are busy.
    """
    version = libtpu_version()
    with _shown(programs, progress) as advance, contextlib.ExitStack() as stack:
        try:
            # Removed whatever happens; what a dying child still writes is removed with it.
            root = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kernels-tpu-", ignore_cleanup_errors=True)
            )
        except OSError as error:
            for index, _ in enumerate(programs):
                yield index, _disk(error)
            return
        pool = _Pool(Path(root), programs, tuple(purposes), executable, timeout, version)
        stack.callback(pool.close)  # before the folder goes
        for index, result in pool.run():
            advance()
            yield index, result


class _Pool:
    """At most a few children, fed from one queue of programs."""

    def __init__(
        self,
        root: Path,
        programs: Iterable[Program],
        purposes: tuple[str, ...],
        executable: bool,
        timeout: float,
        version: str,
    ) -> None:
        self.root, self.purposes = root, purposes
        self.source: Iterator[Program] | None = iter(programs)
        self.programs: list[Program] = []
        self.executable, self.timeout, self.version = executable, timeout, version
        self.pending: deque[int] = deque()
        self.children: list[_Child] = []
        self.selector = selectors.DefaultSelector()
        limit = os.environ.get(CHILDREN, "")
        self.limit = int(limit) if limit.isdigit() and int(limit) else 2
        self.started = 0

    def run(self) -> Iterator[tuple[int, Compiled | TpuCompileError]]:
        self._next()
        while self.pending or self.children:
            try:
                self._feed()
            except OSError as error:
                failed = [*self.pending, *(c.job for c in self.children if c.job is not None)]
                self.pending.clear()
                self.close()
                while self._next():
                    failed.append(self.pending.popleft())
                for index in failed:
                    yield index, _disk(error)
                return
            if not self.pending:
                self._next()  # to have one ready when a child is
            wait = min((c.deadline for c in self.children), default=0) - time.monotonic()
            ready = {key.data for key, _ in self.selector.select(max(wait, 0) + 0.05)}
            for child in list(self.children):
                if child in ready:
                    for words in child.answers():
                        if "started" in words:
                            child.deadline = time.monotonic() + self._limit(child.job)
                        elif "done" in words or "failed" in words:
                            index, child.job = child.job, None
                            yield index, self._collect(child, index, words)
                    if child.ended:
                        yield from self._bury(child)
                        continue
                if child.job is not None and time.monotonic() > child.deadline:
                    index, text = child.job, child.stderr()
                    self._drop(child)
                    yield index, self._late(index, text)

    def _limit(self, index: int) -> float:
        """Seconds for a program."""
        hopeless = _overflow(self.programs[index]) is not None
        return min(self.timeout, HOPELESS) if hopeless else self.timeout

    def _late(self, index: int, text: str) -> TpuCompileError:
        """What to say of a program that took too long."""
        program, seconds = self.programs[index], self._limit(index)
        message = (
            f"the compiler had not finished {program.name} for {program.chip} after {seconds:g} s"
        )
        error = None if seconds == self.timeout else _overflow(program)
        if error is None:
            return TpuCompileError("timeout", message, text, seconds=seconds)
        error.message = f"{error.message} ({message})"
        error.original, error.seconds = text, seconds
        return error

    def _next(self) -> bool:
        """Take one more program from the caller; False where there is none."""
        if self.source is None:
            return False
        program = next(self.source, None)
        if program is None:
            self.source = None
            return False
        self.pending.append(len(self.programs))
        self.programs.append(program)
        return True

    def _feed(self) -> None:
        """Give every idle child a program; start another child where programs wait for one."""
        for child in list(self.children):
            if child.job is None and not child.ended:
                if self.pending or self._next():
                    self._submit(child)
                else:
                    self._drop(child)
        while len(self.children) < self.limit and (self.pending or self._next()):
            self.started += 1
            child = _Child(self.root / f"{self.started}", self.purposes)
            self.children.append(child)
            self.selector.register(child.process.stdout, selectors.EVENT_READ, child)
            self._submit(child)

    def _submit(self, child: _Child) -> None:
        index = self.pending[0]
        program = self.programs[index]
        spec = {
            "topology": chips.topology(program.chip, dict(program.mesh) or None),
            "mesh": dict(program.mesh),
            "executable": self.executable,
            "row_major": program.row_major,
        }
        (child.folder / f"{index}.json").write_text(json.dumps(spec))
        (child.folder / f"{index}.program").write_bytes(program.data)
        self.pending.popleft()
        child.submit(index, self.timeout + STARTUP)

    def _collect(self, child: _Child, index: int, words: dict) -> Compiled | TpuCompileError:
        program = self.programs[index]
        if "failed" in words:
            if words.get("errno") == errno.ENOSPC:
                return _disk(OSError(words["errno"], words["error"]))
            error = translate(words["error"])
            if error.kind == "vmem" and not error.buffers:
                error = translate(words["error"], buffers=_buffers(program, words["error"]))
            error.seconds = words.get("seconds")
            return error
        try:
            found = json.loads((child.folder / f"{index}.result").read_text())
            memory, cost = found["memory"], found["cost"]
            executable = child.folder / f"{index}.executable"
            dumps = ()
            if "schedule" in self.purposes:
                dumps = tuple(undocumented.dumps(child.folder / f"{index}.dumps"))
            return Compiled(
                program.name,
                program.chip,
                Memory(
                    memory["argument"],
                    memory["output"],
                    memory["alias"],
                    memory["temp"],
                    memory["generated_code"],
                ),
                cost,
                (child.folder / f"{index}.hlo").read_text(),
                executable.read_bytes() if found.get("executable") else None,
                found["seconds"],
                self.version,
                dumps,
                program.mesh,
            )
        except OSError as error:
            return _disk(error)
        finally:
            child.clear(index)

    def _bury(self, child: _Child) -> Iterator[tuple[int, TpuCompileError]]:
        """A child ended by itself: begin again without a flag it lacks, or say how it died."""
        index, text = child.job, child.stderr()
        self._drop(child)
        flag = undocumented.unknown_flag(text)
        if flag and flag not in child.without:
            _dropped.add(flag)
            if index is not None:
                self.pending.appendleft(index)
            return
        if index is None:
            return
        program = self.programs[index]
        code = child.process.returncode
        full = shutil.disk_usage(self.root).free < SPARE  # then stderr is cut short too
        if full or "No space left on device" in text:
            yield index, _disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), text)
            return
        why = undocumented.profile_abort(text)
        if why:
            message = f"the compiler's static profile gave up on {program.name}: {why}"
        elif code == -signal.SIGKILL:
            message = (
                f"the compiler's process was killed while it compiled {program.name} for "
                f"{program.chip}; most often the machine ran out of memory"
            )
        else:
            how = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
            message = f"the compiler crashed on {program.name} for {program.chip} ({how})"
        yield index, TpuCompileError("crashed", message, text)

    def _drop(self, child: _Child) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(child.process.stdout)
        child.close()
        self.children.remove(child)

    def close(self) -> None:
        """End every child."""
        for child in list(self.children):
            self._drop(child)
        self.selector.close()


class _Child:
    """One process that holds libtpu, and the folder that it works in."""

    def __init__(self, folder: Path, purposes: Collection[str]) -> None:
        self.folder = folder
        dumps = folder / "dumps"
        dumps.mkdir(parents=True)
        self.job: int | None = None
        self.deadline = time.monotonic() + STARTUP
        self.ended = False
        self._rest = b""
        self._mark = 0  # where this job's part of stderr begins
        self.without = frozenset(_dropped)  # another child may find out more meanwhile
        environment = dict(os.environ) | undocumented.environment(dumps, purposes, self.without)
        environment.pop("XLA_FLAGS", None)  # meant for the caller's CPU, and libtpu refuses some
        with open(folder / "stderr", "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, worker.__file__, str(folder), str(dumps)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        os.set_blocking(self.process.stdout.fileno(), False)

    def submit(self, job: int, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self._mark = (self.folder / "stderr").stat().st_size
        with contextlib.suppress(BrokenPipeError):  # it is dead, and will be found so
            self.process.stdin.write(f"{job}\n".encode())
            self.process.stdin.flush()

    def answers(self) -> Iterator[dict]:
        """What the child has said since the last call."""
        while True:
            try:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self.ended = True
                self.process.wait()
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            mark, _, words = line.decode(errors="replace").partition(" ")
            if mark == worker.MARK:
                yield json.loads(words)

    def stderr(self) -> str:
        """What libtpu printed since the last program was handed in, its start-up included."""
        try:
            data = (self.folder / "stderr").read_bytes()
        except OSError:
            return ""
        return data[self._mark :].decode(errors="replace")[-100_000:]

    def clear(self, job: int) -> None:
        """Free the disk of what one program left."""
        for path in self.folder.glob(f"{job}.*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


@contextlib.contextmanager
def _shown(programs: Iterable[Program], progress: bool) -> Iterator[Callable[[], None]]:
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


def _disk(error: OSError, text: str = "") -> TpuCompileError:
    folder = tempfile.gettempdir()
    if error.errno == errno.ENOSPC:
        message = f"no space left in {folder} for the compiler's files: free some, or set TMPDIR"
    else:
        message = f"the compiler's files in {folder} cannot be written: {error.strerror or error}"
    return TpuCompileError("disk", message, text or str(error))


def _calls(program: Program) -> tuple[Any, ...]:
    """Its kernels; () where a grid is too long to look at."""
    try:
        return program.calls
    except ValueError:
        return ()


def _buffers(program: Program, text: str) -> tuple[tuple[str, int], ...]:
    """What the failing kernel keeps in VMEM; () where it is not clear which kernel fails."""
    calls = _calls(program)
    named = [c for c in calls if f"%{c.name}" in text]
    found = named or (calls if len(calls) == 1 else ())
    return found[0].buffers() if found else ()


def vmem_limit(call: Any, chip: str) -> int:
    """Bytes of VMEM that a kernel may take: what it asks for, or what the chip grants unasked."""
    asked = jax_pallas.vmem_limit_bytes(call.equation)
    return asked or chips.chip(chip).vmem_limit_bytes


def _overflow(program: Program) -> TpuCompileError | None:
    """The error of a program with a kernel whose blocks alone exceed its VMEM; None without one."""
    for call in _calls(program):
        limit = vmem_limit(call, program.chip)
        buffers = call.buffers()
        asked = sum(size for _, size in buffers)
        if asked > limit:
            return overflow(asked, limit, buffers, least=True)
    return None


def _text(error: BaseException) -> str:
    """An exception's words, with those of the exceptions it came from."""
    words, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        words.append(f"{error}")
        error = error.__cause__
    return "\n".join(words)


def _outside(file: str) -> bool:
    return "site-packages" not in file and not file.startswith("<") and file != __file__


def _user_line(error: BaseException) -> str | None:
    """The innermost line of a traceback that is not a library's, as file.py:line."""
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if _outside(f.filename)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def _primitive_line(jaxpr: Any, text: str) -> str | None:
    """Where the kernel uses what the text complains of; None where that is not one place."""
    found = re.search(r"Unimplemented primitive in Pallas TPU lowering(?: for \w+)?: (\w+)", text)
    if found:
        name = found[1]
    elif "scalars to VMEM" in text or "Stores are only" in text:
        name = "swap"
    elif "scalars from SMEM" in text or "Loads are only" in text:
        name = "get"
    else:
        return None
    places = [line for primitive, line in _lines(jaxpr) if primitive == name and line]
    return places[0] if places and (found or len(set(places)) == 1) else None


def _lines(jaxpr: Any, outer: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Each primitive of a jaxpr with the line of the caller's code that asked for it."""
    for equation in jaxprs.own_equations(jaxpr):
        own = [f"{Path(f).name}:{line}" for f, line in jaxprs.frames(equation) if _outside(f)]
        line = own[0] if own else outer
        yield jaxprs.operation(equation), line
        for inner in jaxprs.inner_jaxprs(equation):
            yield from _lines(inner, line)
