"""Taichi and its fork Quadrants: what they tell of a running program, and do not promise.

Seen in taichi 1.7.4, and in quadrants 1.3.3 and 1.4.0.
"""

from types import ModuleType

from kernels.machines.compat import changed


def is_started(ti: ModuleType) -> bool:
    """Whether `ti.init` was called in this process.

    Private: the runtime's `_prog` (quadrants) or `prog` (taichi), None before the start.
    """
    state = vars(ti.lang.impl.get_runtime())
    for name in ("_prog", "prog"):
        if name in state:
            return state[name] is not None
    changed(ti.__name__, "its runtime keeps no program; a start by hand is not seen")
    return False
