"""The catalog's entries timed on this machine: against each other, and against a limit."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.figures.schema import Key, Record, title, versions
from kernels.machines import optional
from kernels.machines.checks import brief, fail
from kernels.machines.stopwatch import Timing, measure
from kernels.proof.backends.processor import processor
from kernels.proof.catalog import Implementation, Operator
from kernels.proof.ladder import Subject
from kernels.proof.workload import Workload

__all__ = ["Measurement", "bench", "prepare"]
QUEUED = 8  # calls in one reading where a device works through a queue
PACKAGES = ("numpy", "jax", "torch", "taichi", "quadrants")


@dataclass(frozen=True)
class Measurement:
    """What was read of one workload."""

    operator: Operator
    workload: Workload
    gradient: bool  # whether the gradients were timed, forward pass included
    machine: str
    timings: dict[str, Timing]  # by implementation
    # Which of the timings no implementation can beat, its seconds scaled to the workload.
    limit: str | None
    # Implementation → why it does not solve the workload here.
    refused: dict[str, str] = field(default_factory=dict)
    calls: int = 1  # in one reading

    @property
    def title(self) -> str:
        """The workload, and whether its gradients were timed."""
        return f"{self.workload}{' gradient' * self.gradient}"

    @property
    def plain(self) -> str:
        """The one that the others are compared with: the operator's plainest, if it was timed."""
        plain = self.operator.plain
        return plain if plain in self.timings else next(iter(self.timings))

    def ratio(self, slower: str, faster: str) -> tuple[float, float, float]:
        """How many times as long `slower` takes as `faster`, reading by reading of the same round:
        20th percentile, median, 80th."""
        pairs = zip(self.timings[slower].seconds, self.timings[faster].seconds, strict=True)
        return tuple(np.quantile([a / b for a, b in pairs], (0.2, 0.5, 0.8)))

    def records(self) -> list[Record]:
        """Medians in ms, with their 20th and 80th percentiles and the rounds."""
        kept = []
        rounds = "rounds" if self.calls == 1 else f"rounds of {self.calls} calls"
        pass_ = "gradient" if self.gradient else "forward"
        remarks = {i.name: i.backend.remark for i in self.operator.implementations}
        for name, timing in self.timings.items():
            low, high = (1e3 * timing.quantile(q) for q in (0.2, 0.8))
            remark = f"; {remarks[name]}" if remarks.get(name) else ""
            key = Key.of(self.operator.name, name, self.workload, timing.device, pass_)
            kept.append(
                key.record(
                    workload=title(self.workload),
                    quantity="limit" if name == self.limit else "time",
                    kind="measured",
                    value=round(1e3 * timing.median, 6),
                    method=f"median of {len(timing.seconds)} interleaved {rounds}, p20 {low:.3f}, "
                    f"p80 {high:.3f}{remark}",
                    versions=versions(*_used(timing.device)),
                )
            )
        return kept


def _used(device: str) -> list[str]:
    """The packages that a measurement on `device` names."""
    from kernels.machines import neuron, tpu
    from kernels.machines.taichi import runtime

    idle = {name for name in runtime.MODULES if name != runtime.name()}
    used = [name for name in PACKAGES if optional.available(name) and name not in idle]
    if device in tpu.CHIPS:
        used.append("libtpu")
    if device in neuron.CHIPS:
        used.append("neuronx-cc")
    return used


def prepare(
    operator: Operator,
    implementation: Implementation,
    workload: Workload,
    device: str = "cpu",
    gradient: bool = False,
) -> Callable[[], Any]:
    """A call without arguments that solves a workload, or its gradients, on the device."""
    job = Subject.of(operator, implementation).job(workload, gradient=gradient)
    if gradient and not job.wanted:
        fail("the pass", "gradient", f"forward, since {operator.name} has no gradients")
    writes = "out" in inspect.signature(operator.function).parameters
    return implementation.backend.prepare(job, device, out=writes)


def bench(
    operator: Operator,
    implementations: Sequence[Implementation],
    workload: Workload,
    *,
    repeats: int = 20,
    device: str = "cpu",
    gradient: bool = False,
    progress: Callable[[str], None] = lambda words: None,
) -> Measurement:
    """Time implementations of one workload in turn, and in the same rounds what bounds them.

    One that refuses the workload, or has no room for it, is left out and says why.

    Args:
        operator, implementations: of the catalog.
        workload: the problem.
        repeats: readings of each.
        device: "cpu" or "cuda", for PyTorch and Taichi.
        gradient: whether to time the gradients, forward pass included.
        progress: is called with what begins, in words.

    Raises:
        ValueError: where none of them runs on `device`.
    """
    calls, chips, refused = {}, {}, {}
    for entry in implementations:
        if entry.backend.why_not("measure", device) or (gradient and not entry.differentiable):
            continue
        progress(f"{operator.name}/{entry.name}: first call, {workload}")
        try:
            call = prepare(operator, entry, workload, device, gradient)
            call()
        except (ValueError, RuntimeError, MemoryError) as error:
            refused[entry.name] = brief(error)
        else:
            calls[entry.name], chips[entry.name] = call, entry.backend.chip(device)
    if not calls:
        reasons = "".join(f"; {name}: {reason}" for name, reason in refused.items())
        names = ", ".join(i.name for i in implementations)
        fail("entry", names + reasons, f"one that runs on {device}")
    limit, scale = None, 1.0
    if operator.workloads.limit and not gradient:
        limit, run, scale = operator.workloads.limit(workload, device)
        calls[limit], chips[limit] = run, processor(device)
    count = QUEUED if set(chips.values()) - {processor()} else 1
    progress(f"{operator.name}: {repeats} rounds of {', '.join(calls)}, {workload}")
    timings = {
        name: replace(timing, device=chips[name])
        for name, timing in measure(calls, repeats=repeats, calls=count, device="").items()
    }
    if limit:
        read = timings[limit]
        timings[limit] = replace(read, seconds=tuple(scale * s for s in read.seconds))
    here = ", ".join(dict.fromkeys(chips.values()))
    return Measurement(operator, workload, gradient, here, timings, limit, refused, count)
