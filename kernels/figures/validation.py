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

from kernels.figures import bands
from kernels.figures.bands import Checked
from kernels.figures.programs import BARS, FAMILIES, family
from kernels.figures.schema import Key, Record, model, versions
from kernels.figures.store import read
from kernels.machines import child
from kernels.machines.checks import one_of

LIMIT = 60.0  # seconds for a row
PUBLISHED = "published.csv"
SCALE = {"s": 1e3, "ms": 1.0}

# (operator, implementation), and the chip where it is of one alone → what the estimate of such a
# row does not know, as far as that was found out.
CAUTIONS: dict[tuple[str, ...], str] = {
    ("attention", "jax_flash", "v5e"): (
        "steps of 128 × 128, too short to hide a fetch. Of that wait the model takes off a share "
        "which a matmul's step has set; these overlap less: they took about 840 cycles each, "
        "however long the sequence, and are estimated at 830 down to 760"
    ),
    ("ragged_dot", "xla", "v6e"): (
        "what XLA's own kernel reaches of the peak is one constant for all chips, and was timed "
        "with instruction tracing on"
    ),
    ("dot_product_attention", "xla_chunked", "v5p"): (
        "a loop in a loop, whose buffers our compiler keeps in HBM. tokamax's own function has the "
        "same traffic, and so has ours with libtpu 0.0.50.1; most of the published times leave no "
        "room for it"
    ),
    ("dot_product_attention", "xla_chunked", "v6e"): (
        "a loop in a loop. tokamax's own function compiles to the same traffic, and so does ours "
        "with libtpu 0.0.50.1: a chunk's scores stay in VMEM. The published times fit scores that "
        "go through HBM where they take 4 MiB or more, and are shorter than ours where they take "
        "less"
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
        "where there are few features, a newer compiler converts while it copies, and moves fewer "
        "bytes"
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
    rows = [r for r in read(PUBLISHED) if family(r) and r.quantity == "time" and r.clock]
    chips, kinds = tuple(chips), tuple(kinds)
    for chip in chips:
        one_of("--chip", chip, sorted({row.chip for row in rows}))
    known = {each.operator for each in FAMILIES.values()}
    known |= {each.name for each in FAMILIES.values()}
    for kind in kinds:
        one_of("--kind", kind, sorted(known))
    turns: Counter = Counter()
    drawn = []
    for row in sorted(rows, key=_digest):
        of = row.operator, row.implementation, row.chip, bands.half(row)
        turns[of] += 1
        drawn.append((turns[of], row))
    return [
        row
        for turn, row in sorted(drawn, key=lambda each: each[0])
        if row.chip in (chips or (row.chip,))
        and (not kinds or {row.operator, f"{row.operator}/{row.implementation}"} & {*kinds})
        and (most is None or turn <= most)
    ]


def _digest(row: Record) -> bytes:
    said = f"{row.operator} {row.implementation} {row.text} {row.tuning} {row.chip}"
    return hashlib.sha256(said.encode()).digest()


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
    estimated again: a run that was stopped goes on where it was. Rows without any estimate come
    first.

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
    # Those that have no estimate yet come before those of another estimator.
    waiting = sorted((row for row in rows if row.key not in found), key=lambda r: r.key in known)
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


def caution(key: Key) -> str:
    """Why the estimate of such a row may be off; empty where nobody has found out."""
    of = key.operator, key.implementation
    return CAUTIONS.get((*of, key.chip)) or CAUTIONS.get(of, "")


def why(row: Checked) -> str:
    """Why an estimate may be off: what the row itself shows, and else what was found out of its
    kind; empty where neither says anything."""
    from kernels.machines.tpu.chips import chip

    rate = chip(row.chip).hbm_bytes_per_second
    least = row.hbm_bytes / rate * 1e3
    if row.chip_ms is not None and least > row.published_ms:
        return (
            "another program was timed: the bytes that ours moves would take longer than was "
            "published, even at the chip's full bandwidth"
        )
    if "no static profile: " in row.method:
        found = caution(row)
        return "no static profile, so the bundles of the schedule are counted" + (
            f"; {found}" if found else ""
        )
    return caution(row)


def sorts(rows: Iterable[Checked]) -> dict[tuple[str, str, str], list[Checked]]:
    """(chip, sort, half) → the rows of that, in the order of chips, of BARS and of HALVES."""
    found: dict[tuple[str, str, str], list[Checked]] = {}
    for row in rows:
        sort = FAMILIES[row.operator, row.implementation].sort
        found.setdefault((row.chip, sort, row.half), []).append(row)
    order = [*BARS]
    place = lambda key: (key[0], order.index(key[1]), bands.HALVES.index(key[2]))
    return {key: found[key] for key in sorted(found, key=place)}


def _ms(row: Record) -> float:
    return round(row.value * SCALE[row.unit], bands.DIGITS)


def _checked(row: Record, answer: dict[str, Any]) -> Checked:
    """The published row with an answer of the child."""
    known = {name: getattr(row, name) for name in Key.__dataclass_fields__}
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
    from kernels.machines.tpu import estimate  # noqa: F401

    return _answer


def _answer(question: tuple[Record, float]) -> dict[str, Any]:
    """Estimate a row: the columns of a Checked that are of the estimate."""
    from kernels.figures.programs import another_program, program
    from kernels.machines.checks import brief
    from kernels.machines.tpu import CHIPS, estimate
    from kernels.machines.tpu.estimate.profile import BUDGET

    row, seconds = question
    start = time.monotonic()
    answer: dict[str, Any] = {}
    try:
        ran = program(row)
        found = estimate(
            ran.function,
            *ran.arguments,
            chip=row.chip,
            values=ran.values or None,
            timeout=seconds,
            budget=min(seconds / 3, BUDGET),
        )
        launch = (found.launch_seconds or 0.0) if row.clock == "wall" else 0.0
        answer = {
            "estimated_ms": (found.seconds + launch) * 1e3,
            "launch_ms": launch * 1e3,
            "regime": found.regime,
            "bound": found.bound,
            "hbm_bytes": round(found.hbm_bytes),
            "method": found.method,
        }
        kernel = any(op.kind == "kernel" for op in found.ops)
        if reason := another_program(row, kernel, CHIPS[row.chip].peak(row.dtype)):
            answer = {"reason": reason}
    except Exception as error:  # whatever it is, it is this row's reason
        answer = {"reason": brief(error)}
    return answer | {"seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    child.serve(_prepare)
