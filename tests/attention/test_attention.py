"""attention and vit_attention: what the ladder does not ask."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from close import assert_close, assert_right
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refused import refuses

from kernels import ladder, optional
from kernels.attention import attention, packed, pallas, reference
from kernels.attention.blocks import AttentionBlocks, plan
from kernels.attention.layout import pack, unpack
from kernels.attention.operator import block_sparse_attention, vit_attention
from kernels.attention.xla import slice_of
from kernels.machines.pallas import calls
from kernels.machines.tpu import CHIPS
from kernels.proof.catalog import OPERATORS

SMALL = AttentionBlocks(tokens=128, tq=128, tk=128, heads=2)
OPERATOR = OPERATORS["attention"]


def operands(b, h, n, m, d, dtype="float32"):
    rng = np.random.default_rng((b, h, n, m, d))
    dtype = getattr(ml_dtypes, dtype, dtype)
    shapes = ((b, h, n, d), (b, h, m, d), (b, h, m, d))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def shapes(b, h, n, d, dtype=jnp.bfloat16):
    return (jax.ShapeDtypeStruct((b, h, n, d), dtype),) * 3


@pytest.mark.slow
@given(
    sizes=st.tuples(
        st.integers(1, 2),
        st.integers(1, 3),
        st.integers(1, 290),
        st.integers(1, 290),
        st.sampled_from([1, 8, 31, 64, 128, 130]),
    ),
    causal=st.booleans(),
    tiles=st.tuples(*[st.sampled_from([128, 256])] * 3),
)
@settings(max_examples=6)
def test_any_lengths_with_any_legal_block(sizes, causal, tiles):
    q, k, v = operands(*sizes)
    got = attention(q, k, v, causal=causal, block=AttentionBlocks(*tiles, heads=2))
    assert_right("attention", got, q, k, v, causal=causal)


def test_a_causal_query_does_not_depend_on_later_keys():
    q, k, v = operands(1, 2, 200, 200, 64)
    changed = [np.where(np.arange(200)[:, None] < 150, x, -x) for x in (k, v)]
    f = functools.partial(attention, q, causal=True, block=SMALL)
    one, two = np.asarray(f(k, v)), np.asarray(f(*changed))
    assert np.array_equal(one[:, :, :150], two[:, :, :150])
    assert (one[:, :, 150:] != two[:, :, 150:]).any(-1).all()


def test_only_the_log_sum_exp_is_saved():
    """No array of scores is left between forward and backward: 4 arrays of q's size, and a row."""
    q, k, v = operands(1, 2, 256, 256, 64)
    _, back = jax.vjp(functools.partial(attention, block=SMALL), q, k, v)
    saved = sum(np.asarray(x).size for x in jax.tree.leaves(back) if hasattr(x, "size"))
    assert saved <= 4 * q.size + 2 * 256


def in_segments(ids):
    return {"segment_ids": np.stack([ids] * 2).astype(np.int32)}


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"causal": True}, 35 / 64),  # in the upper triangle each row goes on where the last ended
        (in_segments(np.arange(1024) // 128), 1 / 8),
        (in_segments(np.arange(1024) % 9), 1),
    ],
)
def test_only_blocks_that_may_meet_are_fetched(options, share):
    """Of 8 × 8 blocks, in both passes: of keys forward, of queries backward."""
    attend = functools.partial(attention, block=SMALL, interpret=False, **options)
    both = calls(lambda *a: jax.vjp(attend, *a)[1](a[0]), *shapes(2, 2, 1024, 128))
    for call, passing in zip(both, ("k", "q"), strict=True):
        traffic = next(o.traffic for o in call.inputs if o.name == passing)
        assert traffic == share * 8 * (2 * 2 * 1024 * 128 * 2)


@pytest.mark.parametrize(("left", "blocks"), [(0, 16), (128, 31), (129, 45), (4096, 136)])
def test_only_blocks_in_the_window_are_visited(left, blocks):
    """Of 16 × 16 blocks of 128, in both passes; and the sums of dq wait for no others."""
    options = {"causal": True, "window": (left, 0), "block": SMALL, "interpret": False}
    attend = functools.partial(attention, **options)
    for call in calls(lambda *a: jax.vjp(attend, *a)[1](a[0]), *shapes(1, 2, 2048, 128)):
        assert call.grid == (1, blocks)
    tiling = pallas.Tiling(2048, 2048, 128, 128, 128, 128, left, 0, None, 1.0, None, 1, True, False)
    slots = pallas.blocks_that_meet(tiling, by_keys=True)[4].max() + 1
    assert slots == {16: 1, 31: 1, 45: 2, 136: 15}[blocks]


