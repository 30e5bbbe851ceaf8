"""The estimate beside every published time whose program is known here: how far to trust it."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.figures.schema import Key, Record, model, versions
from kernels.figures.store import read
from kernels.machines import child, tpu
from kernels.machines.checks import brief, one_of
from kernels.machines.tpu.chips import chip
from kernels.machines.tpu.estimate.bands import compiler
from kernels.machines.tpu.estimate.profile import BUDGET
from validation import comparisons, fused_programs, tokamax_door, tpu_programs
from validation.comparisons import Comparison
from validation.tpu_programs import (
    BARS,
    BIAS,
    FAMILIES,
    another_program,
    family,
    milliseconds,
    program,
)

__all__ = ["BARS", "BIAS", "caution", "published", "sorts", "validate", "why"]
LIMIT = 60.0  # seconds for a row
PUBLISHED = "published.csv"
# The files whose code decides what is estimated.
PROGRAMS = tuple(Path(str(m.__file__)) for m in (tpu_programs, fused_programs, tokamax_door))

# (operator, implementation), and the chip where it is of one alone → what the estimate of such a
# row does not know, as far as that was found out.
CAUTIONS: dict[tuple[str, ...], str] = {
    ("attention", "jax_flash", "v5e"): (
        "steps of 128 × 128, too short to hide a fetch. Of that wait the model takes off a share "
        "which a matmul's step has set; these overlap less"
    ),
    ("ragged_dot", "xla", "v6e"): (
        "what XLA's own kernel reaches of the peak is one constant for all chips, and was timed "
        "with instruction tracing on"
    ),
    ("dot_product_attention", "xla_chunked"): (
        "a loop in a loop, whose buffers another compiler keeps elsewhere. tokamax's own function "
        "compiles to the traffic of ours, also with libtpu 0.0.50.1"
    ),
    ("dot_product_attention", "tokamax"): (
        "probably a newer compiler made what was timed. Where the sums of the softmax are kept, "
        "that took longer by about one more pass over one of the two arrays than ours has; and a "
        "block that a mask cuts took longer than its schedule is"
    ),
    ("ragged_dot", "tokamax"): (
        "its loop is as long as the groups say, so there is no profile; what is done once a group, "
        "such as clearing and writing the sums of the right side's gradient, is not counted"
    ),
    ("gated_linear_unit", "xla"): (
        "where there are few features, what was timed converts while it copies, and moves fewer "
        "bytes than our program; compiled with libtpu 0.0.50.1 it moves still more"
    ),
}


def published(
    chips: Iterable[str] = (), kinds: Iterable[str] = (), most: int | None = None
) -> list[Record]:
    """The published times of programs that are known here.

    They come in turns, one of each family, chip and half after another, in an order that a hash
    has drawn: a run that is stopped has seen some of each.

    Args:
        chips: those of these chips alone; all if empty.
        kinds: OPERATOR or OPERATOR/IMPLEMENTATION, as FAMILIES has them; all if empty.
        most: rows of each family, chip and half; None for all.

    Raises:
        ValueError: for a chip or a kind that no row is of.
    """
    rows = [
        r
        for r in read(PUBLISHED, missing_ok=True)
        if family(r) and r.quantity == "time" and r.clock
    ]
    chips, kinds = tuple(chips), tuple(kinds)
    for name in chips:
        one_of("--chip", name, sorted({row.chip for row in rows}))
    known = {name for family in FAMILIES.values() for name in (family.operator, family.name)}
    for kind in kinds:
        one_of("--kind", kind, sorted(known))
    turns: Counter = Counter()
    drawn = []
    for row in sorted(rows, key=_digests):
        group = row.operator, row.implementation, row.chip, row.half
        turns[group] += 1
        drawn.append((turns[group], row))
    return [
        row
        for turn, row in sorted(drawn, key=lambda place: place[0])
        if row.chip in (chips or (row.chip,))
        and (not kinds or {row.operator, f"{row.operator}/{row.implementation}"} & {*kinds})
        and (most is None or turn <= most)
    ]


def _digests(row: Record) -> tuple[bytes, bytes]:
    """That of the problem comes first: of each implementation the same problems are drawn."""
    digest = lambda said: hashlib.sha256(said.encode()).digest()
    problem = digest(f"{row.operator} {row.text} {row.chip}")
    return problem, digest(f"{row.implementation} {row.tuning}")


def validate(
    rows: Sequence[Record],
    *,
    seconds: float = LIMIT,
    jobs: int = 1,
    fresh: bool = False,
    file: Path | None = None,
    progress: Callable[[Comparison | None, int, int], None] = lambda row, done, whole: None,
) -> list[Comparison]:
    """Estimate rows in children, and keep each as soon as it is there.

    A row that is kept already, with the installed versions and this very estimator, is not
    estimated again: a run that was stopped goes on where it was. Rows without any estimate come
    first, and of them those whose last estimate, by whatever compiler, was quick.

    Args:
        rows: published ones.
        seconds: that one may take, compilations included.
        jobs: how many side by side.
        fresh: estimate those that are kept as well.
        file: where they are kept; by default, results/validation.csv.
        progress: is given each row, how many are done, and of how many.

    Returns:
        The rows, in order.
    """
    stamp = model(*PROGRAMS), versions("jax", "libtpu")
    kept_rows = [] if fresh else comparisons.read(file, compiler(stamp[1]))
    known = {row.key: row for row in kept_rows}
    compared: dict[Key, Comparison] = {}
    for row in rows:
        kept = known.get(row.key)
        same = kept and kept.published_ms == round(milliseconds(row), comparisons.DIGITS)
        if kept and same and (kept.model, kept.versions) == stamp:
            compared[row.key] = kept
    # Those that have no estimate yet come before those of another estimator, the short ones first.
    lasted = {row.key: row.seconds for row in comparisons.read(file)}
    turn = lambda row: (row.key in known, lasted.get(row.key, seconds))
    waiting = sorted((row for row in rows if row.key not in compared), key=turn)
    lock, local = threading.Lock(), threading.local()
    workers: list[_Worker] = []

    def one(row: Record) -> None:
        if not hasattr(local, "worker"):
            local.worker = _Worker(jobs)
            workers.append(local.worker)
        comparison = _compared(row, local.worker.ask(row, seconds))
        with lock:
            compared[row.key] = comparison
            comparisons.add([comparison], file)
            progress(comparison, len(compared), len(rows))

    progress(None, len(compared), len(rows))
    pool = ThreadPoolExecutor(jobs)
    try:
        for _ in pool.map(one, waiting):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()
    return [compared[row.key] for row in rows]


def caution(key: Key) -> str:
    """Why the estimate of such a row may be off; empty where nobody has found out."""
    kind = key.operator, key.implementation
    return CAUTIONS.get((*kind, key.chip)) or CAUTIONS.get(kind, "")


def why(row: Comparison) -> str:
    """Why an estimate may be off: what the row itself shows, and else what was found out of its
    kind; empty where neither says anything."""
    least = row.hbm_bytes / chip(row.chip).hbm_bytes_per_second * 1e3
    if row.chip_ms is not None and least > row.published_ms:
        return (
            "another program was timed: the bytes that ours moves would take longer than was "
            "published, even at the chip's full bandwidth"
        )
    unprofiled = "no static profile: " in row.method
    reasons = ["no static profile, so the bundles of the schedule are counted"] * unprofiled
    return "; ".join(filter(None, (*reasons, caution(row))))


def sorts(rows: Iterable[Comparison]) -> dict[tuple[str, str, str], list[Comparison]]:
    """(chip, sort, half) → the rows of that, in the order of chips, of BARS and of HALVES."""
    sorted_rows: dict[tuple[str, str, str], list[Comparison]] = {}
    for row in rows:
        sort = FAMILIES[row.operator, row.implementation].sort
        sorted_rows.setdefault((row.chip, sort, row.half), []).append(row)
    order = [*BARS]
    place = lambda key: (key[0], order.index(key[1]), comparisons.HALVES.index(key[2]))
    return {key: sorted_rows[key] for key in sorted(sorted_rows, key=place)}


def _compared(row: Record, answer: dict[str, Any]) -> Comparison:
    """The published row with an answer of the child."""
    return Comparison(
        **{name: getattr(row, name) for name in Key.__dataclass_fields__},
        clock=row.clock,
        published_ms=milliseconds(row),
        model=model(*PROGRAMS),
        versions=versions("jax", "libtpu"),
        date=time.strftime("%Y-%m-%d"),
        **answer,
    )


class _Worker:
    """A child that estimates one row after another, and is replaced where it dies or is late."""

    def __init__(self, jobs: int) -> None:
        self.environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        if jobs > 1:
            self.environment["KERNELS_TPU_CHILDREN"] = "1"
        self.child: child.Child | None = None

    def ask(self, row: Record, seconds: float) -> dict[str, Any]:
        """What the child says of a row, or why it says nothing."""
        start = time.monotonic()
        if self.child is None or self.child.ended or self.child.memory > child.LARGEST:
            self.close()
            command = child.python(__file__)
            self.child = child.Child(command, environment=self.environment)
        try:
            return self.child.ask((row, seconds), seconds)
        except child.ChildLate:
            reason = f"no estimate in {seconds:g} s"
        except child.ChildError as error:
            reason = str(error)
        return {"reason": reason, "seconds": round(time.monotonic() - start, 1)}

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.close()
            self.child = None


# --- in the child ---------------------------------------------------------------------------------


def _answer(question: tuple[Record, float]) -> dict[str, Any]:
    """Estimate a row: the columns of a Comparison that are of the estimate."""
    row, seconds = question
    start = time.monotonic()
    answer: dict[str, Any] = {}
    try:
        ran = program(row)
        estimate = tpu.estimate(
            ran.function,
            *ran.arguments,
            chip=row.chip,
            timeout=seconds,
            budget=min(seconds / 3, BUDGET),
        )
        launch = (estimate.launch_seconds or 0.0) if row.clock == "wall" else 0.0
        answer = {
            "estimated_ms": (estimate.seconds + launch) * 1e3,
            "launch_ms": launch * 1e3,
            "regime": estimate.regime,
            "bound": estimate.bound,
            "hbm_bytes": round(estimate.hbm_bytes),
            "method": estimate.method,
        }
        kernel = any(op.kind == "kernel" for op in estimate.ops)
        if reason := another_program(row, kernel, chip(row.chip).peak(row.dtype)):
            answer = {"reason": reason}
    except Exception as error:  # whatever it is, it is this row's reason
        answer = {"reason": brief(error)}
    return answer | {"seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    child.serve(lambda: _answer)
