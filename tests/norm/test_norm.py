"""Norms and softmax: any shape and rank, rows in parts, what is asked of arguments; NKI."""

import jax
import numpy as np
import pytest
from close import assert_right
from refused import refuses

from kernels import neuron
from kernels.norm import layer_norm, rms_norm
from kernels.softmax import RowBlocks, nki, softmax

NORMS = {"rms_norm": (rms_norm, 1), "layer_norm": (layer_norm, 2)}
ALL = {"softmax": (softmax, 0), **NORMS}


def drawn(shape, vectors, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [shape, *[shape[-1:]] * vectors]
    return [rng.standard_normal(size).astype(np.float32) for size in sizes]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (1, 2, 1, 4), (2, 1, 131)])
def test_any_rank(name, shape):
    norm, vectors = ALL[name]
    arguments = drawn(shape, vectors)
    for implementation in ("pallas", "nki")[: 2 if name == "softmax" else 1]:
        got = norm(*arguments, implementation=implementation)
        assert got.shape == shape
        assert_right(name, got, *arguments)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("slope", [-20, -1 / 64, 1 / 64, 20])
def test_two_passes_give_what_one_does(name, slope):
    """Parts whose means lie far apart, the largest first or last, so that their merging counts."""
    norm, vectors = ALL[name]
    x, *more = drawn((40, 509), vectors)
    x += slope * np.arange(509, dtype=np.float32)
    assert_right(name, norm(x, *more, block=RowBlocks(32, 128)), x, *more)


@pytest.mark.parametrize("name", ALL)
def test_vmap_of_gradients(name):
    norm, vectors = ALL[name]
    arguments = drawn((3, 5, 33), vectors)
    places = tuple(range(vectors + 1))

    def gradients(implementation):
        loss = lambda *arguments: (norm(*arguments, implementation=implementation) ** 2).sum()
        axes = (0, *[None] * vectors)
        return jax.vmap(jax.grad(loss, argnums=places), in_axes=axes)(*arguments)

    for ours, plain in zip(gradients("pallas"), gradients("xla"), strict=True):
        assert ours.shape == plain.shape and np.abs(plain).max() > 0
        assert np.allclose(ours, plain, rtol=1e-5, atol=1e-5 * np.abs(plain).max())


X, W = np.ones((2, 3), np.float32), np.ones(3, np.float32)


test_arguments_are_checked = refuses(
    lambda arguments, options: rms_norm(*arguments, **options),
    ((np.ones((2, 0), np.float32), W), {}, r"x.shape is \(2, 0\); accepted: dimensions"),
    ((np.ones((2, 3), np.int32), W), {}, "x.dtype is 'int32'; accepted: float32, bfloat16"),
    (([1.0], W), {}, "x is a list; accepted: an array of rank 1"),
    ((X, W[:2]), {}, r"weight.shape is \(2,\); accepted: \(3,\), as the last axis of x"),
    ((X, W.astype(np.float16)), {}, "weight.dtype is 'float16'"),
    ((X, W), {"eps": 0}, "eps is 0; accepted: a number above 0"),
    ((X, W), {"block": 32}, "block is 32; accepted: None or RowBlocks"),
    ((X, W), {"implementation": "nki"}, "implementation is 'nki'; accepted: xla, pallas"),
    ((X, W), {"implementation": "xla", "block": RowBlocks(2, 3)}, "chooses its own"),
)


def test_bias_is_checked():
    with pytest.raises(ValueError, match=r"bias.shape is \(2,\); accepted: \(3,\)"):
        layer_norm(X, W, W[:2])


def test_the_scalar_engine_adds_up_while_it_raises():
    """Of a tile: one instruction of exp, one short one that reads the sums out."""
    found = neuron.estimate(nki.softmax_kernel, np.zeros((128, 512), np.float32))
    assert found.engines["Scalar"].instructions == 2
    assert found.engines["Scalar"].by_name["activation_reduce"] == 512


test_softmax_checks_its_arguments = refuses(
    lambda change: softmax(**dict(x=np.zeros(3, np.float32)) | change),
    (dict(x=np.zeros((2, 0), np.float32)), r"x.shape is \(2, 0\); accepted: dimensions of at"),
    (dict(x=np.zeros((), np.float32)), r"x.shape is \(\); accepted: 1 dimension"),
    (dict(x=np.zeros(3, np.int32)), "x.dtype is 'int32'; accepted: float32, bfloat16"),
    (dict(x=[1.0]), "x is a list; accepted: an array of rank 1"),
    (dict(implementation="torch"), "is 'torch'; accepted: xla, pallas, mosaic_gpu, nki"),
    (dict(block=32), r"block is 32; accepted: None or RowBlocks\(rows"),
    (dict(block=RowBlocks(8, 128), implementation="nki"), 'since "nki" chooses its own'),
)
