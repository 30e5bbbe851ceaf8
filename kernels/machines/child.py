"""Child processes: the one helper for all that this package runs apart from its caller.

A compiler, a simulator or a debugged kernel may crash, hang or eat the memory; apart, it harms
nobody. `Child` answers questions, one after another, and `Spares` keeps such children for the next
caller; `run` runs a program once. Whatever happens, the caller hears of it in plain words, with
what the child printed last, and no child outlives its caller: a guard, a small process of its own,
ends them and removes their folders even where the caller is killed.

Why not pebble: its workers take one environment for all and run Python functions only. Ours need
variables that a library reads when it is loaded, may be any program, and their last words count.

This file is also the guard's program, so it imports nothing but the standard library.
"""

import atexit
import contextlib
import gc
import io
import os
import pickle
import re
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

GRACE = 5.0  # seconds for a child that has closed its pipe to end by itself
IDLE = 60.0  # seconds that a spare child waits for the next question
LARGEST = 1 << 30  # bytes of memory of a child that is worth keeping
OLDEST = 200  # questions after which a child is not kept: what libraries leak adds up
_SIZE = struct.Struct(">Q")  # before each message: its length in bytes
# Names of variables that no child gets, since it may run a stranger's code; JAX's keys are numbers.
SECRET = re.compile(r"(?!JAX_).*(TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH)|(AWS|SSH)_", re.I)
LOGIN = re.compile(r"://[^/\s]*:[^/\s]*@")  # nor a value with a password in an address


class ChildError(RuntimeError):
    """A child failed its caller; the message says how, in a line."""


class ChildLate(ChildError):
    """It took longer than it may, and was ended."""


class ChildDied(ChildError):
    """It ended by itself. status: as subprocess has it. stderr: what it printed there."""

    def __init__(self, status: int, stderr: str) -> None:
        self.status, self.stderr = status, stderr
        last = last_line(stderr)
        super().__init__(f"the process died of {how(status)}" + (f": {last}" if last else ""))


def how(status: int) -> str:
    """How a process ended, in words: SIGSEGV, exit code 3. A program that runs another, as a shell
    does, says 128 and the number of the other's signal."""
    number = -status if status < 0 else status - 128
    known = number in {*signal.Signals}
    return signal.Signals(number).name if known else f"exit code {status}"


def last_line(text: str) -> str:
    """The last line that says anything; "" where none does."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs a Python file in this Python, without its folder on the path."""
    return [sys.executable, "-P", script, *arguments]


