"""Figures as a reader is shown them: seconds, bytes and sizes in the unit that reads best."""

import math
from collections.abc import Iterable
from typing import Any

from kernels.machines.tpu.diagnose import mib


def format_seconds(seconds: Any) -> str:
    """Seconds in the unit that reads best; of a range both ends, or the least alone."""
    if getattr(seconds, "is_range", False):
        low, high = map(format_seconds, seconds)
        return f"at least {low}" if math.isinf(seconds.high) else f"{low} to {high}"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def format_bytes(count: float) -> str:
    """Bytes in the unit that reads best."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else mib(count)


def format_dims(sizes: Iterable[int]) -> str:
    """Sizes with a cross between them: 8×128."""
    return "×".join(map(str, sizes)) or "1"
