"""Rank the keyword arguments of a function that somebody brought, by estimate, in children."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.figures.table import format_seconds
from kernels.machines.checks import fail
from kernels.machines.tpu.pool import libtpu_version
from kernels.machines.tpu.tuner import Trial
from kernels.yours import cache
from kernels.yours.proving import Lost, asking
from kernels.yours.shapes import literal

MOST = 24
SAME = 0.01
BATCH = 2  # estimated together, and kept before the next ones begin


@dataclass(frozen=True)
class Tuned:
    """What tune_file found."""

    trials: tuple[Trial, ...]  # the fastest estimate first; what was refused last, with the reason
    # Of each, how far estimates of its kind were off where there are measurements, in words; empty
    # where it was refused.
    bands: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what is worth knowing beside them
    shared: float = 0.0  # seconds outside the kernels that are the same for all: see `shared`


def tunings(over: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of what may be tried, "NAME=LOW..HIGH" each, in powers of two times LOW, or
    "NAME=A,B,C"; ValueError for another form, an empty range, or a name that stands twice."""
    form = '"NAME=LOW..HIGH", such as bm=128..2048, or "NAME=A,B,C"'
    choices: dict[str, list[Any]] = {}
    for text in over:
        name, equals, values = text.partition("=")
        if not (equals and name.isidentifier() and values) or name in choices:
            fail("--over", repr(text), form)
        low, dots, high = values.partition("..")
        if dots:
            if not (low.isdigit() and high.isdigit() and 0 < int(low) <= int(high)):
                fail("--over", repr(text), form)
            steps = int(math.log2(int(high) / int(low)))
            choices[name] = [int(low) << step for step in range(steps + 1)]
        else:
            choices[name] = [literal(value, text) for value in values.split(",")]
    if not choices:
        fail("--over", "left out", form)
    combinations = itertools.product(*choices.values())
    return [dict(zip(choices, values, strict=True)) for values in combinations]


def shared(trials: Sequence[Mapping[str, Any]]) -> float:
    """Seconds outside the kernels, where they are the same for all trials that compile, to within a
    hundredth of the fastest kernel's own time, and more than that; else 0."""
    compiled = [t for t in trials if t["seconds"] is not None and not t.get("on_data")]
    rest = [t["seconds"] - t.get("own", 0.0) for t in compiled]
    own = min((t.get("own", 0.0) for t in compiled), default=0.0)
    return min(rest) if own and max(rest) - min(rest) <= SAME * own < min(rest) else 0.0


def tune_file(
    path: str,
    name: str,
    args: str,
    over: Sequence[str],
    *,
    chip: str = "v5e",
    most: int = MOST,
    timeout: float = 120.0,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Estimate a function of a file with each combination of keyword arguments for a TPU, and rank
    them; ValueError for a wrong argument, and where the file cannot be loaded."""
    everything = tunings(over)
    middle = [len(everything) // 2 + (i + 1) // 2 * (-1) ** i for i in range(2 * len(everything))]
    order = [everything[i] for i in dict.fromkeys(middle) if 0 <= i < len(everything)]
    candidates = order[:most]
    notes = []
    if len(everything) > most:
        notes.append(f"tried {most} of {len(everything)} combinations; --most tries more")
    source = Path(path).read_text(encoding="utf-8")
    version = libtpu_version()
    keys = [
        cache.key(version, "tune", source, name, args, chip, sorted(t.items())) for t in candidates
    ]
    before = [] if fresh else enumerate(map(cache.ANSWERS.get, keys))
    answers: dict[int, dict[str, Any]] = {place: known for place, known in before if known}
    remembered = set(answers)
    waiting = [place for place in range(len(candidates)) if place not in answers]
    if progress:
        progress(len(answers), len(candidates))
    question = dict(what="tune", path=path, name=name, args=args, chip=chip, timeout=timeout)
    with asking(timeout * BATCH + 600) as ask:
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            try:
                trials = ask(question | {"tunings": [candidates[i] for i in batch]})["trials"]
            except Lost as lost:
                refused = {"seconds": None, "bound": "", "note": str(lost), "passing": True}
                trials = [refused] * len(batch)
            for place, trial in zip(batch, trials, strict=True):
                answers[place] = trial
                if not trial["passing"]:
                    cache.ANSWERS.put(keys[place], trial)
            if progress:
                progress(len(answers), len(candidates))
    if remembered:
        notes.append(f"{len(remembered)} of {len(answers)} were known from an earlier run")
    notes.append(
        "estimates by the compiler's own model, not measurements; the band says how far such "
        "estimates were off where there are measurements"
    )
    ranked = []
    for place, trial in answers.items():
        seconds = math.inf if trial["seconds"] is None else trial["seconds"]
        kept = place in remembered, trial.get("on_data", "")
        tried = Trial(candidates[place], seconds, trial["bound"], trial["note"], *kept)
        ranked.append((tried, trial.get("band", "")))
    ranked.sort(key=lambda pair: pair[0].seconds)
    if rest := shared(list(answers.values())):
        words = f"{format_seconds(rest)} outside the kernel is the same for all"
        notes.append(f"{words}, and left out where it is held against the best")
    return Tuned(tuple(t for t, _ in ranked), tuple(band for _, band in ranked), tuple(notes), rest)
