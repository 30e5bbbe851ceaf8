"""Speed as the bar of an exercise: what is measured of an answer, and how near it comes.

A figure is counted or estimated, never a wall clock's, so that it is the same on every machine.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.machines import neuron, tpu
from kernels.machines.tpu.pool import libtpu_version
from kernels.proof import ladder
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload

CHIP = "v5e"
Ours = float | tuple[tuple[str, float], ...] | None
LEVEL = 0.02  # of the figure: so near to ours, an answer is as fast


@dataclass(frozen=True)
class Tried:
    """An answer, also as the ladder's subject, on the problem that its speed is measured on."""

    answer: Callable[..., Any]
    subject: ladder.Subject
    workload: Workload

    @functools.cached_property
    def arguments(self) -> Sequence[Any]:
        """The positional arguments of the problem."""
        return self.subject.job(self.workload).arguments

    @functools.cached_property
    def program(self) -> tuple[Callable[..., Any], list[Any]]:
        """The call as compiled for the machine, and the arrays that it takes."""
        return ladder.programs(self.subject, self.workload)[0]


@dataclass(frozen=True)
class Bar:
    """A figure that an answer may have at most, and the one that earns a medal.

    Args:
        figure: what is measured, in words with its unit: "bundles in a step on a v5e".
        measure: gives it; raises Refused where there is nothing to measure.
        bar: an answer is right from here on.
        ours: what this book's own solution has; an answer within 2 % of it earns the medal. Where
            releases of libtpu differ in it: (version, figure) of each, the oldest first. None: no
            medal is to be earned.
        spec: how the figure is written.
        workload: the problem; None for the first that the exercise is proven on.
    """

    figure: str
    measure: Callable[[Tried], float]
    bar: float
    ours: Ours
    spec: str = ",.0f"
    workload: Workload | None = None

    def judge(self, tried: Tried) -> tuple[str, bool]:
        """Measure an answer.

        Returns:
            What is to be told, and whether it earns the medal.

        Raises:
            Refused: where it misses the bar; the words say by how much.
        """
        figure = float(self.measure(tried))
        words = f"{figure:{self.spec}} {self.figure}; the bar is {self.bar:{self.spec}}"
        if figure > self.bar:
            if (times := figure / self.bar) >= 3:
                raise Refused(f"{words}: {times:,.0f} times that")
            raise Refused(f"{words}, {self._apart(figure, self.bar)} away")
        if self.ours is None:
            return words, False
        ours = self.figure_of_ours()
        if figure <= ours * (1 + LEVEL):
            return f"{words}: a medal, ours has {ours:{self.spec}}", True
        apart = self._apart(figure, ours)
        return f"{words}; {apart} to the medal, ours has {ours:{self.spec}}", False

    def figure_of_ours(self) -> Any:
        """What our own solution has with the libtpu installed, or else with the newest known."""
        if not isinstance(self.ours, tuple):
            return self.ours
        return dict(self.ours).get(libtpu_version(), self.ours[-1][1])

    @staticmethod
    def _apart(figure: float, wanted: float) -> str:
        apart = abs(figure - wanted) / wanted
        return f"{apart:.0%}" if apart >= 0.01 else f"{apart:.1%}"


def at(dtype: str = "float32", **sizes: int) -> Workload:
    """The problem of these sizes that a bar is measured on."""
    return Workload("bar", sizes, dtype)


def bundles(
    name: str,
    bar: float,
    ours: Ours,
    workload: Workload | None = None,
    figure: str = f"bundles in a step on a {CHIP}",
) -> Bar:
    """Bundles of a grid step of the kernel of this name; a loop in a step hides how many."""

    def measure(tried: Tried) -> float:
        function, arrays = tried.program
        kernel = tpu.schedule(function, *arrays, chip=CHIP)[name]
        if any(bundle.depth > 1 for bundle in kernel.bundles):
            raise Refused("a loop inside a grid step repeats its bundles; unroll it, to count them")
        return kernel.step_bundles

    return Bar(figure, measure, bar, ours, workload=workload)


def cycles(bar: float, ours: Ours, workload: Workload) -> Bar:
    """The estimated cycles of the whole program, XLA's operations around the kernels included."""

    def measure(tried: Tried) -> float:
        function, arrays = tried.program
        on_tpu: Any = tried.subject.backend  # it knows how a mesh cuts them
        return tpu.estimate(function, *arrays, chip=CHIP, **on_tpu.cut(arrays)).cycles

    return Bar(f"estimated cycles on a {CHIP}", measure, bar, ours, workload=workload)


def nki_microseconds(bar: float, ours: float, workload: Workload) -> Bar:
    """The estimated time of a kernel on an Inf2."""
    measure = lambda tried: neuron.estimate(tried.answer, *tried.arguments).seconds * 1e6
    return Bar("µs, estimated for an Inf2", measure, bar, ours, spec=".1f", workload=workload)
