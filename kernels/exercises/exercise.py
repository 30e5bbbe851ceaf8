"""What an exercise asks for, and how an answer to it is proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.workload import Workload, Workloads


@dataclass(frozen=True)
class Exercise:
    """A kernel for the reader to write.

    task: a sentence. formula: what the result is, in float64 NumPy, of the same arguments; it is
    the oracle. call(answer, *arguments, interpret): how the reader's function is run. workloads:
    the problems it is proven on. rungs: those that it has to climb. magnitude: for a sum, the sum
    of its terms' absolute values, as in a reference. hint: shown with each failure.
    """

    name: str
    task: str
    formula: Callable[..., Any]
    call: Callable[..., Any]
    workloads: Workloads
    rungs: tuple[str, ...] = ("interpret", "simulate", "compile")
    language: str = "Pallas TPU"
    magnitude: Callable[..., Any] | None = None
    hint: str = ""

    # What the ladder asks of an operator. Nothing plainer exists than the formula in float32.
    rounding = None
    gradient_magnitude = None
    differentiable = ()

    @property
    def reference(self) -> Callable[..., Any]:
        """The oracle."""
        return self.formula

    @property
    def plain(self) -> str:
        """The name under which the answer climbs: so it is compared with the formula alone."""
        return self.name


def problems(
    make: Callable[[Workload, np.random.Generator], tuple[Any, ...]], *named: Workload
) -> Workloads:
    """The workloads of an exercise: named ones only."""
    return Workloads(make=make, named=named, draw=lambda rng: named[rng.integers(len(named))])
