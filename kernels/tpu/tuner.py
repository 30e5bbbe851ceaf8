"""Tune an operator for a chip without the chip: rank its block sizes by estimate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.checks import fail
from kernels.tpu import chips
from kernels.tpu.diagnose import TpuCompileError
from kernels.tpu.estimate import Estimate, estimate_all
from kernels.tpu.export import Program, export
from kernels.tpu.pool import libtpu_version

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

    seconds is infinite where it cannot. remembered: whether it was known from an earlier run.
    """

    tuning: Mapping[str, Any]
    seconds: float
    note: str = ""
    remembered: bool = False

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.tuning.items()) or "default"


@dataclass(frozen=True)
class Tuning:
    """What tune found: every trial, the fastest estimate first. Nothing was measured.

    default_seconds: the estimate of what the operator chooses by itself.
    """

    operator: str
    workload: str
    chip: str
    trials: tuple[Trial, ...] = field(repr=False)
    default_seconds: float
    libtpu: str

    @property
    def best(self) -> Trial:
        """The fastest."""
        return self.trials[0]


def tune(
    op: Any,
    workload: Any,
    chip: str = "v5e",
    *,
    implementation: str = "pallas",
    most: int = MOST,
    store: MutableMapping[str, tuple[float, str]] | None = None,
    timeout: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Estimate the tunings that an operator offers for a workload, and rank them.

    op: an operator of the catalog, such as kernels.catalog.OPERATORS["matmul"]. workload: one of
    its workloads, or the name of one. most: how many candidates to try, the most promising first.
    store: maps a tuning's text to (seconds, note), read before and written after each batch, so
    that a run that was stopped goes on where it was; the caller keys it by versions. What took
    too long, crashed, or found the disk full is not kept, and is tried again.
    timeout: seconds for one compilation. progress: called with how many are done, of how many.
    Raises ValueError for an operator or an implementation that has nothing to tune, and
    MissingPackage without libtpu.
    """
    if implementation == op.plain:
        fail(
            "implementation",
            f"{implementation!r}",
            "one that takes block sizes; XLA chooses its own",
        )
    version = libtpu_version()
    target = chips.chip(chip)
    workloads = op.workloads
    if isinstance(workload, str):
        workload = workloads.find(workload)
    if workloads.candidates is None:
        fail("op", f"{op.name!r}, which offers nothing to tune", "one with candidates")
    store = {} if store is None else store
    tunings = list(workloads.candidates(workload, target.vmem_bytes))[:most]
    if not tunings:
        fail("workload", f"{workload}", "one for which a candidate fits into VMEM")
    arguments = [_shape(a) for a in workloads.arguments(workload)]
    trials: list[Trial] = []
    everything = [{}, *tunings]  # {} is what the operator chooses by itself
    for start in range(0, len(everything), BATCH):
        batch = everything[start : start + BATCH]
        trials += _try(op, implementation, workload, arguments, batch, target, store, timeout)
        if progress:
            progress(len(trials), len(everything))
    default, *tried = trials
    ranked = sorted(tried, key=lambda t: t.seconds)
    return Tuning(op.name, str(workload), chip, tuple(ranked), default.seconds, version)


def _shape(argument: Any) -> Any:
    """A kernel's time does not depend on values: a shape is enough to compile it."""
    import jax

    if not hasattr(argument, "shape"):
        return argument
    return jax.ShapeDtypeStruct(argument.shape, argument.dtype)


def _try(
    op: Any,
    implementation: str,
    workload: Any,
    arguments: Sequence[Any],
    tunings: Sequence[Mapping[str, Any]],
    chip: chips.Chip,
    store: MutableMapping[str, tuple[float, str]],
    timeout: float,
) -> list[Trial]:
    trials: dict[int, Trial] = {}
    passing: set[int] = set()  # what failed for a reason that may pass
    programs: dict[int, Program] = {}
    for i, tuning in enumerate(tunings):
        name = str(Trial(tuning, 0.0))
        # What the operator chooses by itself may be another choice today.
        if (
            tuning
            and name in store
            and not (math.isinf(store[name][0]) and store[name][1].startswith(_KEPT))
        ):
            trials[i] = Trial(tuning, *store[name], remembered=True)
            continue
        options = {**workload.options, **tuning}
        function = functools.partial(
            op.function, implementation=implementation, interpret=False, **options
        )
        try:
            programs[i] = export(function, *arguments, chip=chip.name, name=f"{op.name} {name}")
        except (TpuCompileError, ValueError) as error:
            trials[i] = Trial(tuning, float("inf"), str(error))
    found = estimate_all(list(programs.values()), timeout=timeout, progress=False)
    for i, result in zip(programs, found, strict=True):
        if isinstance(result, Estimate):
            trials[i] = Trial(tunings[i], result.seconds, f"{result.bound} binds; {result.method}")
            if any(reason in result.method for reason in _KEPT):
                passing.add(i)  # without the profile for once: no figure to compare others with
        else:
            trials[i] = Trial(tunings[i], float("inf"), result.message)
            if result.kind in TRANSIENT:
                passing.add(i)
    for i, trial in trials.items():
        if trial.tuning and not trial.remembered and i not in passing:
            store[str(trial)] = (trial.seconds, trial.note)
    return [trials[i] for i in range(len(tunings))]
