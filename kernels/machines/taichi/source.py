"""A kernel as text, for a process that cannot import it: one of a notebook, say."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

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
