"""The estimate beside every published measurement that can be compiled here: how far to trust it."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels import child
from kernels.checks import one_of
from kernels.records import bands
from kernels.records.bands import Checked
from kernels.records.programs import FAMILIES, family
from kernels.records.schema import Key, Record, versions
from kernels.records.store import read

LIMIT = 60.0  # seconds for a row
PUBLISHED = "published.csv"
SCALE = {"s": 1e3, "ms": 1.0}
# What a wall clock holds beside the chip's work: a Python call, its dispatch, and the wait for the
# result, on the v5e's host. One figure for all rows. The 1024³ rows of large blocks and of XLA,
# whose own work takes 0.02 ms, show it; so they test the model less than the others.
LAUNCH_SECONDS = {"v5e": 0.107e-3}


def published(chips: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[Record]:
    """The published times of programs that are known here.

    Args:
        chips: those of these chips alone; all if empty.
        kinds: OPERATOR or OPERATOR/IMPLEMENTATION, as FAMILIES has them; all if empty.

    Raises:
        ValueError: for a chip or a kind that no row is of.
    """
    rows = [r for r in read(PUBLISHED) if family(r) and r.quantity == "time" and r.clock]
    chips, kinds = tuple(chips), tuple(kinds)
    for chip in chips:
        one_of("--chip", chip, sorted({row.chip for row in rows}))
    known = {each.operator for each in FAMILIES.values()}
    known |= {each.name for each in FAMILIES.values()}
    for kind in kinds:
        one_of("--kind", kind, sorted(known))
    return [
        row
        for row in rows
        if row.chip in (chips or (row.chip,))
        and (not kinds or {row.operator, f"{row.operator}/{row.implementation}"} & {*kinds})
    ]


@functools.cache
def model() -> str:
    """A digest of the source that an estimate comes from."""
    package = Path(__file__).parents[1]
    files = [
        *package.glob("tpu/**/*.py"),
        *package.glob("pallas/*.py"),
        *package.glob("compat/*.py"),
    ]
    files.append(package / "records" / "programs.py")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:10]


def validate(
    rows: Sequence[Record],
    *,
    seconds: float = LIMIT,
    jobs: int = 1,
    fresh: bool = False,
    file: Path | None = None,
    progress: Callable[[Checked | None, int, int], None] = lambda row, done, of: None,
) -> list[Checked]:
    """Estimate rows in children, and keep each as soon as it is there.

    A row that is kept already, with the installed versions and this very estimator, is not
    estimated again: a run that was stopped goes on where it was.

    Args:
        rows: published ones.
        seconds: that one may take, compilations included.
        jobs: how many side by side.
        fresh: estimate those that are kept as well.
        file: where they are kept; by default, results/validation.csv.
        progress: told of each row, how many are done, and of how many.

    Returns:
        The rows, in order.
    """
    known = {} if fresh else {row.key: row for row in bands.read(file)}
    stamp = model(), versions("jax", "libtpu")
    found: dict[Key, Checked] = {}
    for row in rows:
        kept = known.get(row.key)
        if kept and (kept.model, kept.versions) == stamp and kept.published_ms == _ms(row):
            found[row.key] = kept
    waiting = [row for row in rows if row.key not in found]
    lock, local = threading.Lock(), threading.local()
    workers: list[_Worker] = []

    def one(row: Record) -> None:
        if not hasattr(local, "worker"):
            local.worker = _Worker(jobs)
            workers.append(local.worker)
        checked = _checked(row, local.worker.ask(row, seconds))
        with lock:
            found[row.key] = checked
            bands.add([checked], file)
            progress(checked, len(found), len(rows))

    progress(None, len(found), len(rows))
    pool = ThreadPoolExecutor(jobs)
    try:
        for _ in pool.map(one, waiting):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()
    return [found[row.key] for row in rows]


def _ms(row: Record) -> float:
    return row.value * SCALE[row.unit]


def _checked(row: Record, answer: dict[str, Any]) -> Checked:
    """The published row with an answer of the child."""
    known = {name: getattr(row, name) for name in Key.__dataclass_fields__}
    launch = LAUNCH_SECONDS[row.chip] * 1e3 if row.clock == "wall" else 0.0
    if answer.get("estimated_ms") is not None:
        answer = answer | {"estimated_ms": answer["estimated_ms"] + launch, "launch_ms": launch}
    return Checked(
        **known,
        clock=row.clock,
        published_ms=_ms(row),
        model=model(),
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


def _prepare() -> Callable[[tuple[Record, float]], dict[str, Any]]:
    """Load what takes a second or two."""
    from kernels.tpu import estimate  # noqa: F401

    return _answer


def _answer(question: tuple[Record, float]) -> dict[str, Any]:
    """Estimate a row: the columns of a Checked that are of the estimate."""
    from kernels.checks import brief
    from kernels.records.programs import program
    from kernels.tpu import estimate

    row, seconds = question
    start = time.monotonic()
    answer: dict[str, Any] = {}
    try:
        ran = program(row)
        found = estimate(
            ran.function, *ran.arguments, chip=row.chip, timeout=seconds, budget=seconds / 3
        )
        answer = {
            "estimated_ms": found.seconds * 1e3,
            "regime": bands.regime(found),
            "bound": found.bound,
            "method": found.method,
        }
    except Exception as error:  # whatever it is, it is this row's reason
        answer = {"reason": brief(error)}
    return answer | {"seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    child.serve(_prepare)
