"""Exercises of the chapter "Attention in a vision transformer"."""

import functools

import numpy as np
from jax.experimental import pallas as pl

from kernels.attention import reference
from kernels.attention.layout import pack, unpack
from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import Workload, cases
from kernels.softmax.reference import softmax

WIDTH = 64  # of a head
PAIR_BUNDLES = 1_700  # of two heads' backward pass; upright it takes 2,291


def _blocks(*shapes):
    return tuple(pl.BlockSpec((None, *shape[1:]), lambda i: (i, 0, 0)) for shape in shapes)


def _pulled(kernel, qkv, do, *, interpret):
    blocks = _blocks(qkv.shape, do.shape, qkv.shape)
    options = {"shape": qkv.shape, "grid": (len(qkv),), "name": "pair_backward"}
    return launch(kernel, qkv, do, blocks=blocks, interpret=interpret, **options)


def _dqkv(qkv, do):
    q, k, v = unpack(qkv, 2)
    do = do.reshape(*do.shape[:2], 2, WIDTH).swapaxes(1, 2)
    p = softmax(q @ k.swapaxes(-1, -2) / 8)
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / 8
    return pack(ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do)


def _dqkv_magnitude(qkv, do):
    return reference.vit_attention_gradient_magnitude(qkv, 2, do)[0]


def _padded(kernel, qkv, *, tokens, interpret):
    shape = (*qkv.shape[:2], qkv.shape[2] // 3)
    options = {"shape": shape, "grid": (len(qkv),), "name": "pair", "interpret": interpret}
    kernel = functools.partial(kernel, tokens=tokens)
    return launch(kernel, qkv, blocks=_blocks(qkv.shape, shape), **options)


def _real(function, others):
    """What each real token sees of the real ones, and a number for the others."""

    def real(qkv, tokens):
        result = np.full((*qkv.shape[:2], qkv.shape[2] // 3), others, qkv.dtype)
        result[:, :tokens] = function(qkv[:, :tokens], 2)
        return result

    return real


def _with_nan(workload, rng):
    (qkv,) = drawn(f"b n {6 * WIDTH}")(workload, rng)
    qkv[:, workload.options["tokens"] :] = np.nan
    return (qkv,)


EXERCISES = (
    Exercise(
        "vit_padded",
        _real(reference.vit_attention, 0.0),
        _with_nan,
        (
            Workload("some", {"b": 2, "n": 64}, options={"tokens": 50}),
            Workload("all", {"b": 1, "n": 32}, options={"tokens": 32}, why="nothing to mask"),
            Workload("one", {"b": 1, "n": 16}, options={"tokens": 1}, why="it sees itself"),
        ),
        call=_padded,
        rungs=("interpret", "simulate"),
        magnitude=_real(reference.vit_attention_magnitude, 1.0),
    ),
    Exercise(
        "vit_backward",
        _dqkv,
        drawn(f"b n {6 * WIDTH}", f"b n {2 * WIDTH}"),
        cases("b n", two=(2, 32), one=(1, 1, "a single key has no gradient")),
        call=_pulled,
        rungs=("interpret", "simulate"),
        magnitude=_dqkv_magnitude,
    ),
    Exercise(
        "vit_fast",
        _dqkv,
        drawn(f"b n {6 * WIDTH}", f"b n {2 * WIDTH}"),
        cases("b n", float32=(2, 32)) + cases("b n", dtype="bfloat16", bfloat16=(1, 64)),
        call=_pulled,
        rungs=("interpret",),
        bar=bars.bundles(
            *("pair_backward", PAIR_BUNDLES, (("0.0.42.1", 1_385), ("0.0.50.1", 1_405))),
            workload=bars.at("bfloat16", b=2, n=256),
            figure="bundles a picture on a v5e",
        ),
        magnitude=_dqkv_magnitude,
    ),
)
