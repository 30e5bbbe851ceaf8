"""The child that holds a reader's file: it proves, explains and tunes one function for its parent.

A kernel that hangs, aborts or eats the memory ends this process and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from kernels import child

MEMORY = 0.8  # of what is free when it starts: a kernel that wants more ends before others do


def prepare() -> Callable[[Any], Any]:
    """Load JAX, which takes about a second."""
    _limit_memory()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax  # noqa: F401

    from kernels.own import answers

    return answers.answer


def _limit_memory() -> None:
    try:
        import resource

        pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        most = max(int(pages * size * MEMORY), 4 << 30)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    except (ImportError, OSError, ValueError):  # a system that does not know it
        pass


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    child.serve(prepare)
