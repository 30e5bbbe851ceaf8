"""The programs of a launch grid: what they ask of it; and how they run, one after another, or both
cores of kernel[2] by turns."""

import contextvars
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines.neuron.errors import NeuronError, place, refuse
from kernels.machines.neuron.machine import NeuronMachine, machine
from kernels.machines.neuron.memory import HBM, PSUM, SBUF, SHARED_HBM, TileSize
from kernels.machines.neuron.tensors import Span


def program_id(axis: int = 0) -> int:
    """Which program of the launch grid this is."""
    core = machine()
    grid = core.grid or (1,)
    if not 0 <= axis < len(grid):
        refuse(f"program_id({axis}): the grid has {len(grid)} dimensions")
    return int(np.unravel_index(core.program, grid)[axis])


def num_programs(axes=0) -> Any:
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


# Names of nki.language that mean the same in both generations.
OF_BOTH: dict[str, Any] = {
    "ds": Span,
    "hbm": HBM,
    "private_hbm": HBM,
    "program_id": program_id,
    "program_ndim": program_ndim,
    "psum": PSUM,
    "sbuf": SBUF,
    "shared_hbm": SHARED_HBM,
    "tile_size": TileSize(),
}


class _Ended(Exception):
    """Another program has failed."""


class Turns:
    """Programs that wait for each other: one runs at a time, and hands over where it waits."""

    def __init__(self, core: NeuronMachine, programs: list[int]) -> None:
        self.core = core
        self.left = list(programs)  # that have not ended
        self.arrived: dict[int, str | None] = {}
        self.turn = programs[0]
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.returned: Any = None

    def run(self, call: Callable[[], Any]) -> Any:
        """All programs; what one of them returned."""
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._program, program, call)
            )
            for program in self.left
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return self.returned

    def _program(self, program: int, call: Callable[[], Any]) -> None:
        try:
            self._wait(program)
            self.core.enter(program)
            self.returned = call()
        except _Ended:
            return
        except BaseException as error:
            with self.changed:
                self.failure = self.failure or error
                self.changed.notify_all()
            return
        with self.changed:
            self.left.remove(program)
            self._hand_over()

    def _wait(self, program: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn == program or self.failure is not None)
            if self.failure is not None:
                raise _Ended

    def _hand_over(self) -> None:
        """Whose turn is next: one that runs, or all of them when all have come."""
        free = [program for program in self.left if program not in self.arrived]
        if not free and self.left:
            if len(self.left) < len(self.core.grid_programs):
                where = next(iter(self.arrived.values()))
                self.failure = NeuronError(
                    f"core {self.left[0]} waits for one that has ended and never comes", where
                )
            self.arrived.clear()
            free = self.left
        if free:
            self.turn = free[0]
        self.changed.notify_all()

    def meet(self, name: str) -> None:
        """Wait until every program has come as far."""
        program = self.core.program
        kept = self.core.leave()
        with self.changed:
            self.arrived[program] = place()
            self._hand_over()
        self._wait(program)
        self.core.come_back(program, kept)
