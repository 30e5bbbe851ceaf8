"""Functions timed against each other on the device that JAX has here, and on no other."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.machines.checks import fail, positive_int

__all__ = ["Timing", "measure"]


@dataclass(frozen=True)
class Timing:
    """Readings of one function.

    Args:
        name: the function's.
        seconds: of one call, a reading each.
        device: JAX's name of it.
    """

    name: str
    seconds: tuple[float, ...]
    device: str

    @property
    def median(self) -> float:
        """The reading in the middle, which one disturbed reading does not move."""
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        """The reading that was disturbed the least."""
        return min(self.seconds)

    @property
    def slowest(self) -> float:
        """The reading that was disturbed the most."""
        return max(self.seconds)

    def quantile(self, share: float) -> float:
        """The reading below which `share` of the readings lie."""
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[round(100 * share) - 1]

    def __str__(self) -> str:
        median, fastest, slowest = (1e3 * s for s in (self.median, self.fastest, self.slowest))
        return (
            f"{self.name}: median {median:.3f} ms, {fastest:.3f} to {slowest:.3f} ms in "
            f"{len(self.seconds)} readings on {self.device}, measured"
        )


def measure(
    functions: Mapping[str, Callable[..., Any]],
    *args: Any,
    repeats: int = 20,
    calls: int = 1,
    device: str | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, Timing]:
    """Time functions of the same arguments against each other.

    Each function runs once before, which compiles it. Then every round reads each function once,
    beginning with another one each time, so that a machine that warms up, or does something else
    for a while, favours none of them. A reading ends when the results are there, not when they
    are promised.

    Args:
        functions: by name.
        args: arrays, on the device already.
        repeats: readings of each.
        calls: in one reading, started one after another and waited for together; with enough of
            them a device's queue hides the time that starting takes. Their results are all kept
            until then.
        device: its name; JAX's if None.
        clock: gives seconds; time.perf_counter if None. time.process_time counts those that this
            process computes, in all of its threads together: of work in one thread, it leaves out
            what else the machine does.

    Returns:
        Name → Timing.

    Raises:
        ValueError: for no functions, and for counts below 1.
    """
    import jax

    if not functions:
        fail("functions", "empty", "at least one")
    positive_int("repeats", repeats)
    positive_int("calls", calls)
    for function in functions.values():
        _wait(function(*args))
    readings: dict[str, list[float]] = {name: [] for name in functions}
    names, clock = list(functions), clock or time.perf_counter
    for turn in range(repeats):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            began = clock()
            _wait([functions[name](*args) for _ in range(calls)])
            readings[name].append((clock() - began) / calls)
    device = device or jax.devices()[0].device_kind
    return {name: Timing(name, tuple(seconds), device) for name, seconds in readings.items()}


def _wait(results: Any) -> None:
    """Until the results are there: JAX's, and those of PyTorch on a GPU."""
    import jax

    jax.block_until_ready(results)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
