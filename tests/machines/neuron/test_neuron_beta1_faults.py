"""Grids, masks and operators of beta 1 on the simulated core, and each planted fault in them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, beta1
from kernels.machines.neuron.beta1 import language as bl

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


def beta(kernel, *arguments, **options):
    return neuron.simulate(beta1.jit(kernel), *arguments, **options)


@given(rows=st.integers(1, 260), columns=st.integers(1, 40))
def test_beta_1_grids_masks_and_operators(rows, columns):
    def kernel(x, y):
        out = bl.ndarray((rows, columns), dtype=x.dtype, buffer=bl.shared_hbm)
        i_f, i_2 = bl.arange(columns)[None, :], bl.arange(2 * columns)[None, :]
        for part in bl.affine_range((rows + 127) // 128):
            i_p = bl.arange(128)[:, None]
            inside = part * 128 + i_p < rows
            a = bl.load(x[part * 128 + i_p, i_2], mask=inside)
            b = bl.load(y[part * 128 + i_p, i_f], mask=inside)
            c = 2.0 * a[i_p, 2 * i_f] - bl.maximum(a[i_p, 2 * i_f + 1], 0.0) / (b * b + 1)
            bl.store(out[part * 128 + i_p, i_f], c, mask=inside)
        return out

    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 2 * columns)).astype(np.float32)
    y = rng.standard_normal((rows, columns)).astype(np.float32)
    want = 2 * x[:, ::2] - np.maximum(x[:, 1::2], 0) / (y * y + 1)
    for params in (None, InterpretParams(limits=False), InterpretParams(order=1)):
        assert np.array_equal(beta(kernel, x, y, params=params), want)


P, F = bl.arange(128)[:, None], bl.arange(64)[None, :]
THIRTY_TWO = bl.arange(32)[:, None]


def beta_stores(body):
    """A kernel that stores what body(x, tile of x, bad) makes."""

    def kernel(x, bad):
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, body(x, bl.load(x), bad))
        return out

    return kernel


def beta_no_mask(x, bad):
    out = bl.ndarray((100, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x[P, F], mask=P < 100)
    bl.store(out[P, F], tile, mask=None if bad else P < 100)
    return out


def beta_stride(x, bad):
    out = bl.ndarray((64, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    bl.store(out, bl.load(x)[(2 if bad else 1) * bl.arange(64)[:, None], F] + 1.0)
    return out


def beta_start(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    for part in range(4):
        shift = 16 if bad and part == 0 else 32 * part
        bl.store(out[32 * part + THIRTY_TWO, F], tile[shift + THIRTY_TWO, F] * 2.0)
    return out


def beta_partitions(x, tile, bad):
    bl.ndarray((129 if bad else 128, 1), dtype=x.dtype)[...] = 0.0
    return tile


def beta_fresh(x, tile, bad):
    fresh = bl.ndarray(x.shape, dtype=x.dtype)
    if not bad:
        fresh[...] = tile
    return fresh + 1.0


def beta_heights(x, tile, bad):
    tile[0:64, :] = tile[0:64, :] + tile[64 : 66 if bad else 128, :]
    return tile


def beta_store_into_a_tile(x, tile, bad):
    if bad:
        bl.store(bl.load(x), tile)
    return tile


BETA_FAULTS = {
    "mixed index": (beta_stores(lambda x, t, bad: bl.load(x[P, 0:64] if bad else x[P, F])),
        "one a slice; accepted: for each a grid of nl.arange"),
    "heights": (beta_stores(beta_heights), "differ in partitions"),
    "widths": (beta_stores(lambda x, t, bad: t + t[:, 0 : 2 if bad else 1]),
        "cannot be broadcast to each other"),
    "load of a tile": (beta_stores(lambda x, t, bad: bl.load(t) if bad else t),
        "load: src tile 1 .*; accepted: a tensor in HBM"),
    "store into a tile": (beta_stores(beta_store_into_a_tile),
        "store: dst tile 2 .*; accepted: a tensor in HBM"),
    "store of other shapes": (beta_stores(lambda x, t, bad: t[:, 0:32] if bad else t),
        "store: .* differ in shape"),
    "start": (beta_start, "starts at partition 16"),
    "too many rows": (
        beta_stores(lambda x, t, bad: t[bl.arange(129)[:, None] if bad else P, F] + 1.0),
        "has 129 partitions"),
    "numbers": (beta_stores(lambda x, t, bad: t + (bl.add(1.0, 2.0) if bad else 3.0)),
        "add of 1.0 and 2.0: at least one operand is a tile"),
    "text": (beta_stores(lambda x, t, bad: t + ("1" if bad else 1.0)),
        "an operand is a str; accepted: tiles and numbers"),
    "no mask": (beta_no_mask, "store: .* out of bounds|takes .* that a mask had left out"),
    "masked garbage": (
        beta_stores(lambda x, t, bad: bl.load(x[P, F], mask=(100 if bad else 128) > P) + 1.0),
        "store takes 1792 elements .* that a mask had left out"),
    "partitions": (beta_stores(beta_partitions), "has 129 partitions"),
    "HBM operand": (beta_stores(lambda x, t, bad: t + (x if bad else t)), "nl.load it first"),
    "stride": (beta_stride, "takes partitions with a step"),
    "fresh": (beta_stores(beta_fresh), "add reads 8192 elements .* that were never written"),
    "and": (
        beta_stores(lambda x, t, bad: bl.load(x, mask=(P < 128 and F < 64) if bad else None)),
        "neither true nor false: join masks with &"),
    "loop_reduce": (
        beta_stores(lambda x, t, bad: bl.loop_reduce(t, op=np.add, loop_indices=[0]) if bad else t),
        r"loop_reduce over \[0\]; accepted: indices of"),
}  # fmt: skip


@pytest.mark.parametrize("name", BETA_FAULTS)
def test_a_fault_in_beta_1_is_refused_and_its_twin_is_not(name):
    kernel, says = BETA_FAULTS[name]
    assert beta(kernel, X, False) is not None
    with pytest.raises(NeuronError, match=says):
        beta(kernel, X, True)


def test_what_comes_last_is_known_unless_iterations_do_it():
    def kernel(x, loop):
        out = bl.ndarray((64, 64), dtype=x.dtype, buffer=bl.shared_hbm)
        for i in loop(2):
            bl.store(out, bl.load(x[64 * i : 64 * i + 64, :]))
        return out

    with pytest.warns(UserWarning, match=r"a second time: .* the order written is kept"):
        assert np.array_equal(beta(kernel, X, range), X[64:])
    with pytest.raises(NeuronError, match=r"store writes 4096 elements of .* a second time"):
        beta(kernel, X, bl.affine_range)


def test_simulate_kernel_writes_into_its_arguments():
    def kernel(x, out):
        bl.store(out, bl.load(x) * 2.0)

    out = np.empty_like(X)
    beta1.simulate_kernel(beta1.jit(kernel), X, out)
    assert np.array_equal(out, 2 * X)