def test_float32_asks_for_full_precision_on_a_tpu():
    """Without it the MXU multiplies bfloat16, and float32 loses 16 bits."""
    for implementation in ("pallas", "xla"):
        f = functools.partial(attention, implementation=implementation, interpret=False)
        assert "HIGHEST" in str(jax.make_jaxpr(f)(*shapes(1, 1, 128, 64, jnp.float32)))


def test_two_devices_worth_of_vmap():
    q, k, v = operands(3, 2, 33, 33, 16)
    got = jax.vmap(lambda q, k, v: attention(q[None], k[None], v[None])[0])(q, k, v)
    assert np.array_equal(got, attention(q, k, v))


HAS_TOKAMAX = optional.available("tokamax")
TOKAMAX = pytest.param("tokamax", marks=pytest.mark.skipif(not HAS_TOKAMAX, reason="no tokamax"))


@pytest.mark.parametrize(
    "implementation", ["pallas", "xla_sliced", "jax_flash", "jax_splash", TOKAMAX]
)
def test_segment_ids_are_traced_and_without_a_key_all_is_zero(implementation):
    q, k, v = operands(1, 2, 256, 256, 64)
    attend = jax.jit(functools.partial(attention, implementation=implementation))
    ids = (np.arange(256) >= 100).astype(np.int32)[None]
    assert_right("attention", attend(q, k, v, ids), q, k, v, ids)
    o, back = jax.vjp(lambda *arrays: attend(*arrays, (ids, ids + 2)), q, k, v)
    assert not any(np.asarray(x).any() for x in (o, *back(jnp.ones_like(o))))


ONE, FLASH = np.ones((1, 2, 8, 4), np.float32), {"implementation": "jax_flash"}
IDS = np.zeros((1, 8), np.int32)


test_refuses_before_anything_runs = refuses(
    lambda change: attention(**dict.fromkeys("qkv", ONE) | change),
    (dict(q=ONE[0]), r"q.shape is \(2, 8, 4\); accepted: 4 dimensions"),
    (dict(k=ONE[:, :, :0]), "k.shape.*dimensions of at least 1"),
    (dict(k=ONE[:, :1]), r"v.shape\[1\] \(heads\) is 2; accepted: 1"),
    (dict.fromkeys("kv", ONE[:, [0] * 3]), r"k.shape\[1\] \(heads\) is 3; accepted: a divisor"),
    (dict.fromkeys("kv", ONE[:, :1]) | FLASH, '2, as q has, for "jax_flash"; x'),
    (dict(window=(1, -1)), r"window is \(1, -1\); accepted: None, a whole"),
    (dict(window=1, implementation="torch"), "xla, .* pallas, jax_splash, .* do"),
    (dict(segment_ids=IDS[0]), r"segment_ids.shape is \(8,\); accepted: 2 dimensions"),
    (dict(segment_ids=IDS + 0.5), "segment_ids.dtype is 'float64'; accepted: int32"),
    (dict(segment_ids=IDS[:, :7]), r"segment_ids.shape is \(1, 7\); accepted: \(1, 8\), as q"),
    (dict(segment_ids=(IDS, IDS[:, 1:])), r"segment_ids\[1\].shape is \(1, 7\); .* as k has"),
    (dict(segment_ids=[IDS] * 3), "segment_ids is 3 arrays; accepted: None, an array, or"),
    (dict(segment_ids=IDS, implementation="sdpa"), "xla, .* pallas, jax_flash, .* do"),
    (dict(soft_cap=0), "soft_cap is 0; accepted: a number above 0"),
    (dict(soft_cap=9.0, implementation="sdpa"), '"sdpa" takes none: xla, xla_s'),
    (dict(v=ONE[..., :3]), r"v.shape\[3\] \(head_dim\) is 3; accepted: 4"),
    (dict(v=np.ones((2, 2, 8, 4), "f4")), r"v.shape\[0\] \(batch\) is 2"),
    (dict(v=ONE[:, :, :3]), r"v.shape\[2\] \(keys\) is 3; accepted: 8"),
    (dict(k=ONE.astype(ml_dtypes.bfloat16)), "k.dtype is bfloat16; accepted: float32"),
    (dict(q=ONE.astype(np.int32)), "q.dtype is 'int32'"),
    (dict(q=ONE.astype(np.float64)), "q.dtype is 'float64'"),
    (dict.fromkeys("qkv", np.ones((1, 1, 2, 257), "f4")), "is 257; accepted: at most 256"),
    (dict(scale=float("nan")), "scale is nan"),
    (dict(scale="1"), "scale is '1'"),
    (dict(causal="yes"), "causal is 'yes'"),
    (dict(implementation="cudnn"), "accepted: xla, xla_sliced, sdpa, pallas"),
    (dict(implementation="xla", block=SMALL), "block is 128/128×128/2"),
    (dict(block=(128, 128)), r"block is \(128, 128\); accepted: None or Att"),
)


