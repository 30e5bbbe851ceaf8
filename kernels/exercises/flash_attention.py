"""Exercises of the chapter "Flash attention"."""

import functools

import jax
import numpy as np
from jax.experimental import pallas as pl

from kernels.backends.python import PYTHON
from kernels.exercises.exercise import Exercise, call, prediction, problems
from kernels.workload import Workload, values

BLOCK = 128  # queries of a program, and keys of a block


def _halves(workload, rng):
    """Two results [h, n, d], each followed by its log-sum-exp [h, n, 1]."""
    h, n, d = (workload.sizes[name] for name in "hnd")
    o1, o2 = (values("normal", (h, n, d), "float32", rng) for _ in range(2))
    lse1, lse2 = (values("normal", (h, n, 1), "float32", rng) for _ in range(2))
    if workload.name == "large":
        lse1, lse2 = lse1 + 200, lse2 + 200
    if workload.name == "unseen":
        o1, lse1 = np.zeros_like(o1), np.full_like(lse1, -np.inf)
    return o1, lse1, o2, lse2


def _merged(o1, lse1, o2, lse2):
    lse = np.logaddexp(lse1, lse2)
    return np.exp(lse1 - lse) * o1 + np.exp(lse2 - lse) * o2


def _merged_magnitude(o1, lse1, o2, lse2):
    size = 1 + abs(np.nan_to_num(lse1, neginf=0)) + abs(lse2)
    return _merged(abs(o1), lse1, abs(o2), lse2) * size


def _tokens(workload, rng):
    h, n, d = (workload.sizes[name] for name in "hnd")
    q, k, v = (values("normal", (h, n, d), "float32", rng) for _ in range(3))
    if workload.name == "unseen":
        v[:, 0] = np.nan
    return q, k, v, workload.sizes["w"]


def _visible(n, w):
    """[queries, keys]"""
    query, key = np.arange(n)[:, None], np.arange(n)
    return (key <= query) & (key > query - w)


def _probabilities(q, k, w):
    """[h, queries, keys], and the scores' sums of absolute values."""
    scale = q.shape[-1] ** -0.5
    s = np.where(_visible(q.shape[1], w), scale * q @ k.swapaxes(1, 2), -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True), scale * abs(q) @ abs(k).swapaxes(1, 2)


def _by_blocks(p, v, w):
    """p v, where each block of queries meets the blocks of keys that it sees, and no others."""
    found = []
    for first in range(0, p.shape[1], BLOCK):
        last = first + BLOCK
        seen = slice(max(first - w + 1, 0) // BLOCK * BLOCK, last)
        found.append(p[:, first:last, seen] @ v[:, seen])
    return np.concatenate(found, 1)


def _window(q, k, v, w):
    return _by_blocks(_probabilities(q, k, w)[0], v, w)


def _window_magnitude(q, k, v, w):
    p, s = _probabilities(q, k, w)
    return _by_blocks(p * (1 + s + (p * s).sum(-1, keepdims=True)), abs(v), w)


def _attend(kernel, q, k, v, w, *, interpret):
    heads, n, d = q.shape
    queries = pl.BlockSpec((1, BLOCK, d), lambda h, i: (h, i, 0))
    keys = pl.BlockSpec((1, n, d), lambda h, i: (h, 0, 0))
    return pl.pallas_call(
        functools.partial(kernel, bk=BLOCK, w=w),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads, n // BLOCK),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        interpret=interpret,
    )(q, k, v)


def _blocks(n, bq, bk, w):
    seen = _visible(n, w)
    return sum(seen[i : i + bq, j : j + bk].any() for i in range(0, n, bq) for j in range(0, n, bk))


def _balance(d):
    return next(n for n in range(1, 10**6) if 2 * n * n >= 4 * 2 * n * d)


EXERCISES = (
    Exercise(
        "flash_merge",
        "Write merge(o1, lse1, o2, lse2): the attention to all keys, [h, n, d], of the results "
        "o1 and o2, [h, n, d], for two halves of them and their log-sum-exps, [h, n, 1].",
        _merged,
        call,
        problems(
            _halves,
            Workload("even", {"h": 2, "n": 8, "d": 4}),
            Workload("large", {"h": 1, "n": 16, "d": 8}, why="their powers overflow"),
            Workload("unseen", {"h": 1, "n": 4, "d": 8}, why="a half that no query sees"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        magnitude=_merged_magnitude,
        hint="The weights of the halves are a softmax of their log-sum-exps.",
    ),
    Exercise(
        "flash_window",
        "Write kernel(q_ref, k_ref, v_ref, o_ref, *, bk, w): a program has 128 queries of a head, "
        "[1, 128, d], and all of its keys and values, [1, n, d]; query i sees the keys i - w + 1 "
        "to i. Blocks that no query of the program sees are not visited: there may be NaN in them.",
        _window,
        _attend,
        problems(
            _tokens,
            Workload(
                "narrow", {"h": 1, "n": 256, "d": 64, "w": 100}, why="block 0 is seen in part"
            ),
            Workload("unseen", {"h": 1, "n": 256, "d": 64, "w": 1}, why="NaN in block 0"),
        ),
        magnitude=_window_magnitude,
        hint="exp(-inf - -inf) is NaN: a row that sees nothing yet needs a finite score. "
        "And 0 times NaN is NaN: where does the loop begin?",
    ),
    prediction(
        "flash_window_blocks",
        "Write blocks(n, bq, bk, w): how many blocks of keys all programs of one head visit, of n "
        "tokens in blocks of bq queries and bk keys, if query i sees the keys i - w + 1 to i.",
        _blocks,
        Workload("narrow", {"n": 512, "bq": 128, "bk": 128, "w": 100}),
        Workload("one", {"n": 512, "bq": 128, "bk": 128, "w": 1}),
        Workload("causal", {"n": 512, "bq": 128, "bk": 64, "w": 512}),
        Workload("just", {"n": 256, "bq": 64, "bk": 32, "w": 34}, why="one key of a block"),
        hint="The first query of a program reaches back the furthest.",
    ),
    prediction(
        "flash_balance",
        "Write balance(d): from how many tokens on the probabilities of one head, in bfloat16, "
        "take at least as many bytes as its q, k, v and o, of d numbers for each token.",
        _balance,
        Workload("vit", {"d": 64}),
        Workload("language", {"d": 128}),
        Workload("odd", {"d": 80}),
    ),
)
