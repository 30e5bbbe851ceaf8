"""Exercises of the chapter "Grouped matmul and experts"."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.grouped_matmul.pallas import make_visits
from kernels.grouped_matmul.reference import grouped_matmul
from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.backends.python import PYTHON
from kernels.proof.workload import cases

TILE = 128
GATED_CYCLES = 120_000  # of one kernel; two and a gate take some 155,000
WIDE = bars.at("bfloat16", m=4096, k=512, n=512, g=32)
SIZES = {"edges": [100, 60, 0, 96, 44], "last_empty": [128, 0, 128, 0]}
SIZES |= {"left_over": [37, 0, 130], "empty": [0, 0, 0]}


def _sizes(workload, rng, rows):
    """Those of the workload's name, or as a router draws them."""
    if workload.name in SIZES:
        return np.array(SIZES[workload.name], np.int32)
    g = workload.sizes["g"]
    return np.bincount(rng.integers(g, size=rows), minlength=g).astype(np.int32)


def _groups(workload, rng):
    m, bm = workload.sizes["m"], workload.sizes["bm"]
    return _sizes(workload, rng, m), m, bm


def _walk(sizes, m, bm):
    visits, start = [], 0
    for group, size in enumerate(sizes):
        tiles = range(start // bm, (start + max(size, 1) - 1) // bm + 1)
        visits += [(group, min(tile, (m - 1) // bm)) for tile in tiles]
        start += size
    return np.array(visits).T


def _visits(walk, sizes, m, bm, *, interpret):
    groups, tiles, count = jax.jit(walk, static_argnums=(1, 2))(sizes, m, bm)
    return jnp.stack([groups, tiles])[:, : int(count)]


def _rows(workload, rng):
    """x [m, k], dz [m, n], int32 [g]; NaN in the rows that are in no group."""
    x, dz = drawn("m k", "m n")(workload, rng)
    sizes = _sizes(workload, rng, len(x))
    x[sizes.sum() :] = dz[sizes.sum() :] = np.nan
    return x, dz, sizes


def _by_group(x, dz, sizes):
    ends = np.cumsum(sizes)
    return np.stack([x[start:end].T @ dz[start:end] for start, end in zip(ends - sizes, ends)])


def _transposed(kernel, x, dz, sizes, *, interpret):
    (m, k), n = x.shape, dz.shape[1]
    *scalars, count = make_visits(jnp.asarray(sizes), m, TILE, empty=True)
    rows = lambda width: pl.BlockSpec((TILE, width), lambda v, groups, tiles, _: (tiles[v], 0))
    of_group = pl.BlockSpec((None, k, n), lambda v, groups, *_: (groups[v], 0, 0))
    specs = {"in_specs": [rows(k), rows(n)], "out_specs": of_group}
    walk = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=3, grid=(count,), **specs)
    options = {"shape": (len(sizes), k, n), "dtype": jnp.float32, "interpret": interpret}
    return launch(kernel, *scalars, x, dz, grid_spec=walk, **options)


def _gated_arguments(workload, rng):
    x, gate, up = drawn("m k", "g k n", "g k n")(workload, rng)
    return x, gate, up, _sizes(workload, rng, len(x))


def _gated(x, gate, up, sizes):
    return jax.nn.silu(grouped_matmul(x, gate, sizes)) * grouped_matmul(x, up, sizes)


def _gated_magnitude(x, gate, up, sizes):
    """What an error of one unit in both sums comes to; |silu'| is at most 1.1."""
    a, b = (grouped_matmul(x, w, sizes) for w in (gate, up))
    a_sum, b_sum = (grouped_matmul(abs(x), abs(w), sizes) for w in (gate, up))
    return abs(jax.nn.silu(a)) * (abs(b) + b_sum) + 1.1 * a_sum * abs(b)


EXERCISES = (
    Exercise(
        "expert_walk",
        _walk,
        _groups,
        cases(
            "m g bm",
            edges=(300, 5, 64, "one is empty"),
            last_empty=(256, 4, 128, "and would begin beyond the last tile"),
            left_over=(200, 3, 64),
            empty=(70, 3, 32, "no row is in any group"),
            many=(500, 40, 128, "several in a tile"),
        ),
        call=_visits,
        backend=PYTHON,
    ),
    Exercise(
        "expert_gradient",
        _by_group,
        _rows,
        cases(
            "m k n g",
            edges=(300, 64, 128, 5, "an empty group, and a last tile that is cut short"),
            left_over=(200, 64, 128, 3, "NaN in the rows of no group"),
            single=(256, 64, 128, 1, "two visits of one group"),
        ),
        call=_transposed,
        rungs=("interpret",),
        magnitude=lambda x, dz, sizes: _by_group(abs(x), abs(dz), sizes),
    ),
    Exercise(
        "expert_gate",
        _gated,
        _gated_arguments,
        cases("m k n g", edges=(300, 128, 128, 5), drawn=(256, 128, 256, 3))
        + cases("m k n g", dtype="bfloat16", bfloat16=(256, 128, 128, 9)),
        rungs=("interpret",),
        magnitude=_gated_magnitude,
        bar=bars.cycles(GATED_CYCLES, 102_583, workload=WIDE),
    ),
)
