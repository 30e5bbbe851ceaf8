"""The tuner's record: the blocks that a search on the hardware found, among ours.

tokamax keeps, of each problem, the tuning that was fastest on the chip. Here the same kernel is
estimated at that tuning and at others of the same search space, and ranked as the tuner ranks them:
by the compiler's schedule and the bytes that are moved, without its static profile. That serves few
of these kernels: it ends with an error on a v6e and knows no loop whose length is data; and times
with a profile do not compare with times without.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.figures import validation
from kernels.figures.bands import quantile
from kernels.figures.programs import FAMILIES, program
from kernels.figures.schema import Key, Named, Record, estimator
from kernels.figures.store import TuningStore, read
from kernels.machines.tpu.chips import chip

SEARCHED = "searched.csv"
OTHERS = 9  # tunings beside theirs
FEWEST = 3  # tunings with an estimate, below which a ranking says nothing
SETTLED = 10  # rankings, below which their record is said to settle nothing
LOSS = 0.03  # that our first choice may differ from theirs by: the middle of all problems
ALIKE = 1e-3  # between two estimates that do not tell their tunings apart
SECONDS = 60.0  # that one estimate may take
LANES = 128  # of which the tiles of a ragged product's columns are multiples; others are refused
ROUNDS = 5_000  # of a ragged product's tiles, beyond which counting them takes too long


@dataclass(frozen=True)
class Searched:
    """One problem, ranked.

    Args:
        row: the published one, whose tuning is theirs.
        theirs: its estimated milliseconds; infinite where our compiler refuses it.
        trials: every tuning that was tried, theirs included, and its estimated milliseconds, the
            fastest first; infinite where our compiler refuses it.
        versions: of what estimated all of them.
        profiled: whether the static profile was asked for some.
    """

    row: Record
    theirs: float
    trials: tuple[tuple[Named, float], ...]
    versions: str = ""
    profiled: bool = False

    @property
    def current(self) -> bool:
        """Whether the installed versions and this very model made it."""
        return self.versions == estimator()

    @property
    def known(self) -> int:
        """How many have an estimate."""
        return sum(math.isfinite(ms) for _, ms in self.trials)

    @property
    def place(self) -> int | None:
        """Of theirs in our ranking, from 1; None where it has no estimate."""
        if math.isinf(self.theirs):
            return None
        return 1 + sum(ms < self.theirs for _, ms in self.trials)

    @property
    def tells(self) -> bool:
        """Whether so many have an estimate that a place among them says something."""
        return self.known >= FEWEST

    @property
    def first(self) -> bool:
        """Whether no other tuning is estimated faster than theirs."""
        return self.place == 1

    @property
    def tied(self) -> bool:
        """Whether theirs is estimated like another tuning, so that its place is by chance."""
        near = (abs(ms / self.theirs - 1) < ALIKE for _, ms in self.trials)
        return math.isfinite(self.theirs) and sum(near) > 1

    @property
    def loss(self) -> float | None:
        """By how much theirs is slower than our first choice, as estimated; it was faster on the
        hardware than whatever else was tried there, so this is an error of the ranking."""
        return None if math.isinf(self.theirs) else self.theirs / self.trials[0][1] - 1


def problems(
    most: int | None = None, chips: Iterable[str] = (), kinds: Iterable[str] = ()
) -> list[Record]:
    """Published rows whose tuning a search on the hardware found, and whose rounds are counted.

    They come in turns, one of each kernel, chip and half after another, in the order that a hash
    has drawn.

    Args:
        most: how many.
        chips: those of these chips alone; all if empty.
        kinds: such as "dot_product_attention/tokamax"; all that were searched if empty.
    """
    searched = [each.name for each in FAMILIES.values() if each.needs == "tokamax"]
    rows = validation.published(chips, [*kinds] or searched)
    return [row for row in rows if countable(row, row.tuning)][:most]


def candidates(row: Record) -> Iterator[Named]:
    """The other tunings of a row's search space that can be ranked, in the order that a hash has
    drawn.

    Raises:
        MissingPackage: without tokamax.
    """
    tunings = program(row).tunings
    names = [*row.tuning]
    space = [Named({name: each[name] for name in names}) for each in (tunings() if tunings else ())]
    named = {each for each in space if each != row.tuning and rankable(row, each)}
    digest = lambda each: hashlib.sha256(f"{row.text} {row.chip} {each}".encode()).digest()
    yield from sorted(named, key=digest)


def rankable(row: Record, tuning: Named) -> bool:
    """Whether a tuning gets an estimate in seconds: of a ragged product, the compiler refuses tiles
    that cut across a register's lanes or do not fit into VMEM, and small ones have more rounds than
    are counted."""
    if row.operator != "ragged_dot":
        return True
    tile = tuning.typed()
    m, k, n = (tile[f"tile_{each}"] for each in "mkn")
    cut = any(
        tile[f"tile_{each}"] % LANES and tile[f"tile_{each}"] < row.sizes[each] for each in "kn"
    )
    sides = {"forward": (m * k, k * n, m * n), "dlhs": (m * n, k * n, m * k)}
    *read, made = sides.get(str(row.options.get("form", "forward")), (m * k, m * n, k * n))
    # Two results of two bytes an element are on their way, beside the sums of four.
    held = 2 * tile["input_buffer_count"] * sum(read) + (2 * 2 + 4) * made
    return countable(row, tuning) and not cut and held <= chip(row.chip).vmem_limit_bytes


def countable(row: Record, tuning: Named) -> bool:
    """Whether the rounds of a tuning are counted to the end."""
    if row.operator != "ragged_dot":
        return True
    tile, size = tuning.typed(), row.sizes
    rounds = -(-size["m"] // tile["tile_m"]) + size["g"]
    for each in "kn":
        rounds *= -(-size[each] // tile[f"tile_{each}"])
    return rounds <= ROUNDS


def search(
    rows: Sequence[Record],
    *,
    others: int = OTHERS,
    file: Path | str = SEARCHED,
    fresh: bool = False,
    progress: Callable[[Record, int, int], None] = lambda row, done, of: None,
) -> list[Searched]:
    """Rank the tunings of published rows with the tuner, and keep each trial at once.

    A problem that was ranked whole is kept, whatever model ranked it; its record says which. One
    that was begun goes on where it was if the installed versions and the model are the same.

    Args:
        rows: of `problems`.
        others: tunings of each that are tried beside theirs.
        file: of records; by default, results/searched.csv.
        fresh: rank again what is kept.
        progress: told of the row, how many of its tunings are done, and of how many.

    Raises:
        MissingPackage: without tokamax or libtpu.
    """
    for row in rows:
        if fresh or not _whole(row, others, file):
            _tuned(row, others, TuningStore(row.key, file, fresh), progress)
    return found(file, rows)


def _whole(row: Record, others: int, file: Path | str) -> bool:
    """Whether one model has tried all tunings that are drawn."""
    known = {tuning for each in found(file, [row]) for tuning, _ in each.trials}
    return bool(known) and known >= {row.tuning, *itertools.islice(candidates(row), others)}


def _tuned(row: Record, others: int, store: TuningStore, progress: Callable[..., None]) -> None:
    from kernels.machines import tpu

    def kernel(*arrays: Any, **tuning: Any) -> Any:
        return program(
            dataclasses.replace(row, tuning=Named(tuning) if tuning else row.tuning)
        ).function(*arrays)

    ran = program(row)
    drawn = itertools.islice(candidates(row), others)
    tpu.tune(
        kernel,
        *ran.arguments,
        candidates=[row.tuning.typed(), *(each.typed() for each in drawn)],
        chip=row.chip,
        name=f"{row.operator} {row.text}",
        most=others + 1,
        store=store,
        timeout=SECONDS,
        progress=lambda done, of: progress(row, done, of),
        values=ran.values or None,
        default=False,
        profile=False,
    )


def found(file: Path | str = SEARCHED, rows: Iterable[Record] | None = None) -> list[Searched]:
    """The rankings that are kept, in the order of `problems`; of a problem that several models have
    tried tunings of, that with the most of them.

    Args:
        file: of records.
        rows: of which; by default, all that the file knows theirs of.
    """
    kept: dict[Key, dict[str, dict[Named, Record]]] = {}
    for record in read(file):
        of = kept.setdefault(dataclasses.replace(record.key, tuning=Named()), {})
        of.setdefault(record.versions, {})[record.tuning] = record
    made = []
    for row in problems() if rows is None else rows:
        tried = kept.get(dataclasses.replace(row.key, tuning=Named()), {})
        whole = [each for each, records in tried.items() if row.tuning in records]
        if whole:
            versions = max(whole, key=lambda each: (len(tried[each]), each == estimator()))
            records = tried[versions]
            trials = {tuning: record.value for tuning, record in records.items()}
            ranked = sorted(trials.items(), key=lambda trial: trial[1])
            profiled = any(r.method.startswith("static profile") for r in records.values())
            made.append(Searched(row, trials[row.tuning], tuple(ranked), versions, profiled))
    return made


def told(known: Sequence[Searched]) -> Iterator[str]:
    """What the rankings come to, and what made them, a sentence at a time."""
    ranked = [each for each in known if each.tells]
    if older := sum(bool(each.versions) and not each.current for each in known):
        yield f"{older} of {len(known)} rankings are of an earlier model, as their rows say."
    if asked := sum(each.profiled for each in known):
        was = "was" if asked == 1 else "were"
        yield f"{asked} of {len(known)} {was} made with the compiler's static profile."
    if silent := len(known) - len(ranked):
        yield (
            f"In {silent} of {len(known)} rankings fewer than {FEWEST} tunings have an estimate, "
            "for our compiler refuses the others or their loops are too long to count: these say "
            "nothing."
        )
    if not ranked:
        return
    first = [each for each in ranked if each.first]
    tied = sum(each.tied for each in first)
    beside = f", {tied} of them with another whose estimate is within {ALIKE:.1%}" if tied else ""
    blindly = sum(1 / each.known for each in ranked if each.place)
    yield (
        f"In {len(first)} of {len(ranked)} rankings ({len(first) / len(ranked):.0%}) theirs comes "
        f"first{beside}; by chance it would in about {blindly:.0f}."
    )
    if (middle := loss(ranked)) is not None:
        reached = "reached" if middle <= LOSS else "missed"
        yield (
            f"At the median, their tuning is estimated {middle:.1%} slower than our first choice; "
            f"our bar was {LOSS:.0%}, and it is {reached}."
        )
    if refused := sum(each.place is None for each in ranked):
        yield f"Theirs has no estimate in {refused}."
    if len(ranked) < SETTLED:
        yield "So few rankings settle nothing yet."


def loss(known: Iterable[Searched]) -> float | None:
    """By how much theirs is slower than our first choice, as estimated, in the middle of the
    problems whose rankings tell; None where none of theirs has an estimate."""
    losses = sorted(each.loss for each in known if each.tells and each.loss is not None)
    return quantile(losses, 0.5) if losses else None


def current(file: Path | str = SEARCHED) -> bool:
    """Whether the file is of the installed versions and of this very model."""
    return {record.versions for record in read(file)} <= {estimator()}