@pytest.mark.parametrize("implementation", ["jax_flash", "jax_splash", "tokamax"])
def test_jax_s_kernels_refuse_what_they_would_get_wrong(implementation):
    q, k, v = operands(1, 1, 200, 200, 64)
    with pytest.raises(ValueError, match=r"q.shape\[2\] is 200; accepted: a multiple of 128"):
        attention(q, k, v, implementation=implementation)
    q, k, v = operands(1, 1, 128, 128, 136)
    with pytest.raises(ValueError, match=rf"is 136; .* for {implementation}"):
        attention(q, k, v, implementation=implementation)


@pytest.mark.parametrize("parts, scores, size", [(12, 1, 12), (12, 1 << 18, 4), (7, 1 << 18, 1)])
def test_a_slice_divides_the_heads_and_keeps_its_scores_small(parts, scores, size):
    assert slice_of(parts, scores) == size and slice_of(parts, 1 << 40) == 1


@pytest.mark.parametrize("causal", [False, True])
def test_slices_hold_fewer_scores(causal):
    arrays = operands(2, 6, 512, 512, 16)
    assert slice_of(12, 512**2) == 4  # so the loop has three rounds

    def held(name):
        def both(*a):
            f = functools.partial(attention, implementation=name, causal=causal)
            out, back = jax.vjp(f, *a)
            return out, back(jnp.cos(out))

        return jax.jit(both).lower(*arrays).compile().memory_analysis().temp_size_in_bytes

    assert held("xla_sliced") < 0.6 * held("xla")


@pytest.mark.parametrize("implementation", ["jax_flash", "jax_splash"])
def test_a_forward_pass_of_jax_s_kernels_writes_nothing_for_a_gradient(implementation):
    arrays = shapes(1, 1, 128, 64)
    attend = functools.partial(attention, implementation=implementation, interpret=False)

    def outputs(function):
        first, *_ = calls(function, *arrays)
        return sum(o.role == "output" for o in first.operands)

    alone, kept = outputs(attend), outputs(lambda *a: jax.vjp(attend, *a)[0])
    assert alone < kept
    assert alone == 1 or implementation != "jax_flash"


def test_splash_does_not_claim_what_the_simulator_refuses():
    """Before JAX 0.12 two cores write its running maximum, on which no result depends."""
    subject = ladder.Subject.of(OPERATOR, OPERATOR["jax_splash"])
    (check,) = ladder.climb(subject, "simulate", [OPERATOR.workloads["cancelling"]])
    assert "simulate" not in OPERATOR["jax_splash"].rungs
    mended = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12)
    assert ("race" in check.message) != mended


@pytest.mark.skipif(HAS_TOKAMAX, reason="tokamax is installed")
def test_without_tokamax_it_claims_nothing_and_says_what_to_install():
    assert OPERATOR["tokamax"].rungs == ()
    q, k, v = operands(1, 1, 128, 128, 64)
    with pytest.raises(optional.MissingPackage, match=r"tokamax is needed .*\[validation\]"):
        attention(q, k, v, implementation="tokamax")


