"""The child that holds a reader's file: it proves, explains and tunes one function for its parent.

A kernel that hangs, aborts or eats the memory ends this process and nothing else.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from kernels.machines import child
from kernels.yours import memory


def prepare() -> Callable[[Any], Any]:
    """Load JAX, which takes about a second."""
    memory.limit(*map(int, sys.argv[1:]))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    # What is compiled for this CPU runs once or twice: to compile it takes longer than to run it.
    jax.config.update("jax_disable_most_optimizations", True)
    from kernels.machines.compat import jax_products
    from kernels.yours import answers

    jax_products.remember()
    return answers.answer


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    child.serve(prepare)
