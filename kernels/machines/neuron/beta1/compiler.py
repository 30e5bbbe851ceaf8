"""neuronxcc.nki.compiler: where a tile is to lie, which the simulator leaves to itself.

It holds what is live to the size of the memories, whoever allocates.
"""

from typing import Any

from kernels.machines.neuron.errors import nothing_but
from kernels.machines.neuron.memory import PSUM, SBUF


class _Allocator(str):
    """A memory, and functions that choose a place in it: all of them are this memory."""

    def alloc(self, *arguments, **options) -> str:
        """Any place."""
        return str(self)

    mod_alloc = auto_alloc = alloc


sbuf, psum = _Allocator(SBUF), _Allocator(PSUM)


def _as_it_is(kernel=None, **options) -> Any:
    return _as_it_is if kernel is None else kernel


enable_stack_allocator = skip_middle_end_transformations = no_reorder = _as_it_is
__all__ = [
    "enable_stack_allocator",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]
__getattr__ = nothing_but("neuronxcc.nki.compiler", __all__)
