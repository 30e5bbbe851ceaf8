"""What an exercise asks for, and how an answer to it is proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.lessons.exercises.bars import Bar
from kernels.proof.backends.base import Backend, Refused
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.xla import XLA
from kernels.proof.workload import Workload, Workloads


@dataclass(frozen=True)
class Exercise:
    """A kernel or a function for the reader to write: a kernels.proof.contract.Contract.

    Args:
        name: by which it is checked.
        task: a sentence.
        formula: what the result is, in float64 NumPy, of the same arguments; it is the oracle.
        call: `call(answer, *arguments, interpret)` runs the reader's function.
        workloads: the problems it is proven on.
        rungs: those that it has to climb.
        backend: what it is to be written in.
        magnitude: for a sum, the sum of its terms' absolute values, as in a reference.
        hint: shown with each failure.
        judge: judge(programs) asks more of the program of the first workload, as ladder.programs
            gives it; returns a note, or raises ladder.Refused.
        bar: how fast the answer has to be; it is measured when all else is right.
        differentiable: the arguments whose gradients are proven too; JAX then has to be able to
            trace the formula.
        outputs, static, rounding, gradient_magnitude: as Contract has them.
    """

    name: str
    task: str
    formula: Callable[..., Any]
    call: Callable[..., Any]
    workloads: Workloads
    rungs: tuple[str, ...] = ("interpret", "simulate", "compile")
    backend: Backend = PALLAS_TPU
    magnitude: Callable[..., Any] | None = None
    hint: str = ""
    judge: Callable[[list[Any]], str] | None = None
    bar: Bar | None = None
    differentiable: tuple[str, ...] = ()

    # What a Contract has besides. Nothing plainer exists than the formula in float32.
    outputs: tuple[str, ...] = ("result",)
    static: tuple[str, ...] = ()
    rounding: Callable[..., Any] | None = None
    gradient_magnitude: Callable[..., Any] | None = None

    @property
    def reference(self) -> Callable[..., Any]:
        """The oracle."""
        return self.formula

    @property
    def plain(self) -> str:
        """The name under which the answer climbs: so it is compared with the formula alone."""
        return self.name

    def plainest(self) -> tuple[Callable[..., Any], Backend]:
        """The formula in the dtype of its arguments."""
        return self.formula, XLA


def call(answer: Callable[..., Any], *arguments: Any, interpret: Any = None, **options: Any) -> Any:
    """Run an answer that is a plain function, of numbers or of arrays.

    Args:
        answer: the reader's function.
        arguments: its positional ones.
        interpret: not passed on: a plain function has no use for it.
        options: its named ones.

    Returns:
        What it returns.

    Raises:
        Refused: where that cannot be compared with a number or an array.
    """
    return compared(answer(*arguments, **options))


def call_kernel(answer: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run an answer that takes interpret=.

    Args:
        answer: the reader's function.
        arguments: its positional ones.
        options: its named ones, interpret= among them.

    Returns:
        What it returns.

    Raises:
        Refused: where that cannot be compared with a number or an array.
    """
    return compared(answer(*arguments, **options))


def compared(result: Any) -> Any:
    """The result, if it can be compared with a number or an array."""
    if not hasattr(result, "dtype") and np.asarray(result).dtype.kind not in "iufb":
        raise Refused(f"{type(result).__name__} is returned, where numbers are wanted")
    return result


def problems(
    make: Callable[[Workload, np.random.Generator], tuple[Any, ...]], *named: Workload
) -> Workloads:
    """The workloads of an exercise: named ones only.

    Args:
        make: make(workload, rng) gives the positional arguments.
        named: the workloads.
    """
    return Workloads(make=make, named=named, draw=lambda rng: named[rng.integers(len(named))])


def prediction(
    name: str, task: str, formula: Callable[..., Any], *cases: Workload, hint: str = ""
) -> Exercise:
    """A number to predict. Whole numbers are exact, others are compared in float32.

    Args:
        name: the exercise's.
        task: a sentence; it says the number's unit.
        formula: counts the number.
        cases: workloads, whose sizes are the arguments.
        hint: shown with each failure.
    """

    def call(answer: Callable[..., Any], *numbers: Any, interpret: Any = None) -> Any:
        found = np.asarray(compared(answer(*numbers)))
        return found.astype(np.float32) if found.dtype.kind == "f" else found

    def make(workload: Workload, rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(workload.sizes.values())

    return Exercise(
        name, task, formula, call, problems(make, *cases), ("interpret",), PYTHON, hint=hint
    )
