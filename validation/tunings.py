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

from kernels.figures.schema import Key, Named, Record, estimator
from kernels.figures.store import TuningStore, read
from kernels.machines import tpu
from kernels.machines.tpu.chips import chip
from validation.comparisons import quantile
from validation.tpu_programs import FAMILIES, program
from validation.tpu_times import PROGRAMS, published

__all__ = ["Ranking", "candidates", "countable", "current", "held", "loss", "plain", "problems"]
__all__ += ["rankable", "rankings", "search", "sentences"]
SEARCHED = "searched.csv"
OTHERS = 9  # tunings beside theirs
FEWEST = 3  # tunings with an estimate, below which a ranking says nothing
KEPT = 3  # of our first choices, which somebody with a chip would time
SETTLED = 10  # rankings, below which their record is said to settle nothing
LOSS = 0.03  # that our first choice may differ from theirs by: the middle of all problems
ALIKE = 1e-3  # between two estimates that do not tell their tunings apart
SECONDS = 60.0  # that one estimate may take
DEFAULTS = {  # what JAX's own kernels, splash attention and megablox, take where nobody chooses
    "dot_product_attention": Named.parse(
        "block_q=128 block_kv=128 block_kv_compute=128 q_layout=1 k_layout=1 v_layout=1 "
        "use_experimental_scheduler=False"
    ),
    "ragged_dot": Named.parse("tile_m=128 tile_k=128 tile_n=128 input_buffer_count=2"),
}
LANES = 128  # of which the tiles of a ragged product's columns are multiples; others are refused
ROUNDS = 5_000  # of tiles, beyond which counting them takes too long


@dataclass(frozen=True)
class Ranking:
    """The tunings of one problem, by their estimates.

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
        return self.versions == estimator(*PROGRAMS)

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

    @property
    def plainly(self) -> dict[str, float]:
        """Rule of `plain` → by how much its tuning is estimated slower than theirs; the largest
        tiles are those of the tunings that our compiler takes."""
        ms = dict(self.trials)
        rules = plain(self.row, [tuning for tuning in ms if math.isfinite(ms[tuning])])
        return {rule: ms[t] / self.theirs - 1 for rule, t in rules.items() if t in ms}


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
    searched = ["/".join(key) for key in FAMILIES if key[1] == "tokamax"]
    rows = published(chips, [*kinds] or searched)
    return [row for row in rows if countable(row, row.tuning)][:most]


def candidates(row: Record) -> Iterator[Named]:
    """The other tunings of a row's search space that can be ranked: first those of `plain`, then in
    the order that a hash has drawn.

    Raises:
        MissingPackage: without tokamax.
    """
    tunings = program(row).tunings
    listed = tunings() if tunings else []
    space = [Named({name: tried[name] for name in row.tuning}) for tried in listed]
    others = [tuning for tuning in space if rankable(row, tuning)]
    order = [*plain(row, others).values(), *sorted(others, key=lambda t: _draw(row, t))]
    yield from (tuning for tuning in dict.fromkeys(order) if tuning != row.tuning)


def _draw(row: Record, tuning: Named) -> bytes:
    return hashlib.sha256(f"{row.text} {row.chip} {tuning}".encode()).digest()


def plain(row: Record, tunings: Iterable[Named]) -> dict[str, Named]:
    """What two rules choose of a row's tunings that need no estimate: the largest tiles whose
    blocks fit into the VMEM that a kernel is granted, and JAX's default. A rule that finds none is
    left out, and so are both for a kernel whose `held` nobody has written down. JAX's default need
    not be one of them."""
    if row.operator not in DEFAULTS:
        return {}
    fit = [tuning for tuning in tunings if held(row, tuning) <= chip(row.chip).vmem_limit_bytes]
    size = lambda tuning: (_elements(tuning), -held(row, tuning), _draw(row, tuning))
    chosen = {"the largest tiles tried that fit": max(fit, key=size)} if fit else {}
    default = Named({**row.tuning, **DEFAULTS[row.operator]})
    return chosen | ({"JAX's default": default} if rankable(row, default) else {})


def _elements(tuning: Named) -> int:
    """Of a tuning's tiles, multiplied."""
    return math.prod(tuning[name] for name in tuning if name.startswith(("block", "tile")))


