"""Taichi in a process of its own, which may die: debug runs, other devices.

A kernel that leaves its array can take its process with it, and Taichi is started once in a
process. So a debug run happens in a child. The child is kept for the next run, until it fails.
What it cannot import, a kernel of a notebook, say, is sent to it as a text.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import pickle
import re
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.machines import child
from kernels.machines.checks import fail, one_of, positive_int
from kernels.machines.child import Child, ChildDied, ChildError, Spares
from kernels.machines.taichi import runtime
from kernels.machines.taichi.runtime import Running

SECONDS = 120.0  # that a run may take, compilation included
WORKER = str(Path(__file__).with_name("child.py"))

_spares = Spares()


class TaichiError(RuntimeError):
    """A kernel failed in its child process; the message holds the child's last words."""


def simulate(
    function: Callable[..., Any],
    *arguments: Any,
    threads: int = 1,
    seconds: float = SECONDS,
    **options: Any,
) -> Any:
    """Run `function(*arguments, **options)` in Taichi's debug mode: every access is checked.

    Args:
        function: of a module, not of a notebook, since the child imports it.
        *arguments: NumPy arrays, tensors on the CPU, or whatever else can be pickled.
        threads: of the CPU.
        seconds: that the child may take.
        **options: of the function.

    Raises:
        TaichiError: an access is out of bounds, or the child dies, or takes longer.
        ValueError: as the function raises it.
    """
    return _ask(Running("cpu", threads, True), function, arguments, options, seconds)


def run(
    function: Callable[..., Any],
    *arguments: Any,
    device: str = "cpu",
    threads: int | None = None,
    seconds: float = SECONDS,
    **options: Any,
) -> Any:
    """The same without checks, on another device or with other threads than this process has.

    Args:
        function, seconds: as `simulate` takes them.
        *arguments: the same.
        **options: the same.
        device: "cpu" or "cuda", to which NumPy arrays are brought, and from which they return.
        threads: of the CPU; None is as many as this process has.

    Raises:
        TaichiError, ValueError: as in `simulate`.
    """
    one_of("device", device, runtime.ARCHS)
    threads = runtime.threads() if threads is None else threads
    return _ask(Running(device, threads, False), function, arguments, options, seconds)


def _ask(wanted: Running, function, arguments, options, seconds):
    """The result; see `simulate` for what it raises."""
    positive_int("threads", wanted.threads)
    runtime.check()
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    if getattr(bare, "__module__", None) == "__main__":
        fail("function", f"{bare.__name__} of a notebook or script", "a function of a module")
    kind = (runtime.name(), wanted)
    command = child.python(WORKER)
    runner = _spares.take(kind) or Child(command, environment=os.environ | runtime.QUIET)
    try:
        answer = runner.ask((asdict(wanted), function, arguments, options), seconds)
    except ChildDied as error:
        raise TaichiError(_last_words(error)) from None
    except BaseException as error:
        runner.close()
        if isinstance(error, ChildError):
            raise TaichiError(str(error)) from None
        raise
    if "result" in answer:
        _spares.keep(kind, runner)
        return answer["result"]
    runner.close()  # after an access out of bounds nothing in it can be trusted
    raise {"ValueError": ValueError}.get(answer["kind"], TaichiError)(answer["says"])


def _last_words(error: ChildDied) -> str:
    """How the child died: Taichi catches signals, and ends with a status of its own."""
    caught = re.search(r"\[E [^\]]*\] Received (signal .*)", error.stderr)
    if not caught:
        return str(error)
    last = child.last_line(error.stderr[: caught.start()])
    return f"the process died of {caught[1]}" + (f": {last}" if last else "")


def run_once(module: str, question: Any, folder: Path, variables: Mapping[str, str]) -> None:
    """Run `main(question)` of a module in a new process, which writes into a folder, with these
    variables besides this process's; TaichiError where it fails, or takes over SECONDS."""
    file = folder / "question"
    file.write_bytes(pickle.dumps(question))
    program = f"import os, pickle; from {module} import main; os.chdir({str(folder)!r}); "
    program += f"main(pickle.load(open({str(file)!r}, 'rb')))"
    own = {"PYTHONPATH": child.search_path(), "KERNELS_TAICHI": runtime.name(), **variables}
    environment = os.environ | runtime.QUIET | own
    try:
        done = child.run(child.python("-c", program), seconds=SECONDS, environment=environment)
    except child.ChildLate:
        raise TaichiError(f"no answer in {SECONDS:g} s") from None
    if done.status:
        words = f"the process died of {child.how(done.status)}"
        raise TaichiError(child.last_line(done.stderr) or words)


# All that a kernel may use besides its arguments.
HEAD = "import numpy as np\n\nfrom kernels import taichi\n\nti = taichi.module()\n\n\n"


@dataclass(frozen=True)
class KernelSource:
    """A function's name and source. It can be sent to a child process, and be made there.

    The source sees np, ti and kernels.taichi, and nothing else of where it was written.

    Args:
        name: of the function.
        text: its source, without the indentation of where it stood.
    """

    name: str
    text: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> KernelSource:
        """What was written; OSError where the source is not to be had."""
        return cls(function.__name__, textwrap.dedent(inspect.getsource(function)))

    def made(self) -> Callable[..., Any]:
        """The function; the same object each time in one process. Raises what its source does."""
        return getattr(_module(self.text), self.name)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="written-")


@functools.cache
def _module(text: str) -> ModuleType:
    """The text as a module with a file, from which Taichi reads a kernel's source."""
    path = Path(_folder().name) / f"written_{abs(hash(text))}.py"
    path.write_text(HEAD + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