def public(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a child gets: these, the caller's for None, without what is SECRET."""
    variables = os.environ if environment is None else environment
    return {n: v for n, v in variables.items() if not SECRET.match(n) and not LOGIN.search(v)}


def search_path() -> str:
    """PYTHONPATH of a child that is to find what its caller finds."""
    return os.pathsep.join(os.path.abspath(path or ".") for path in sys.path)


# --- in the parent --------------------------------------------------------------------------------


class _Plain(pickle.Unpickler):
    """Reads what a stranger's code may have written: numbers, text and what holds them."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it is no plain data, but of {module}.{name}")


class Child:
    """A process that answers one question after another, by `serve`; it ends with its parent.

    Questions and answers are whatever can be pickled. What it prints goes to stderr, which is kept
    in a nameless file.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        plain: bool = False,
    ) -> None:
        """Start it; OSError where it cannot be started.

        Args:
            command: the program and its arguments; see `python`.
            environment: all of its variables but PYTHONPATH, so that it finds what the caller
                finds; None gives it the caller's. Secrets are left out: see `public`.
            folder: one that is the child's own, removed when it ends.
            plain: whether an answer may hold numbers, texts and collections of them alone, so that
                reading one can run no code.
        """
        self.folder, self.plain = folder, plain
        self.asked = 0  # questions so far
        self.waiting = False  # whether an answer is due
        self.started = False  # whether it has begun with the question
        self.ended = False
        self.memory = 0  # bytes that it held after its last answer
        self._rest = b""
        self._mark = 0  # where the last question's part of stderr begins
        variables = public(environment)
        variables["PYTHONPATH"] = search_path()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            with _uninterrupted():
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    env=variables,
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )
                _alive.add(self)
                _watch(self.process.pid, folder)
        except BaseException:
            if self in _alive:
                self.close()
            self._stderr.close()
            raise

    def fileno(self) -> int:
        """Of the pipe that its answers come from, for a selector."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, question: Any) -> None:
        """Ask, without waiting for the answer. A child that is dead is found so by `answers`."""
        data = pickle.dumps(question, protocol=5)
        self.asked += 1
        self.waiting, self.started = True, False
        self._mark = os.fstat(self._stderr.fileno()).st_size
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            _write(self.process.stdin, data)

    def answers(self) -> list[Any]:
        """What it has said since the last call; waits where it has said nothing. An instance of
        ChildError says that an answer could not be pickled. Empty where it has only begun with its
        question, or has ended: see `started`, `ended`."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            self._bury()
        self._rest += data
        answers = []
        while len(self._rest) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                break
            message, self._rest = self._rest[_SIZE.size : end], self._rest[end:]
            try:
                reader = _Plain if self.plain else pickle.Unpickler
                kind, value, memory = reader(io.BytesIO(message)).load()
            except pickle.UnpicklingError as error:
                kind, value, memory = "failed", f"the answer: {error}", self.memory
            if kind == "started":
                self.started = True
            else:
                self.waiting, self.memory = False, memory
                answers.append(ChildError(value) if kind == "failed" else value)
        return answers

    def ask(self, question: Any, seconds: float) -> Any:
        """Ask, and wait for the answer: ChildLate where there was none after `seconds`, and the
        child is ended, ChildDied where it ended before it answered, ChildError where the question
        or the answer cannot be pickled."""
        self.send(question)
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            while not self.ended:
                if not selector.select(max(end - time.monotonic(), 0)):
                    self.close()
                    raise ChildLate(f"no answer in {seconds:g} s")
                for answer in self.answers():
                    if isinstance(answer, ChildError):
                        raise answer
                    return answer
        died = ChildDied(self.process.returncode, self.stderr())
        self.close()
        raise died

    def worked(self) -> float | None:
        """Processor seconds that it has had since its start; None where the system does not say."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None

    def stderr(self) -> str:
        """What it printed since the last question; since its start, where that was the first."""
        if self._stderr.closed:
            return ""
        size = os.fstat(self._stderr.fileno()).st_size
        start = self._mark if self.asked > 1 else 0
        # Read at a place of its own: the child writes through the same offset.
        data = os.pread(self._stderr.fileno(), 100_000, max(start, size - 100_000))
        return data.decode(errors="replace")

    def _bury(self) -> None:
        """It closed its pipe: let it end, and whoever it left behind with it."""
        self.ended = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        _end_group(self.process.pid)
        self.process.wait()

    def close(self) -> None:
        """End it, and remove its folder; may be called again."""
        self.ended = True
        if self.process.poll() is None:
            _end_group(self.process.pid)
        self.process.wait()
        _alive.discard(self)
        for pipe in filter(None, (self.process.stdin, self.process.stdout, self._stderr)):
            with contextlib.suppress(OSError):
                pipe.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        _unwatch(self.process.pid)


class Spares:
    """Children that have nothing to do, kept for whoever asks for the same kind next.

    They end when nobody has asked for `seconds`, when there are more than `most`, when they have
    grown large or old, and with this process.
    """

    def __init__(self, most: int = 4, seconds: float = IDLE) -> None:
        self.most, self.seconds = most, seconds
        self._kept: list[tuple[float, Hashable, Child]] = []  # since when, the oldest first
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        _spares.add(self)

    def take(self, kind: Hashable) -> Child | None:
        """One of that kind, as warm as there is; None where there is none."""
        with self._lock:
            for place in reversed(range(len(self._kept))):
                if self._kept[place][1] == kind:
                    child = self._kept.pop(place)[2]
                    break
            else:
                return None
        if child.process.poll() is None:
            return child
        child.close()  # it died meanwhile
        return self.take(kind)

    def keep(self, kind: Hashable, child: Child) -> None:
        """Take a child back, or end it where it is not worth keeping."""
        if child.ended or child.waiting or child.memory > LARGEST or child.asked >= OLDEST:
            child.close()
            return
        with self._lock:
            self._kept.append((time.monotonic(), kind, child))
            surplus = self._kept[: -self.most] if self.most else self._kept[:]
            del self._kept[: len(surplus)]
            self._set_timer()
        for _, _, spare in surplus:
            spare.close()

    def folders(self) -> set[Path]:
        """Those of the children that wait."""
        with self._lock:
            return {child.folder for _, _, child in self._kept if child.folder is not None}

    def close(self) -> None:
        """End all that wait."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, _, child in kept:
            child.close()

    def _set_timer(self) -> None:
        if self._kept and self._timer is None:
            wait = self._kept[0][0] + self.seconds - time.monotonic()
            self._timer = threading.Timer(max(wait, 0), self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        """End those that have waited for long enough."""
        with self._lock:
            self._timer = None
            late = time.monotonic() - self.seconds
            old = [spare for spare in self._kept if spare[0] <= late]
            self._kept = [spare for spare in self._kept if spare[0] > late]
            self._set_timer()
        for _, _, child in old:
            child.close()


@dataclass(frozen=True)
class Done:
    """A program that has run: its status as subprocess has it, and what it printed."""

    status: int
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)