def held(row: Record, tuning: Named) -> int:
    """Bytes of VMEM that a tuning's blocks take, of two bytes an element: each that is fetched as
    often as it is buffered, each that is written twice, and in float32 what is summed up."""
    if row.operator == "dot_product_attention":
        q, kv, part = (tuning[f"block_{name}"] for name in ("q", "kv", "kv_compute"))
        d, e = row.sizes["d"], row.sizes["e"]
        # The scores of one part, and their exponentials, are of float32 too.
        return 2 * 2 * (q * d + kv * (d + e) + q * e) + 4 * (2 * q * part + q * e)
    m, k, n = (tuning[f"tile_{name}"] for name in "mkn")
    sides = {"forward": (m * k, k * n, m * n), "dlhs": (m * n, k * n, m * k)}
    *sources, result = sides.get(str(row.options.get("form", "forward")), (m * k, m * n, k * n))
    return 2 * tuning["input_buffer_count"] * sum(sources) + (2 * 2 + 4) * result


def rankable(row: Record, tuning: Named) -> bool:
    """Whether a tuning gets an estimate in seconds: of a ragged product, the compiler refuses tiles
    that cut across a register's lanes or do not fit into VMEM, and small ones have more rounds than
    are counted."""
    if row.operator != "ragged_dot":
        return countable(row, tuning)
    tiles = {name: tuning[f"tile_{name}"] for name in "kn"}
    cut = any(tile % LANES and tile < row.sizes[name] for name, tile in tiles.items())
    fits = held(row, tuning) <= chip(row.chip).vmem_limit_bytes
    return countable(row, tuning) and not cut and fits


