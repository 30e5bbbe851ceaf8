"""vit_attention: what the ladder does not ask."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from close import assert_close, assert_right, assert_same_formula
from refused import refuses

from kernels import ladder
from kernels.attention import packed, reference, vit_attention
from kernels.attention.layout import pack, unpack
from kernels.machines.pallas import calls
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.catalog import OPERATORS

RNG = np.random.default_rng(0)


def packed_qkv(batch, tokens, heads, head_dim, dtype="float32"):
    rng = np.random.default_rng((batch, tokens, heads, head_dim))
    x = rng.standard_normal((batch, tokens, 3 * heads * head_dim))
    return x.astype(getattr(ml_dtypes, dtype, dtype))


def kernels_of(function, *shapes):
    return [call.name for call in calls(function, *shapes)]


def test_the_order_is_that_of_timm_s_qkv_linear():
    """timm: qkv(x).reshape(B, N, 3, heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)."""
    qkv = RNG.standard_normal((2, 5, 3 * 4 * 8))
    q, k, v = qkv.reshape(2, 5, 3, 4, 8).transpose(2, 0, 3, 1, 4)
    for got, want in zip(unpack(qkv, 4), (q, k, v), strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(pack(q, k, v), qkv)
    wide = qkv.astype(np.float64)
    want = []
    for q, k, v in zip(*(x.swapaxes(0, 1) for x in unpack(wide, 4)), strict=True):  # of a head
        s = np.exp(q @ k.swapaxes(1, 2) * 8**-0.5)
        want.append(s / s.sum(-1, keepdims=True) @ v)
    assert_same_formula(
        reference.vit_attention(wide, 4),
        np.concatenate(want, axis=-1),
        reference.vit_attention_magnitude(wide, 4),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", [3, 2 * 64 + 3, 2 * 2 * 64 + 3], ids=["q", "k", "v"])
def test_what_is_not_finite_stays_in_its_head_and_image(column, bad):
    """Two heads of 64 share 128 lanes; a NaN times a zero that masks it would still be NaN."""
    qkv = packed_qkv(2, 33, 2, 64)
    clean = np.asarray(vit_attention(qkv, 2))
    qkv[0, 5, column] = bad
    got = np.asarray(vit_attention(qkv, 2))
    assert not np.isfinite(got[0, :, :64]).all()
    assert np.array_equal(got[0, :, 64:], clean[0, :, 64:])
    assert np.array_equal(got[1], clean[1])


def test_two_kernels_and_nothing_else_moves_an_array():
    qkv = jax.ShapeDtypeStruct((4, 256, 3 * 12 * 64), jnp.bfloat16)
    o = jax.ShapeDtypeStruct((4, 256, 12 * 64), jnp.bfloat16)
    f = functools.partial(vit_attention, num_heads=12, interpret=False)

    def both(qkv, do):
        o, back = jax.vjp(f, qkv)
        return o, back(do)

    assert kernels_of(f, qkv) == ["vit_attention_forward"]
    assert kernels_of(both, qkv, o) == ["vit_attention_forward", "vit_attention_backward"]
    text = jax.jit(both).trace(qkv, o).lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 2
    assert "stablehlo.transpose" not in text and "stablehlo.reshape" not in text


def test_only_a_gradient_saves_the_log_sums():
    qkv = jax.ShapeDtypeStruct((2, 64, 3 * 2 * 64), jnp.float32)
    f = functools.partial(vit_attention, num_heads=2, interpret=False)
    assert len(jax.tree.leaves(jax.eval_shape(f, qkv))) == 1
    (call,) = calls(f, qkv)
    assert len(call.outputs) == 1
    saved = jax.eval_shape(lambda qkv: jax.vjp(f, qkv)[1], qkv)
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(saved))
    assert shapes == [(2, 2, 64), (2, 64, 3 * 2 * 64)]


@pytest.mark.slow
def test_the_way_around_gives_the_same(monkeypatch):
    qkv, do = packed_qkv(2, 65, 2, 32), RNG.standard_normal((2, 65, 64)).astype(np.float32)

    def pull(function, qkv, do):
        o, back = jax.vjp(functools.partial(function, num_heads=2, scale=0.3), qkv)
        return o, back(do)[0]

    monkeypatch.setattr(packed, "make_plan", lambda *_: None)
    got, plain = (
        pull(functools.partial(vit_attention, implementation=name), qkv, do)
        for name in ("pallas", "xla")
    )
    with jax.enable_x64(True):
        wide = [x.astype(np.float64) for x in (qkv, do)]
        want = pull(reference.vit_attention, *wide)[1]
        (size,) = reference.vit_attention_gradient_magnitude(wide[0], 2, wide[1], scale=0.3)
    assert_right("vit_attention", got[0], qkv, 2, scale=0.3)
    assert_close(got[1], want, plain[1], size)


def test_vmem_grows_with_tokens_features_and_dtype():
    def needed(tokens, heads=12, dtype=jnp.bfloat16):
        qkv = jax.ShapeDtypeStruct((1, tokens, 3 * heads * 64), dtype)
        return packed.Packing.of(qkv, heads, False).vmem_bytes(heads * 64, dtype)

    assert needed(1024) < needed(1025) < needed(2048)
    assert needed(1024) < needed(1024, heads=16) and needed(1024) < needed(1024, dtype=jnp.float32)
    # By hand: two buffers of 7 × 768 bfloat16, two float32 sums, 8 tiles of 2 heads × 256 queries.
    assert needed(1024) == 1024 * (2 * 7 * 768 * 2 + 2 * 768 * 4 + 8 * 2 * 256 * 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        lambda dq, dk, dv: (dk, dq, dv),
        lambda dq, dk, dv: (dq * 8**0.5, dk, dv),
        lambda dq, dk, dv: (dq, dk, dv[:, ::-1]),
        lambda dq, dk, dv: (0 * dq, dk, dv),
    ],
    ids=["swapped", "scaled", "heads-reversed", "forgotten"],
)
def test_a_planted_fault_in_the_gradient_falls(harm):
    def function(qkv, num_heads, *, interpret):
        @jax.custom_vjp
        def crooked(qkv):
            return vit_attention(qkv, num_heads, interpret=interpret)

        def backward(qkv, do):
            (dqkv,) = jax.vjp(lambda qkv: vit_attention(qkv, num_heads), qkv)[1](do)
            return (pack(*harm(*unpack(dqkv, num_heads))),)

        crooked.defvjp(lambda qkv: (crooked(qkv), qkv), backward)
        return crooked(jnp.asarray(qkv))

    operator = OPERATORS["vit_attention"]
    subject = ladder.Subject(operator, "planted", PALLAS_TPU, function, differentiable=True)
    (check,) = ladder.climb(subject, "interpret", [operator.workloads["tiny"]])
    assert check.status == "failed" and check.message.startswith("gradient of qkv")


X = np.ones((1, 4, 3 * 2 * 8), np.float32)


test_refuses_before_anything_runs = refuses(
    lambda qkv, heads, options: vit_attention(qkv, heads, **options),
    (X[0], 2, {}, r"qkv.shape is \(4, 48\); accepted: 3 dimensions"),
    (X[:, :0], 2, {}, "dimensions of at least 1"),
    (X.astype(np.int32), 2, {}, "qkv.dtype is 'int32'; accepted: float32, bfloat16"),
    (X, 5, {}, r"qkv.shape\[2\] is 48; accepted: a multiple of 3 × 5"),
    (X, 0, {}, "num_heads is 0; accepted: a whole number of at least 1"),
    (X, 2.0, {}, "num_heads is 2.0"),
    (X, True, {}, "num_heads is True"),
    (np.ones((1, 2, 3 * 257), np.float32), 1, {}, "accepted: at most 3 × 1 × 256"),
    (X, 2, {"scale": "small"}, "scale is 'small'; accepted: None or a finite number"),
    (X, 2, {"scale": float("nan")}, "scale is nan"),
    (X, 2, {"scale": True}, "scale is True"),
    (X, 2, {"implementation": "cudnn"}, "accepted: xla, xla_sliced, sdpa, pallas, unpacked"),
    (X, 2, {"implementation": "jax_flash"}, "a multiple of 128"),
)
