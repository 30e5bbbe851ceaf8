"""Exercises of the chapter "Narrow numbers"."""

import jax.numpy as jnp
import numpy as np

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, compared, launch
from kernels.proof.backends.python import PYTHON
from kernels.proof.workload import cases, values

INT8_CYCLES = 20_000  # of 1024³, the rows of x quantized in the kernel


def _spiky(workload, rng):
    """Tokens with outlier channels, weights, and which channels they are."""
    m, k, n, some = workload.sizes.values()
    x, y = (values("normal", shape, "float32", rng) for shape in ((m, k), (k, n)))
    outliers = tuple(int(i) for i in np.sort(rng.choice(k, some, replace=False)))
    x[:, outliers] *= 60
    return x, y / np.float32(np.sqrt(k)), outliers


def _packed(workload, rng):
    """Activations, and weights of 4 bits: row i in the low half of a byte, row i + k/2 high."""
    m, k, n = workload.sizes.values()
    y = rng.integers(-8 * (workload.name != "positive"), 8, (k, n))
    packed = y[k // 2 :] << 4 | y[: k // 2] & 15
    return values("normal", (m, k), "bfloat16", rng), packed.astype(np.int8)


def _unpacked(packed):
    wide = np.int64(packed)
    return np.concatenate([(wide << 60) >> 60, wide >> 4])


def _layer_of(kernel, x, y, *others, interpret):
    shape = len(x), y.shape[1]
    return launch(kernel, x, y, *others, shape=shape, dtype=jnp.float32, interpret=interpret)


def _shifted(workload, rng):
    """A layer whose rows have zero points of their own."""
    m, k, n = workload.sizes.values()
    shapes = ((m, k), "int8"), ((k, n), "int8"), ((m, 1), "float32"), ((1, n), "float32")
    x, y, r, c = (values("normal", shape, dtype, rng) for shape, dtype in shapes)
    return x, y, rng.integers(-128, 128, (m, 1)).astype(np.int32), r, c


def _arriving(workload, rng):
    """Activations in bfloat16 that no rounding of a scale brings near a tie, and weights."""
    m, k, n = workload.sizes.values()
    x = rng.integers(-30, 31, (m, k)) + rng.choice([-0.25, 0, 0.25], (m, k))
    x[np.arange(m), rng.integers(0, k, m)] = rng.choice([-127, 127], m)
    x *= 2.0 ** rng.integers(-9, 9, (m, 1))
    x[m // 2] = 0  # a token of padding
    y, c = values("normal", (k, n), "int8", rng), values("normal", (1, n), "float32", rng)
    return jnp.asarray(x, jnp.bfloat16), y, c


def _on_arrival(x, y, c, size=lambda x: x):
    """The layer with rows of x quantized; or, of the same sums, the sums of absolute values."""
    x = np.asarray(x, np.float64)
    largest = abs(x).max(1, keepdims=True)
    s = np.where(largest > 0, largest / 127, 1)
    return (size(np.round(x / s)) @ size(np.asarray(y, np.float64))) * s * size(c)


EXERCISES = (
    Exercise(
        "int4_weights",
        lambda x, packed: x @ _unpacked(packed),
        _packed,
        cases("m k n", positive=(32, 256, 128), tile=(32, 256, 128), long=(32, 1024, 128)),
        call=_layer_of,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        magnitude=lambda x, packed: abs(x) @ abs(_unpacked(packed)),
    ),
    Exercise(
        "smooth",
        lambda x, y, outliers: np.sqrt(np.abs(x).max(0) / np.abs(y).max(1)),
        _spiky,
        cases("m k n outliers", few=(8, 16, 4, 2), wide=(32, 256, 64, 6)),
        call=lambda answer, x, y, outliers, *, interpret: compared(answer(x, y)),
        backend=PYTHON,
        magnitude=lambda x, y, outliers: np.sqrt(np.abs(x).max(0) / np.abs(y).max(1)),
    ),
    Exercise(
        "scaled",
        lambda x, y, a, r, c: ((np.int64(x) - a) @ np.int64(y)) * r * c,
        _shifted,
        cases("m k n", tile=(32, 128, 128), long=(32, 1024, 128, "sums beyond int16")),
        call=_layer_of,
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.int8_products),
        magnitude=lambda x, y, a, r, c: (abs(np.int64(x) - a) @ abs(np.int64(y))) * abs(r * c),
    ),
    Exercise(
        "fast_int8",
        _on_arrival,
        _arriving,
        cases("m k n", dtype="bfloat16", tile=(128, 128, 128), oblong=(256, 256, 1024)),
        rungs=("interpret",),
        judge=judges.int8_products,
        bar=bars.cycles(
            *(INT8_CYCLES, (("0.0.42.1", 19_161), ("0.0.50.1", 19_168))),
            workload=bars.at("bfloat16", m=1024, k=1024, n=1024),
        ),
        magnitude=lambda x, y, c: _on_arrival(x, y, c, size=abs),
    ),
)