def countable(row: Record, tuning: Named) -> bool:
    """Whether the rounds of a tuning are counted to the end."""
    if row.operator == "dot_product_attention":
        n, m = row.sizes["n"], row.sizes["m"]
        return -(-n // tuning["block_q"]) * -(-m // tuning["block_kv"]) <= ROUNDS
    if row.operator != "ragged_dot":
        return True
    tiles = {name: -(-row.sizes[name] // tuning[f"tile_{name}"]) for name in "mkn"}
    return (tiles["m"] + row.sizes["g"]) * tiles["k"] * tiles["n"] <= ROUNDS


def search(
    rows: Sequence[Record],
    *,
    others: int = OTHERS,
    file: Path | str = SEARCHED,
    fresh: bool = False,
    progress: Callable[[Record, int, int], None] = lambda row, done, whole: None,
) -> list[Ranking]:
    """Rank the tunings of published rows with the tuner, and keep each trial at once.

    A problem that was ranked whole is kept, whatever model ranked it; its record says which. One
    that was begun goes on where it was if the installed versions and the model are the same.

    Args:
        rows: of `problems`.
        others: tunings of each that are tried beside theirs.
        file: of records; by default, results/searched.csv.
        fresh: rank again what is kept.
        progress: is given the row, how many of its tunings are done, and of how many.

    Raises:
        MissingPackage: without tokamax or libtpu.
    """
    for row in rows:
        if fresh or not _whole(row, others, file):
            _tune(row, others, TuningStore(row.key, file, fresh, estimator(*PROGRAMS)), progress)
    return rankings(file, rows)


def _whole(row: Record, others: int, file: Path | str) -> bool:
    """Whether one model has tried all tunings that are drawn."""
    known = {tuning for ranking in rankings(file, [row]) for tuning, _ in ranking.trials}
    return bool(known) and known >= {row.tuning, *itertools.islice(candidates(row), others)}


def _tune(row: Record, others: int, store: TuningStore, progress: Callable[..., None]) -> None:
    def kernel(*arrays: Any, **tuning: Any) -> Any:
        tuned = dataclasses.replace(row, tuning=Named(tuning) if tuning else row.tuning)
        return program(tuned).function(*arrays)

    ran = program(row)
    drawn = itertools.islice(candidates(row), others)
    tpu.tune(
        kernel,
        *ran.arguments,
        candidates=[row.tuning.typed(), *(tuning.typed() for tuning in drawn)],
        chip=row.chip,
        name=f"{row.operator} {row.text}",
        most=others + 1,
        store=store,
        timeout=SECONDS,
        progress=lambda done, whole: progress(row, done, whole),
        default=False,
        profile=False,
    )


def rankings(file: Path | str = SEARCHED, rows: Iterable[Record] | None = None) -> list[Ranking]:
    """The rankings that are kept, in the order of `problems`; of a problem that several models have
    tried tunings of, that with the most of them.

    Args:
        file: of records.
        rows: of which; by default, all that the file knows theirs of.
    """
    kept: dict[Key, dict[str, dict[Named, Record]]] = {}
    for record in read(file, missing_ok=True):
        models = kept.setdefault(dataclasses.replace(record.key, tuning=Named()), {})
        models.setdefault(record.versions, {})[record.tuning] = record
    ranked = []
    for row in problems() if rows is None else rows:
        models = kept.get(dataclasses.replace(row.key, tuning=Named()), {})
        whole = [versions for versions, records in models.items() if row.tuning in records]
        if whole:
            current = estimator(*PROGRAMS)
            versions = max(whole, key=lambda name: (len(models[name]), name == current))
            records = models[versions]
            trials = sorted(((tuning, r.value) for tuning, r in records.items()), key=_time)
            profiled = any(r.method.startswith("static profile") for r in records.values())
            theirs = records[row.tuning].value
            ranked.append(Ranking(row, theirs, tuple(trials), versions, profiled))
    return ranked


def _time(trial: tuple[Named, float]) -> float:
    return trial[1]


def sentences(known: Sequence[Ranking]) -> Iterator[str]:
    """What the rankings come to, and what made them, a sentence at a time."""
    ranked = [ranking for ranking in known if ranking.tells]
    if older := sum(bool(ranking.versions) and not ranking.current for ranking in known):
        yield f"{older} of {len(known)} rankings are of an earlier model, as their rows say."
    if asked := sum(ranking.profiled for ranking in known):
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
    first = [ranking for ranking in ranked if ranking.first]
    tied = sum(ranking.tied for ranking in first)
    beside = f", {tied} of them with another whose estimate is within {ALIKE:.1%}" if tied else ""
    blindly = sum(1 / ranking.known for ranking in ranked if ranking.place)
    yield (
        f"In {len(first)} of {len(ranked)} rankings ({len(first) / len(ranked):.0%}) theirs comes "
        f"first{beside}; by chance it would in about {blindly:.0f}. Of {KEPT} that we would time, "
        f"theirs is one in {sum(ranking.place in range(1, KEPT + 1) for ranking in ranked)}."
    )
    losses = sorted(ranking.loss for ranking in ranked if ranking.loss is not None)
    if (middle := loss(ranked)) is not None:
        reached = "reached" if middle <= LOSS else "missed"
        yield (
            f"At the median, their tuning is estimated {middle:.1%} slower than our first choice; "
            f"our bar was {LOSS:.0%}, and it is {reached}. "
            f"On average it is {sum(losses) / len(losses):.0%}, at worst {losses[-1]:.0%}."
        )
    for rule in dict.fromkeys(itertools.chain(*(r.plainly for r in ranked if r.place))):
        chosen = [r.plainly[rule] for r in ranked if r.place and rule in r.plainly]
        if not (slower := sorted(filter(math.isfinite, chosen))):
            continue
        refused = len(chosen) - len(slower)
        yield (
            f"What a plain rule chooses, {rule}, has an estimate in {len(slower)} problems: at the "
            f"median {quantile(slower, 0.5):.0%} slower than theirs, on average "
            f"{sum(slower) / len(slower):.0%}, at worst {slower[-1]:.0%}"
            + (f"; in {refused} our compiler refuses it." if refused else ".")
        )
    if refused := sum(ranking.place is None for ranking in ranked):
        yield f"Theirs has no estimate in {refused}."
    if len(ranked) < SETTLED:
        yield "So few rankings settle nothing yet."


def loss(known: Iterable[Ranking]) -> float | None:
    """By how much theirs is slower than our first choice, as estimated, in the middle of the
    problems whose rankings tell; None where none of theirs has an estimate."""
    losses = sorted(r.loss for r in known if r.tells and r.loss is not None)
    return quantile(losses, 0.5) if losses else None


def current(file: Path | str = SEARCHED) -> bool:
    """Whether the file is of the installed versions and of this very model."""
    return {record.versions for record in read(file)} <= {estimator(*PROGRAMS)}
