"""Exercises of the chapter "Attention over pages"."""

import functools

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import cases

PAGE, D = 16, 128
BLOCK = 16  # pages of a block in the exercise for speed
SUM_CYCLES = 24_000
SIZES = "s pages least"
LONG = bars.at(s=2, pages=128, least=2048)
RAGGED = cases(SIZES, ragged=(5, 3, 0, "lengths of all, 0, a page, one more, and 3"))


def _pooled(workload, rng):
    """pages [P, 16, 128], lengths [s], table [s, pages]; NaN behind each sequence's last token."""
    s, width, least = workload.sizes.values()
    (pages,) = drawn(f"{s * width + 1} {PAGE} {D}")(workload, rng)
    longest = width * PAGE
    lengths = np.array([longest, 0, PAGE, PAGE + 1, 3, longest - 1])[np.arange(s) % 6]
    lengths = np.maximum(lengths, least).astype(np.int32)
    table = 1 + rng.permutation(s * width).reshape(s, width).astype(np.int32)
    beyond = np.arange(longest).reshape(width, PAGE, 1) >= lengths[:, None, None, None]
    pages[table] = np.where(beyond, np.nan, pages[table])
    pages[0] = np.nan  # nobody's
    table[np.arange(width) * PAGE >= lengths[:, None]] = 0
    return pages, lengths, table


def _sums(pages, lengths, table):
    tokens = [pages[row].reshape(-1, D)[:length] for row, length in zip(table, lengths)]
    return np.stack([of_sequence.sum(0, keepdims=True) for of_sequence in tokens])


def _launch(kernel, pages, lengths, table, grid, spec, scratch, interpret):
    sums = pl.BlockSpec((None, 1, D), lambda sequence, *_: (sequence, 0, 0))
    specs = {"in_specs": [spec], "out_specs": sums, "scratch_shapes": scratch}
    walk = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=2, grid=grid, **specs)
    options = {"grid_spec": walk, "interpret": interpret, "name": "page_sum"}
    return launch(kernel, lengths, table, pages, shape=(len(table), 1, D), **options)


def _by_grid(kernel, pages, lengths, table, *, interpret):
    def place(sequence, j, lengths_ref, table_ref):
        last = jnp.maximum(pl.cdiv(lengths_ref[sequence], PAGE) - 1, 0)
        return table_ref[sequence, jnp.minimum(j, last)], 0, 0

    spec = pl.BlockSpec((None, PAGE, D), place)
    return _launch(kernel, pages, lengths, table, table.shape, spec, (), interpret)


def _by_hand(buffer, kernel, pages, lengths, table, *, interpret):
    scratch = pltpu.VMEM(buffer, pages.dtype), pltpu.SemaphoreType.DMA((2,))
    spec = pl.BlockSpec(memory_space=pltpu.HBM)
    return _launch(kernel, pages, lengths, table, table.shape[:1], spec, scratch, interpret)


_page_sum = functools.partial(
    Exercise,
    reference=_sums,
    make=_pooled,
    magnitude=lambda pages, lengths, table: _sums(abs(pages), lengths, table),
)
EXERCISES = (
    _page_sum(
        "page_sum",
        problems=RAGGED + cases(SIZES, whole=(2, 2, 2 * PAGE, "no page is in part")),
        call=_by_grid,
        rungs=("interpret",),
        judge=judges.lowered,
    ),
    _page_sum(
        "page_race",
        problems=RAGGED + cases(SIZES, whole=(2, 4, 4 * PAGE, "no page is in part")),
        call=functools.partial(_by_hand, (2, PAGE, D)),
        rungs=("interpret", "simulate"),
    ),
    _page_sum(
        "page_sum_fast",
        problems=RAGGED + cases(SIZES, blocks=(1, 36, 0, "two blocks, and a part of one")),
        call=functools.partial(_by_hand, (2, BLOCK, PAGE, D)),
        rungs=("interpret", "simulate"),
        bar=bars.cycles(SUM_CYCLES, 15_577, workload=LONG),
    ),
)
