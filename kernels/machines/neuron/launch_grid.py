"""What a program asks of the launch grid, in either generation of the language."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.machine import machine


def program_id(axis: int = 0) -> int:
    """Which program of the launch grid this is."""
    core = machine()
    grid = core.grid or (1,)
    if not 0 <= axis < len(grid):
        refuse(f"program_id({axis}): the grid has {len(grid)} dimensions")
    return int(np.unravel_index(core.program, grid)[axis])


def num_programs(axes: Any = 0) -> Any:
    """How many programs the launch grid has along an axis, or axes; None counts all."""
    grid = machine().grid or (1,)
    if axes is None:
        return math.prod(grid)
    if isinstance(axes, (tuple, list)):
        return tuple(grid[a] for a in axes)
    return grid[axes]


def program_ndim() -> int:
    """The dimensions of the launch grid; 0 without one."""
    return len(machine().grid)
