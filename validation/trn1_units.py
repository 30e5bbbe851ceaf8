"""Estimates of AWS's own kernels beside the latencies that AWS's unit tests state for them.

    python -m validation units NKI_SAMPLES

NKI_SAMPLES is a checkout of aws-neuron/nki-samples before c4b806e removed them. Its tests hold a
latency to a bound; on what instance they do not say. Nothing is fitted to those that are held out.
"""

from __future__ import annotations

import csv
import importlib
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from kernels.figures import store
from kernels.machines import neuron
from kernels.machines.neuron.dtypes import bfloat16
from kernels.machines.neuron.estimator import START_SECONDS

FILE = "neuron_units.csv"
SOURCE = "aws-neuron/nki-samples, test/unit, at 8370e11b; select_and_scatter at 6dc4cb2^"
# Of the shortest that is not held out, the mean of one [1, 512, 7, 7] image: 14 µs where its
# instructions take 5.1.
START_US = START_SECONDS * 1e6
QKV = "allocated_fused_linear.allocated_fused_rms_norm_qkv"
SHARED = "_self_attn_for_SD_small_head_size"
ALLOCATED, PLAIN = f"allocated_attention.allocated_fused{SHARED}", f"attention.fused{SHARED}"
POOL = "vision.adaptive_avg_pool2d_kernel"
F32, F16, BF16 = map(np.dtype, ("float32", "float16", bfloat16))


def heads(n: int, *order: int) -> tuple[tuple[int, ...], ...]:
    """q, k and v of n tokens and 128 features, which stand before the tokens where order is 1."""
    return tuple((1, 128, n) if first else (1, n, 128) for first in order)


# kernel, shapes, other arguments, dtype, µs, whether held out
UNITS = [
    (QKV, ((1, 128, 512), (512, 512)), (), F16, 25, True),
    (QKV, ((1, 512, 1024), (1024, 384)), (), BF16, 40, True),
    (QKV, ((1, 128, 1024), (1024, 512)), (), BF16, 28, True),
    (QKV, ((1, 1024, 8192), (8192, 512)), (), BF16, 301, True),
    (ALLOCATED, heads(4096, 1, 1, 0), (), F32, 410, True),
    (ALLOCATED, heads(4096, 1, 1, 0), (), BF16, 380, True),
    (ALLOCATED, heads(5120, 1, 1, 0), (), BF16, 586, True),
    (PLAIN, heads(4096, 1, 0, 0), (), BF16, 536, True),
    ("vision.select_and_scatter_kernel", ((8, 64, 112, 112), (8, 64, 56, 56)), (), F32, 4500, True),
    (PLAIN, heads(4096, 1, 0, 0), (), F32, 675, False),
    (POOL, ((1, 64, 56, 56),), (7,), F32, 65, False),
    (POOL, ((2, 128, 28, 28),), (7,), F32, 109, False),
    (POOL, ((1, 256, 14, 14),), (7,), F16, 88, False),
    (POOL, ((4, 64, 56, 56),), (7,), F32, 152, False),
    (POOL, ((2, 128, 28, 28),), (14,), F32, 327, False),
    (POOL, ((1, 512, 7, 7),), (1,), F32, 14, False),
    (POOL, ((8, 64, 32, 32),), (4,), F16, 103, False),
    (POOL, ((2, 2048, 32, 32),), (3,), F32, 564, False),
    (POOL, ((2, 64, 256, 256),), (1,), F32, 255, False),
]


@dataclass(frozen=True)
class Unit:
    """A kernel of AWS's at one size: the latency that its test states, and the schedule's."""

    kernel: str
    sizes: str
    dtype: str
    published_us: str
    scheduled_us: str
    held_out: str  # "yes": nothing was fitted to it
    source: str

    def estimated_us(self, start: float = START_US) -> float:
        """The schedule's, and a start-up."""
        return float(self.scheduled_us) + start

    def error(self, start: float = START_US) -> float:
        """Of that estimate, relative; positive where it is too slow."""
        return self.estimated_us(start) / float(self.published_us) - 1


def measure(samples: Path) -> Iterator[Unit]:
    """Estimate all of them on Trn1, from a checkout; kept in results/ at the end."""
    sys.path.insert(0, str(samples / "src"))
    rows = []
    with neuron.install():
        for name, shapes, others, dtype, published, held_out in UNITS:
            module, _, function = name.partition(".")
            kernel = getattr(importlib.import_module(f"nki_samples.reference.{module}"), function)
            kernel = kernel[1] if "attn" in name else kernel  # its grid: a batch of one
            arrays = [SimpleNamespace(shape=shape, dtype=dtype) for shape in shapes]
            seconds = neuron.estimate(kernel, *arrays, *others, chip="trn1").seconds
            sizes = " ".join("×".join(map(str, shape)) for shape in shapes)
            sizes += "".join(f" to {size}×{size}" for size in others)
            words = str(published), f"{seconds * 1e6:.1f}", "yes" * held_out
            rows.append(Unit(function, sizes, str(dtype), *words, SOURCE))
            yield rows[-1]
    with open(store.RESULTS / FILE, "w", newline="", encoding="utf-8") as file:
        names = [field.name for field in fields(Unit)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def read() -> list[Unit]:
    """The rows that results/ has; none where it has no such file."""
    path = store.RESULTS / FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [Unit(**row) for row in csv.DictReader(file)]


def median(rows: list[Unit], start: float = START_US) -> float:
    """Of the errors, without their signs."""
    return statistics.median(abs(row.error(start)) for row in rows)
