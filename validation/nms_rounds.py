"""Estimates of nms where the time depends on the boxes: a fixed part, and so much for each round.

    python -m validation nms-rounds [IMPLEMENTATION …] [--chip v5e]

keeps them in results/estimated.csv, for the sizes of its chapter.

"xla_matrix", "xla_blocks" and "pallas" settle who is kept in rounds, until nothing changes. How
many there are is known to the boxes, and not to a compiler. So the model is

    time = time with one round in each block
        + (rounds - blocks) · (time with three rounds in each - time with one) / (2 · blocks)

where both times are the estimator's for programs with a fixed number of rounds, and the rounds, of
all blocks together, are counted on the workload's own boxes. "xla_matrix" has one block: all boxes.
The test whether anything has changed is not in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.figures.schema import LATE, Key, Record, title, versions
from kernels.figures.store import add
from kernels.machines import checks
from kernels.nms.workloads import nms as WORKLOADS
from kernels.proof.workload import Workload

__all__ = ["block_of", "model", "rounds"]
IMPLEMENTATIONS = ("xla_matrix", "xla_blocks", "pallas")
FEW, MANY = 1, 3  # rounds of the two programs that are estimated
BUDGET = 150.0  # seconds of simulation, so that all sizes are figures of one model


@dataclass(frozen=True)
class RoundsEstimate:
    """What nms would take on a chip with the boxes of a workload, by the model above.

    Args:
        rounds: on these boxes, those of all blocks together.
        most: what they could be at worst.
        fixed: seconds with one round, in each block.
        further: seconds of one more round in one block.
        estimate: of the program with one round.
    """

    implementation: str
    workload: Workload
    chip: str
    rounds: int
    most: int
    fixed: float
    further: float
    estimate: Any = field(repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """With the rounds that these boxes need."""
        return self.fixed + (self.rounds - self._first) * self.further

    @property
    def worst(self) -> float:
        """Seconds with as many rounds as boxes of this number can need."""
        return self.fixed + (self.most - self._first) * self.further

    @property
    def _first(self) -> int:
        """The rounds that `fixed` holds."""
        return _blocks(self.implementation, self.workload.sizes["n"])

    def record(self) -> Record:
        """The figure as results/ keeps it."""
        return Key.of("nms", self.implementation, self.workload, self.chip).record(
            workload=title(self.workload),
            kind="estimated",
            value=round(self.seconds * 1e3, 6),
            method=f"{self.rounds} rounds on these boxes, {self.further * 1e6:.4g} µs each beyond "
            f"the first; one round: {self.estimate.method}",
            versions=versions("jax", "libtpu"),
        )


def model(
    workload: Workload, implementation: str = "pallas", chips: Sequence[str] = ("v5e",)
) -> list[RoundsEstimate]:
    """The modelled time of nms on a workload.

    Args:
        workload: its boxes decide how many rounds there are.
        implementation: of IMPLEMENTATIONS.
        chips: to estimate for.

    Returns:
        One for each chip.

    Raises:
        ValueError: for an implementation whose time does not depend on rounds.
        TpuCompileError: where a program is refused.
    """
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate import estimate_all
    from kernels.machines.tpu.export import export

    checks.one_of("implementation", implementation, IMPLEMENTATIONS)
    boxes, scores = WORKLOADS.arguments(workload)
    threshold = workload.options["iou_threshold"]
    function = _function(implementation, threshold)
    programs = [
        export(functools.partial(function, rounds=n), boxes, scores, chip=chip)
        for chip in chips
        for n in (FEW, MANY)
    ]
    estimates: list[Any] = estimate_all(programs, budget=BUDGET, progress=False)
    for estimate in estimates:
        if isinstance(estimate, TpuCompileError):
            raise estimate
    n, blocks = len(boxes), _blocks(implementation, len(boxes))
    counted = rounds(boxes, scores, threshold, block=block_of(implementation, n))
    modelled = []
    for chip, few, many in zip(chips, estimates[::2], estimates[1::2], strict=True):
        further = (many.seconds - few.seconds) / (MANY - FEW) / blocks
        # At worst a chain: each round settles one box more.
        figures = counted, n, few.seconds, further
        modelled.append(RoundsEstimate(implementation, workload, chip, *figures, few))
    return modelled


def rounds(boxes: Any, scores: Any, threshold: float, *, block: int | None = None) -> int:
    """How many rounds settle these boxes, the last included, which finds nothing changed.

    Args:
        boxes: [N, 4], float32.
        scores: [N], float32.
        threshold: of the overlap, 0 to 1.
        block: boxes that are settled together, of all blocks; None for all boxes at once.

    Returns:
        Their number.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from kernels.nms.xla import by_score, overlaps

    _, sides = by_score(jnp.asarray(boxes), jnp.asarray(scores))
    n = len(scores)

    @jax.jit
    def visit(keep, alive, start, rows):
        """One round for the boxes `rows` [5, m], which begin at rank `start`."""
        rank, here = jnp.arange(n), start + jnp.arange(rows.shape[1])
        drops = overlaps([s[:, None] for s in sides], rows, threshold)
        drops &= (rank[:, None] < here) & keep[:, None]
        return alive & ~drops.any(0)

    size = block or max(n, 1)
    table = np.stack(sides)
    keep, count = np.ones(n, bool), 0
    for start in range(0, n, size):
        here = slice(start, min(start + size, n))
        settled = np.where(np.arange(n) < start, keep, False)
        alive = np.asarray(visit(settled, np.ones_like(keep[here]), start, table[:, here]))
        keep[here] = alive
        while True:
            count += 1
            now = np.asarray(visit(keep, alive, start, table[:, here]))
            if np.array_equal(now, keep[here]):
                break
            keep[here] = now
    return count


def block_of(implementation: str, n: int) -> int | None:
    """How many boxes an implementation settles together; None for all.

    Args:
        implementation: of IMPLEMENTATIONS.
        n: boxes in all.
    """
    if implementation == "xla_matrix":
        return None
    from kernels.nms import pallas, xla

    return pallas.BLOCK if implementation == "pallas" else xla.block_for(n)


def _blocks(implementation: str, n: int) -> int:
    block = block_of(implementation, n)
    return -(-n // block) if block else 1


def _function(implementation: str, threshold: float) -> Callable[..., Any]:
    from kernels.nms import pallas, xla

    if implementation == "pallas":
        return functools.partial(pallas.nms, threshold=threshold, interpret=False)
    chosen = xla.nms_by_matrix if implementation == "xla_matrix" else xla.nms_in_blocks
    return functools.partial(chosen, threshold=threshold)


def record(
    implementations: Sequence[str], chips: Sequence[str]
) -> Iterator[tuple[RoundsEstimate, bool]]:
    """Estimate nms at the sizes of its chapter; each with whether its figure is kept, which it is
    unless the profile ran out of time: on a faster machine it is done in time."""
    for implementation in implementations:
        for workload in WORKLOADS.figures:
            for estimate in model(workload, implementation, chips):
                timely = LATE not in estimate.estimate.method
                if timely:
                    add("estimated.csv", [estimate.record()])
                yield estimate, timely
