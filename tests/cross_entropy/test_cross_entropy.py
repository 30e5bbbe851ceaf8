"""The loss of a linear layer: its labels, its blocks, what is kept, and what a right one may be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refused import refuses

from kernels import tpu
from kernels.cross_entropy import CrossEntropyBlocks, linear_cross_entropy
from kernels.cross_entropy.blocks import RESULTS, plan
from kernels.proof.catalog import OPERATORS

NAMES = OPERATORS["linear_cross_entropy"].names


def problem(t=24, d=16, v=300, seed=0):
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((t, d), (d, v)))
    return x, w, rng.integers(v, size=t, dtype=np.int32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [-1, 300, -100])
def test_a_known_label_out_of_range_is_refused_by_the_first_one(name, wrong):
    x, w, labels = problem()
    labels[[5, 9]] = wrong, -7
    with pytest.raises(ValueError, match=rf"labels\[5\] is {wrong}; accepted: 0 to 299"):
        linear_cross_entropy(x, w, labels, implementation=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [-1, 300])
def test_under_a_trace_it_makes_its_own_loss_and_gradients_nan(name, wrong):
    """Also where it falls into the part of a last block that is no vocabulary."""
    x, w, labels = problem()
    whole = linear_cross_entropy(x, w, labels, implementation=name)
    labels[5] = wrong

    @jax.jit
    def loss_and_pull(x, w, labels):
        call = functools.partial(linear_cross_entropy, implementation=name)
        loss, back = jax.vjp(lambda x, w: call(x, w, labels), x, w)
        return loss, *back(jnp.ones_like(loss))

    loss, dx, dw = map(np.array, loss_and_pull(x, w, labels))
    others = np.arange(len(x)) != 5
    assert np.isnan(loss[5]) and np.array_equal(loss[others], np.asarray(whole)[others])
    assert np.isnan(dx[5]).all() and np.isfinite(dx[others]).all()
    assert np.isnan(dw).all()


test_arguments_are_checked = refuses(
    lambda change: linear_cross_entropy(**dict(zip(("x", "w", "labels"), problem())) | change),
    ({"x": np.zeros((0, 16), np.float32)}, r"x.shape is \(0, 16\); accepted: dimensions"),
    ({"x": np.zeros((24, 16), np.int8)}, "x.dtype is 'int8'; accepted: float32, bfloat16"),
    ({"w": np.zeros((17, 300), np.float32)}, r"w.shape\[0\] is 17; accepted: 16"),
    ({"w": np.zeros((16, 300), jnp.bfloat16)}, "w.dtype is bfloat16; accepted: float32"),
    ({"labels": np.zeros(24, np.int64)}, "labels.dtype is 'int64'; accepted: int32"),
    ({"labels": np.zeros(23, np.int32)}, r"labels.shape is \(23,\); accepted: \(24,\)"),
    ({"block": (128, 128)}, r"block is \(128, 128\); accepted: None or CrossEntropyBlocks"),
    ({"implementation": "triton"}, "implementation is 'triton'; accepted: xla"),
)


def test_blocks_are_checked():
    with pytest.raises(ValueError, match=r"block.vocab is 200; accepted: a multiple of 128"):
        CrossEntropyBlocks(128, 200)
    with pytest.raises(ValueError, match=r"block is 2048×2048, which takes .* for dw; accepted"):
        large = CrossEntropyBlocks(2048, 2048)
        plan(4096, 4096, 8192, "bfloat16", "dw", block=large, chip=tpu.CHIPS["v7x"])
    with pytest.raises(ValueError, match=r"x.shape\[1\] is 100000, of which 128×128 logits take"):
        plan(1024, 100_000, 8192, "float32", chip=tpu.CHIPS["v5e"])


@pytest.mark.parametrize("chip", tpu.CHIPS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rule_finds_blocks_for_every_model_and_kernel(chip, dtype):
    for d in (1, 2560, 4096, 7168):
        for result in RESULTS:
            planned = plan(4096, d, 151_936, dtype, result, chip=tpu.CHIPS[chip])
            needed = planned.block.vmem_bytes(d, dtype, result)
            assert needed <= planned.vmem_limit_bytes * 3 / 4 < planned.chip.vmem_bytes


@pytest.mark.parametrize("name", ["xla_chunked", "pallas"])
def test_no_array_of_all_logits_is_made(name):
    """Neither forward nor backward, at any depth of the program; the plain form has them."""
    t, v = 384, 9001
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((t, 8), (8, v), (t,))]
    labels = jax.ShapeDtypeStruct((t,), jnp.int32)

    def has_all(name):
        def pull(x, w, do, labels):
            call = functools.partial(linear_cross_entropy, implementation=name, interpret=False)
            return jax.vjp(lambda x, w: call(x, w, labels), x, w)[1](do)

        return f"{t},{v}]" in str(jax.make_jaxpr(pull)(*shapes, labels))

    assert has_all("xla") and not has_all(name)
