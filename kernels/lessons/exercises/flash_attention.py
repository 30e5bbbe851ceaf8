"""Exercises of the chapter "Flash attention"."""

import functools

import numpy as np
from jax.experimental import pallas as pl

from kernels.attention import reference
from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.backends.xla import XLA
from kernels.proof.workload import cases
from kernels.softmax.reference import softmax

BLOCK = 128  # queries of a program, and keys of a block
KERNEL_CYCLES = 19_500  # of a kernel for AT
RIVAL_CYCLES = 18_500  # without one; our own kernel is estimated at some 17,100


def _tokens(workload, rng):
    q, k, v = drawn("h n d", "h n d", "h n d")(workload, rng)
    if workload.name == "unseen":
        v[:, [0, -1]] = np.nan
    return q, k, v, workload.sizes["w"]


def _visible(n, w):
    """[queries, keys]"""
    query, key = np.arange(n)[:, None], np.arange(n)
    return (key <= query) & (key > query - w)


def _probabilities(q, k, w):
    """[h, queries, keys], and the scores' sums of absolute values."""
    scale = q.shape[-1] ** -0.5
    s = np.where(_visible(q.shape[1], w), scale * q @ k.swapaxes(1, 2), -np.inf)
    return softmax(s), scale * abs(q) @ abs(k).swapaxes(1, 2)


def _by_blocks(p, v, w):
    """p v, where each block of queries meets the blocks of keys that it sees, and no others."""
    rows = []
    for first in range(0, p.shape[1], BLOCK):
        last = first + BLOCK
        seen = slice(max(first - w + 1, 0) // BLOCK * BLOCK, last)
        rows.append(p[:, first:last, seen] @ v[:, seen])
    return np.concatenate(rows, 1)


def _window_magnitude(q, k, v, w):
    p, s = _probabilities(q, k, w)
    return _by_blocks(p * (1 + s + (p * s).sum(-1, keepdims=True)), abs(v), w)


def _by_queries(kernel, *arrays, interpret, **window):
    """A program for each block of queries, of which some arrays have a row each, q among them."""
    q = arrays[0]
    heads, n, d = q.shape
    keys = pl.BlockSpec((1, *arrays[1].shape[1:]), lambda h, i: (h, 0, 0))
    queries, rows = (pl.BlockSpec((1, BLOCK, width), lambda h, i: (h, i, 0)) for width in (d, 1))
    return launch(
        functools.partial(kernel, bk=BLOCK, **window),
        *arrays,
        shape=q.shape,
        grid=(heads, n // BLOCK),
        blocks=(*(queries, keys, keys, queries, rows, rows)[: len(arrays)], queries),
        interpret=interpret,
    )


def _attend(kernel, q, k, v, w, *, interpret):
    return _by_queries(kernel, q, k, v, w=w, interpret=interpret)


def _pulled(workload, rng):
    """q, k, v, do [h, n, d]; the log-sum-exps of the scores and the sums of do · o, [h, n, 1].

    In "unseen" a block of NaN follows on the keys and values.
    """
    q, k, v, do = drawn(*["h n d"] * 4)(workload, rng)
    _, n, d = q.shape
    s = np.float64(q) @ np.float64(k).swapaxes(1, 2) * d**-0.5
    s = np.where(_visible(n, n), s, -np.inf)
    lse = np.log(np.exp(s).sum(-1, keepdims=True))
    delta = (do * (np.exp(s - lse) @ v)).sum(-1, keepdims=True)
    more = ((0, 0), (0, BLOCK * (workload.name == "unseen")), (0, 0))
    k, v = (np.pad(x, more, constant_values=np.nan) for x in (k, v))
    return q, k, v, do, lse.astype(np.float32), delta.astype(np.float32)


def _dq(q, k, v, do, lse, delta):
    k, v, scale = k[:, : q.shape[1]], v[:, : q.shape[1]], q.shape[-1] ** -0.5
    p = np.exp(scale * q @ k.swapaxes(1, 2) - lse) * _visible(q.shape[1], q.shape[1])
    return scale * (p * (do @ v.swapaxes(1, 2) - delta)) @ k


def _dq_magnitude(q, k, v, do, lse, delta):
    k, v, scale = k[:, : q.shape[1]], v[:, : q.shape[1]], q.shape[-1] ** -0.5
    s = scale * q @ k.swapaxes(1, 2)
    size = 1 + scale * abs(q) @ abs(k).swapaxes(1, 2) + abs(lse)
    terms = abs(do) @ abs(v).swapaxes(1, 2) + abs(delta)
    seen = _visible(q.shape[1], q.shape[1])
    return scale * (np.exp(s - lse) * seen * size * terms) @ abs(k)


def _whole(kernel, q, k, v, *, interpret):
    heads, n, d = q.shape
    queries = pl.BlockSpec((None, 2 * BLOCK, d), lambda h, i: (h, i, 0))
    keys = pl.BlockSpec((None, n, d), lambda h, i: (h, 0, 0))
    options = {"grid": (heads, n // (2 * BLOCK)), "name": "attend", "interpret": interpret}
    return launch(kernel, q, k, v, blocks=(queries, keys, keys, queries), **options)


AT, BF16 = bars.at("bfloat16", h=2, n=1024, d=128), {"dtype": "bfloat16"}

EXERCISES = (
    Exercise(
        "flash_window",
        lambda q, k, v, w: _by_blocks(_probabilities(q, k, w)[0], v, w),
        _tokens,
        cases(
            "h n d w",
            narrow=(1, 256, 64, 100, "block 0 is seen in part"),
            unseen=(1, 384, 64, 1, "NaN in blocks 0 and 2"),
        ),
        call=_attend,
        magnitude=_window_magnitude,
    ),
    Exercise(
        "flash_backward",
        _dq,
        _pulled,
        cases(
            "h n d",
            two=(1, 256, 64),
            heads=(2, 128, 32),
            long=(1, 384, 32, "whole blocks before the diagonal"),
            unseen=(1, 256, 32, "NaN in keys that no query sees"),
        ),
        call=_by_queries,
        judge=judges.products(BLOCK * BLOCK),
        magnitude=_dq_magnitude,
    ),
    Exercise(
        "flash_fast",
        reference.attention,
        drawn("h n d", "h n d", "h n d"),
        cases("h n d", float32=(1, 512, 128), bfloat16=(1, 256, 128, BF16)),
        call=_whole,
        rungs=("interpret",),
        bar=bars.cycles(KERNEL_CYCLES, (("0.0.42.1", 17_004), ("0.0.50.1", 17_218)), workload=AT),
        magnitude=reference.attention_magnitude,
    ),
    Exercise(
        "flash_rival",
        reference.attention,
        drawn("h n d", "h n d", "h n d"),
        cases("h n d", float32=(2, 96, 64), bfloat16=(1, 128, 128, BF16)),
        backend=XLA,
        bar=bars.cycles(RIVAL_CYCLES, (("0.0.42.1", 16_190), ("0.0.50.1", 16_205)), workload=AT),
        magnitude=reference.attention_magnitude,
    ),
)
