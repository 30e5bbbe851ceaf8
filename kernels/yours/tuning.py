"""Rank the keyword arguments of a function that somebody brought, by estimate, in children."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail
from kernels.machines.tpu.tuner import Trial
from kernels.yours import cache, on_tpu
from kernels.yours.proving import Lost, asking
from kernels.yours.shapes import literal

MOST = 24
BATCH = 2  # estimated together, and kept before the next ones begin


@dataclass(frozen=True)
class Tuned:
    """What tune_file found.

    Args:
        trials: the fastest estimate first; what was refused last, with the reason.
        bands: of each, how far estimates of its kind were off where there are measurements, in
            words; empty where it was refused.
        notes: what is worth knowing beside them.
    """

    trials: tuple[Trial, ...]
    bands: tuple[str, ...]
    notes: tuple[str, ...] = ()


def tunings(over: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of what may be tried.

    Args:
        over: "NAME=LOW..HIGH" each, in powers of two times LOW, or "NAME=A,B,C".

    Raises:
        ValueError: for another form, an empty range, or a name that stands twice.
    """
    form = '"NAME=LOW..HIGH", such as bm=128..2048, or "NAME=A,B,C"'
    choices: dict[str, list[Any]] = {}
    for each in over:
        name, equals, values = each.partition("=")
        if not (equals and name.isidentifier() and values) or name in choices:
            fail("--over", repr(each), form)
        low, dots, high = values.partition("..")
        if dots:
            if not (low.isdigit() and high.isdigit() and 0 < int(low) <= int(high)):
                fail("--over", repr(each), form)
            steps = int(math.log2(int(high) / int(low)))
            choices[name] = [int(low) << step for step in range(steps + 1)]
        else:
            choices[name] = [literal(value, each) for value in values.split(",")]
    if not choices:
        fail("--over", "left out", form)
    return [dict(zip(choices, each, strict=True)) for each in itertools.product(*choices.values())]


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
    """Estimate a function of a file with each combination of keyword arguments, and rank them.

    Args:
        path, name: of the function.
        args: what it takes; see kernels.yours.shapes.
        over: what may be tried; see tunings.
        chip: one of kernels.tpu.CHIPS.
        most: combinations tried at most, those in the middle of the ranges first.
        timeout: seconds for a compilation.
        fresh: do not read what an earlier run has found.
        progress: called with how many are done, of how many.

    Raises:
        ValueError: for a wrong argument, and where the file cannot be loaded.
    """
    everything = tunings(over)
    middle = [len(everything) // 2 + (i + 1) // 2 * (-1) ** i for i in range(2 * len(everything))]
    order = [everything[i] for i in dict.fromkeys(middle) if 0 <= i < len(everything)]
    candidates = order[:most]
    notes = []
    if len(everything) > most:
        notes.append(f"tried {most} of {len(everything)} combinations; --most tries more")
    if not Path(path).is_file():
        fail("file", path, "a Python file that there is")
    source = Path(path).read_text(encoding="utf-8")
    version = on_tpu.ready()
    keys = [
        cache.key(version, "tune", source, name, args, chip, sorted(t.items())) for t in candidates
    ]
    trials: dict[int, Trial] = {}
    bands: dict[int, str] = {}
    for place, key in enumerate(keys):
        if not fresh and (known := cache.get(key)) is not None:
            trials[place] = _trial(candidates[place], known, True)
            bands[place] = known.get("band", "")
    waiting = [place for place in range(len(candidates)) if place not in trials]
    if progress:
        progress(len(trials), len(candidates))
    with asking(timeout * BATCH + 600) as ask:
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            question = dict(
                what="tune", path=path, name=name, args=args, chip=chip, timeout=timeout
            )
            try:
                answer = ask(question | {"tunings": [candidates[place] for place in batch]})
            except Lost as lost:
                refused = {"seconds": None, "bound": "", "note": str(lost), "passing": True}
                answer = {"trials": [refused] * len(batch)}
            if "error" in answer:
                raise ValueError(answer["error"])
            for place, found in zip(batch, answer["trials"], strict=True):
                trials[place] = _trial(candidates[place], found, False)
                bands[place] = found.get("band", "")
                if not found["passing"]:
                    cache.put(keys[place], found)
            if progress:
                progress(len(trials), len(candidates))
    if remembered := sum(trial.remembered for trial in trials.values()):
        notes.append(f"{remembered} of {len(trials)} were known from an earlier run")
    notes.append(
        "estimates by the compiler's own model, not measurements; the band says how far such "
        "estimates were off where there are measurements"
    )
    order_of = sorted(trials, key=lambda place: trials[place].seconds)
    return Tuned(
        tuple(trials[place] for place in order_of),
        tuple(bands[place] for place in order_of),
        tuple(notes),
    )


def _trial(tuning: dict[str, Any], found: dict[str, Any], remembered: bool) -> Trial:
    seconds = math.inf if found["seconds"] is None else found["seconds"]
    return Trial(tuning, seconds, found["bound"], found["note"], remembered)
