"""Tune a function for a chip without the chip: rank its block sizes by estimate."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.machines.checks import fail, name_of
from kernels.machines.exporting import ExportedProgram
from kernels.machines.pallas.walk import TIRED
from kernels.machines.tpu import chips
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate import Estimate, estimate_all
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import libtpu_version

MOST = 24  # candidates tried unless told otherwise
TRANSIENT = ("timeout", "crashed", "disk")  # kinds of error that another run may not meet
# How such an error begins where an earlier run kept it.
_KEPT = (
    "the compiler had not finished",
    "the compiler crashed",
    "the compiler's process was killed",
    "the compiler's static profile gave up",
    "the compiler's files in",
    "no space left",
)
BATCH = 4  # estimated together, and kept before the next ones begin


@dataclass(frozen=True)
class Trial:
    """One tuning: its keyword arguments, and its estimated seconds or why it cannot be compiled.

    Args:
        tuning: keyword arguments of the function.
        seconds: infinite where it cannot be compiled; where data decide that were not given, the
            least.
        bound: what binds.
        note: the method, or the reason.
        remembered: whether it was known from an earlier run.
        on_data: which data decide that were not given, in words.
    """

    tuning: Mapping[str, Any]
    seconds: float
    bound: str = ""
    note: str = ""
    remembered: bool = False
    on_data: str = ""

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.tuning.items()) or "default"


@dataclass(frozen=True)
class Tuning:
    """What tune found: every trial, the fastest estimate first. Nothing was measured.

    Args:
        name: of the function.
        chip: one of CHIPS.
        trials: the fastest first.
        default_seconds: the estimate of what the function chooses by itself; nan if nobody asked.
        libtpu: the version of the compiler that estimated them.
    """

    name: str
    chip: str
    trials: tuple[Trial, ...] = field(repr=False)
    default_seconds: float
    libtpu: str

    @property
    def best(self) -> Trial:
        """The fastest."""
        return self.trials[0]


def tune(
    function: Callable[..., Any],
    *args: Any,
    candidates: Iterable[Mapping[str, Any]],
    chip: str = "v5e",
    name: str = "",
    most: int = MOST,
    store: MutableMapping[str, tuple[float, str, str]] | None = None,
    timeout: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
    default: bool = True,
    profile: bool = True,
    **options: Any,
) -> Tuning:
    """Estimate `function(*args, **options, **candidate)` for each candidate, and rank them.

    Args:
        function: of arrays and of what is to be tuned, such as kernels.matmul.matmul. Called
            without a candidate, it chooses by itself; that is estimated too.
        args: as of estimate. Where a kernel depends on data that they leave out, its trial says
            so, has the least seconds, and is not kept. One with more rounds than are counted is
            refused.
        candidates: keyword arguments each, such as {"block": BlockSizes(512, 1024, 512)}, the most
            promising first.
        chip: one of CHIPS.
        name: of the function, in errors; its own if left out.
        most: how many candidates to try.
        store: maps a candidate's text to (seconds, what binds, note); read before and written after
            each batch, so that a run that was stopped goes on where it was. The caller keys it by
            versions. What took too long, crashed, or found the disk full is not kept, and is tried
            again.
        timeout: seconds for one compilation.
        progress: called with how many are done, of how many.
        default: whether to estimate what the function chooses by itself too.
        profile: whether to ask the static profile. It takes longest, and where it serves some of
            the candidates alone, those without it compare as schedules do.
        options: any other keyword argument is the function's own, as in compile.

    Raises:
        ValueError: for an unknown chip, or where there is no candidate.
        MissingPackage: without libtpu.
    """
    version = libtpu_version()
    chips.chip(chip)
    store = {} if store is None else store
    tunings = list(itertools.islice(candidates, most))
    if not tunings:
        fail("candidates", "empty", "one at least")
    name = name or name_of(function)

    def exported(tuning: Mapping[str, Any], words: str) -> ExportedProgram:
        tuned = functools.partial(function, **(options | dict(tuning)))
        return export(tuned, *args, chip=chip, name=f"{name} {words}")

    trials: list[Trial] = []
    everything = [{}, *tunings] if default else tunings  # {} is what it chooses by itself
    for start in range(0, len(everything), BATCH):
        batch = everything[start : start + BATCH]
        trials += _try(batch, exported, store, timeout, profile)
        if progress:
            progress(len(trials), len(everything))
    own = trials.pop(0).seconds if default else math.nan
    ranked = sorted(trials, key=lambda t: t.seconds)
    return Tuning(name, chip, tuple(ranked), own, version)


def _try(
    tunings: Sequence[Mapping[str, Any]],
    exported: Callable[[Mapping[str, Any], str], ExportedProgram],
    store: MutableMapping[str, tuple[float, str, str]],
    timeout: float,
    profile: bool,
) -> list[Trial]:
    trials: dict[int, Trial] = {}
    passing: set[int] = set()  # what failed for a reason that may pass
    programs: dict[int, ExportedProgram] = {}
    for i, tuning in enumerate(tunings):
        words = str(Trial(tuning, 0.0))
        # What the function chooses by itself may be another choice today.
        kept = store.get(words) if tuning else None
        if kept and not (math.isinf(kept[0]) and kept[2].startswith(_KEPT)):
            trials[i] = Trial(tuning, *kept, remembered=True)
            continue
        try:
            programs[i] = exported(tuning, words)
        except (TpuCompileError, ValueError) as error:
            trials[i] = Trial(tuning, float("inf"), note=str(error))
    wanted = list(programs.values())
    results = estimate_all(wanted, timeout=timeout, progress=False, profile=profile)
    for i, result in zip(programs, results, strict=True):
        if isinstance(result, Estimate) and TIRED in result.depends:
            trials[i] = Trial(tunings[i], float("inf"), note=TIRED)  # part of it has no rank
        elif isinstance(result, Estimate):
            least, words = result.seconds.low, result.on_data
            trials[i] = Trial(tunings[i], least, result.bound, result.method, on_data=words)
            if words or any(reason in result.method for reason in _KEPT):
                passing.add(i)  # no figure to compare others with, or none without the profile
        else:
            trials[i] = Trial(tunings[i], float("inf"), note=result.message)
            if result.kind in TRANSIENT:
                passing.add(i)
    for i, trial in trials.items():
        if trial.tuning and not trial.remembered and i not in passing:
            store[str(trial)] = (trial.seconds, trial.bound, trial.note)
    return [trials[i] for i in range(len(tunings))]