class TestAttentionBlocks:
    def test_refuses_what_is_no_size_no_tile_or_does_not_fit(self):
        for sizes in ((0, 1, 1, 1), (1, -1, 1, 1), (1, 1, 1.5, 1), (1, 1, 1, True)):
            with pytest.raises(ValueError, match="whole number"):
                AttentionBlocks(*sizes)
        for name in ("tokens", "tq", "tk"):
            with pytest.raises(ValueError, match=f"block.{name} is 100; accepted: a multiple of"):
                AttentionBlocks(**{name: 100}).fitted(300, 300, 4)
        with pytest.raises(ValueError, match=r"program holds .* MiB: 16 heads .* at most 76 MiB"):
            plan(8192, 8192, 16, 128, np.float32, block=AttentionBlocks(4096, 256, 128, 16))

    def test_a_forward_pass_is_not_refused_for_the_backward_one(self):
        """dq of all queries stays in VMEM on the way back; nothing of it on the way."""
        arrays, block = shapes(1, 2, 131072, 128), AttentionBlocks(1024, 256, 128, 2)
        attend = functools.partial(attention, block=block, interpret=False)
        assert jax.eval_shape(attend, *arrays).shape == (1, 2, 131072, 128)
        with pytest.raises(ValueError, match="whose backward program holds"):
            jax.eval_shape(lambda *a: jax.vjp(attend, *a)[1](a[0]), *arrays)

    @given(
        st.integers(1, 16384),
        st.integers(1, 16384),
        st.integers(1, 256),
        st.integers(1, 99),
        st.sampled_from(sorted(CHIPS)),
        st.sampled_from(["float32", "bfloat16"]),
    )
    @example(341, 341, 256, 16, "v5e", "float32")  # 16 heads of these do not fit
    @example(16384, 16384, 256, 2, "v5p", "float32")  # nor do 1024 tokens
    def test_the_default_is_legal_and_fits_every_chip(self, n, m, head_dim, heads, name, dtype):
        dtype, chip = np.dtype(getattr(ml_dtypes, dtype, dtype)), CHIPS[name]
        for backward in (False, True):
            found = plan(n, m, heads, head_dim, dtype, backward=backward, chip=chip)
            block = found.block
            assert block == block.fitted(n, m, heads) and heads % block.heads == 0
            bytes_ = block.vmem_bytes(n, m, head_dim, dtype, backward=backward)
            assert bytes_ < found.vmem_limit_bytes < chip.vmem_bytes and found.chip is chip


class TestBlockSparse:
    def test_all_blocks_are_attention(self):
        q, k, v = operands(1, 2, 256, 256, 128)
        got = block_sparse_attention(q, k, v, np.ones((2, 2), bool), block=SMALL)
        assert np.array_equal(got, attention(q, k, v, block=SMALL))

    def test_traffic_grows_with_the_blocks_that_are_kept(self):
        def traffic(mask):
            f = functools.partial(block_sparse_attention, mask=mask, block=SMALL, interpret=False)
            (call,) = calls(f, *shapes(1, 2, 1024, 128))
            return next(o.traffic for o in call.inputs if o.name == "k"), call.grid[-1]

        band = np.eye(8, dtype=bool)
        (few, steps), (many, all_steps) = traffic(band), traffic(band | True)
        assert (steps, all_steps) == (8, 64) and many == 8 * few

    test_refuses_other_masks_and_what_attention_refuses = staticmethod(
        refuses(
            lambda mask, options: block_sparse_attention(
                *operands(1, 1, 300, 300, 8), mask, block=SMALL, **options
            ),
            (np.ones((2, 3), bool), {}, r"mask is bool \(2, 3\); accepted: bool \(3, 3\)"),
            (np.ones((3, 3)), {}, "mask is float64"),
            (np.eye(3, dtype=bool)[[0, 1, 1]] & [1, 0, 1] > 0, {}, r"mask\[1\] is empty"),
            (np.ones((3, 3), bool), {"scale": float("inf")}, "scale is inf"),
        )
    )


RNG = np.random.default_rng(0)


def packed_qkv(batch, tokens, heads, head_dim, dtype="float32"):
    rng = np.random.default_rng((batch, tokens, heads, head_dim))
    x = rng.standard_normal((batch, tokens, 3 * heads * head_dim))
    return x.astype(getattr(ml_dtypes, dtype, dtype))


def test_the_order_is_that_of_timm_s_qkv_linear():
    """timm: qkv(x).reshape(B, N, 3, heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)."""
    qkv = RNG.standard_normal((2, 5, 3 * 4 * 8))
    q, k, v = qkv.reshape(2, 5, 3, 4, 8).transpose(2, 0, 3, 1, 4)
    for got, want in zip(unpack(qkv, 4), (q, k, v), strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(pack(q, k, v), qkv)


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

    names = [[call.name for call in calls(*each)] for each in ((f, qkv), (both, qkv, o))]
    assert names == [names[1][:1], ["vit_attention_forward", "vit_attention_backward"]]
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


X = np.ones((1, 4, 3 * 2 * 8), np.float32)


test_vit_attention_refuses_before_anything_runs = refuses(
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