def run(
    command: Sequence[str],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    shown: bool = False,
) -> Done:
    """Run a program to its end, with no input; whoever it started and left behind is ended too.

    Args:
        command: the program and its arguments.
        seconds: that it may take.
        environment: all of its variables; None gives it the caller's. See `public`.
        shown: whether it prints where its caller does; then what it printed is not kept.

    Raises:
        ChildLate: it took longer.
        OSError: it cannot be started.
    """
    printed = None if shown else subprocess.PIPE
    process = None
    try:
        with _uninterrupted():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                text=True,
                errors="replace",
                env=public(environment),
                start_new_session=True,
            )
            _watch(process.pid, None)
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ChildLate(f"{Path(command[0]).name} had not ended after {seconds:g} s") from None
    finally:
        if process is not None:
            _end_group(process.pid)
            process.wait()
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
            _unwatch(process.pid)
    return Done(process.returncode, out or "", err or "")


_alive: set[Child] = set()
_spares: weakref.WeakSet[Spares] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    """End every child, idle or not: its caller ends."""
    for child in list(_alive):
        child.close()
    if _guard is not None and _guard.stdin is not None:
        _guard.stdin.close()
        _guard.wait()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until a child that starts is known: a Popen that it ends forgets its process."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *received: interrupts.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for received in interrupts[:1]:
            handler(*received)


def _end_group(process: int) -> None:
    """Kill a child that began a session, and whoever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


# --- the guard ------------------------------------------------------------------------------------

_guard: subprocess.Popen | None = None
_watched: dict[int, Path | None] = {}  # process → its folder
_guard_lock = threading.RLock()


def _watch(process: int, folder: Path | None) -> None:
    with _guard_lock:
        _watched[process] = folder
        _tell(process, folder)


def _unwatch(process: int) -> None:
    with _guard_lock:
        if _watched.pop(process, _watched) is not _watched:
            _tell(-process, None)


def _tell(process: int, folder: Path | None) -> None:
    """Let the guard know of a child, or, by a negative number, of its end."""
    global _guard
    line = f"{process} {folder or ''}\n".encode()
    if _guard is not None and _guard.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            os.write(_guard.stdin.fileno(), line)
            return
    # The first child, or somebody killed the guard: a new one hears of all children.
    _guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    known = "".join(f"{number} {kept or ''}\n" for number, kept in _watched.items())
    assert _guard.stdin is not None
    os.write(_guard.stdin.fileno(), known.encode())


def _stand_guard() -> None:
    """The guard's own life: hear of children, and end those that are left when the pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its parent has, and not before
    left: dict[int, str] = {}
    for line in sys.stdin:
        process, _, folder = line.rstrip("\n").partition(" ")
        if int(process) > 0:
            left[int(process)] = folder
        else:
            left.pop(-int(process), None)
    for process in left:
        _end_group(process)
    for folder in filter(None, left.values()):
        for _ in range(100):  # what a dying process still writes
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.exists(folder):
                break
            time.sleep(0.05)


def _forked() -> None:
    """In a process that was forked off, the children are the parent's, and so is the guard."""
    global _guard, _guard_lock
    if _guard is not None and _guard.stdin is not None:
        _guard.stdin.close()  # the guard waits for whoever holds it
        _guard.returncode = 0  # not ours to wait for
    _guard, _guard_lock = None, threading.RLock()
    _watched.clear()
    _alive.clear()
    for spares in list(_spares):
        spares._kept, spares._lock, spares._timer = [], threading.Lock(), None  # the parent's


if hasattr(os, "register_at_fork"):  # not on Windows, which runs no child, and may import this
    os.register_at_fork(after_in_child=_forked)


# --- in the child ---------------------------------------------------------------------------------


def serve(prepare: Callable[[], Callable[[Any], Any]]) -> None:
    """Answer the parent's questions, one after another, until it has no more.

    `prepare` imports what takes long, in no question's time, and returns the function that answers.
    What is printed goes to stderr. An exception ends the process, unless it is about pickling.
    """
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library may print to stdout
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    gc.set_threshold(100_000, 20, 50)  # what is imported and traced lives on: look at it rarely
    answer = prepare()
    while (data := _read(questions)) is not None:
        _write(answers, pickle.dumps(("started", None, 0)))
        try:
            question = pickle.loads(data)
        except Exception as error:
            _write(answers, pickle.dumps(("failed", f"the question: {_words(error)}", _memory())))
            continue
        result = answer(question)
        try:
            said = pickle.dumps(("answer", result, _memory()), protocol=5)
        except Exception as error:
            said = pickle.dumps(("failed", f"the result: {_words(error)}", _memory()))
        _write(answers, said)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _read(file: IO[bytes]) -> bytes | None:
    """The next message; None where there is none any more."""
    size = file.read(_SIZE.size)
    return file.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else None


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(_SIZE.pack(len(data)) + data)
    file.flush()


def _memory() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    _stand_guard()
