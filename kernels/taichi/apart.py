"""Taichi in a process of its own, which may die: debug runs, profiles, other devices.

A kernel that leaves its array can take its process with it, and Taichi is started once in a
process. So a debug run happens in a child. The child is kept for the next run, until it fails.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.checks import fail, one_of, positive_int
from kernels.optional import available, require
from kernels.taichi import runtime

SECONDS = 120.0  # that a run may take, compilation included


class TaichiError(RuntimeError):
    """A kernel failed in its child process; the message holds the child's last words."""


@dataclass(frozen=True)
class Task:
    """One launch of a compiled task, as Taichi's profiler counts it. milliseconds: measured."""

    name: str
    milliseconds: float


def simulate(
    function: Callable[..., Any],
    *arguments: Any,
    threads: int = 1,
    seconds: float = SECONDS,
    **options: Any,
) -> Any:
    """Run `function(*arguments, **options)` in Taichi's debug mode: every access is checked.

    function: of a module, not of a notebook, since the child imports it. arguments: NumPy arrays,
    tensors on the CPU, or whatever else can be pickled. threads: of the CPU. Returns its result.
    Raises TaichiError where an access is out of bounds, where the child dies, and where it takes
    longer than `seconds`; ValueError as the function raises it.
    """
    return _ask(_settings("cpu", threads, debug=True), function, arguments, options, seconds)[0]


def run(
    function: Callable[..., Any],
    *arguments: Any,
    device: str = "cpu",
    threads: int | None = None,
    seconds: float = SECONDS,
    **options: Any,
) -> Any:
    """The same without checks, on another device or with other threads than this process has.

    device: "cpu" or "cuda", to which NumPy arrays are brought, and from which they return.
    """
    one_of("device", device, runtime.ARCHS)
    return _ask(_settings(device, threads), function, arguments, options, seconds)[0]


def profile(
    function: Callable[..., Any], *arguments: Any, seconds: float = SECONDS, **options: Any
) -> tuple[Task, ...]:
    """The tasks that the second call of `function` launched; the first one compiles them.

    Small serial tasks, with which Taichi prepares a parallel one, are among them.
    """
    settings = _settings("cpu", None, profiled=True)
    return tuple(Task(*task) for task in _ask(settings, function, arguments, options, seconds)[1])


def _settings(device: str, threads: int | None, **more: bool) -> tuple[tuple[str, Any], ...]:
    if threads is not None:
        positive_int("threads", threads)
    threads = threads or runtime.threads()
    return tuple(sorted({"device": device, "threads": threads, **more}.items()))


class _Child:
    """A process that answers one question after another; it ends with its parent."""

    def __init__(self, settings: tuple[tuple[str, Any], ...]) -> None:
        paths = [os.path.abspath(p or ".") for p in sys.path]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from kernels.taichi.child import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | runtime.QUIET | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self.send(dict(settings))

    def send(self, question: Any) -> None:
        pickle.dump(question, self.process.stdin)
        self.process.stdin.flush()

    def answer(self, seconds: float) -> Any:
        """What it answers; an EOFError where it dies, a TimeoutError where it takes too long."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            return pickle.load(self.process.stdout)
        except (EOFError, pickle.UnpicklingError):
            if late.is_set():
                raise TimeoutError(f"no answer in {seconds:g} s") from None
            raise EOFError(self.last_words()) from None
        finally:
            timer.cancel()

    def last_words(self) -> str:
        status = self.process.wait()
        self.errors.seek(0)
        # Taichi catches signals, says which, prints its stack and ends with a status of its own.
        text = self.errors.read().decode(errors="replace")
        caught = re.search(r"\[E [^\]]*\] Received (signal .*)", text)
        before = text[: caught.start()] if caught else text
        said = [line.strip() for line in before.splitlines() if line.strip()]
        how = (
            caught[1]
            if caught
            else (signal.Signals(-status).name if status < 0 else f"status {status}")
        )
        return f"the process died of {how}" + (f": {said[-1]}" if said else "")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()


_children: dict[Any, _Child] = {}
_lock = threading.Lock()


@atexit.register
def _close() -> None:
    while _children:
        _children.popitem()[1].close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.clear)  # the pipes are the parent's


def _ask(settings, function, arguments, options, seconds):
    """The result, and the tasks where the child profiles; see `simulate` for what it raises."""
    if not available(runtime.name()):
        require(runtime.name(), "kernels in Taichi")
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    if getattr(bare, "__module__", None) == "__main__":
        fail("function", f"{bare.__name__} of a notebook or script", "a function of a module")
    key = (runtime.name(), settings)
    with _lock:
        child = _children.pop(key, None)
        if child is None or child.process.poll() is not None:
            child = _Child(settings)
        try:
            child.send((function, arguments, options))
            answer = child.answer(seconds)
        except BrokenPipeError:
            words = child.last_words()
            child.close()
            raise TaichiError(words) from None
        except (EOFError, TimeoutError) as error:
            child.close()
            raise TaichiError(str(error)) from None
        except BaseException:
            child.close()
            raise
        if "result" in answer:
            _children[key] = child
            return answer["result"], answer.get("tasks", ())
        child.close()  # after an access out of bounds nothing in it can be trusted
    raise {"ValueError": ValueError}.get(answer["kind"], TaichiError)(answer["says"])
