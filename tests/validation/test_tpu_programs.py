"""The programs of published rows compute what they are named after, at the row's sizes; the whole
ones that others timed, what their publisher says, in float64. Times of several chips have none."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax

from kernels import tpu
from kernels.figures import Key, read
from kernels.machines.compat import jaxprs
from kernels.machines.optional import MissingPackage, available
from kernels.machines.tpu.export import abstract_device
from validation import fused_programs, tokamax_door, tpu_programs
from validation.tpu_programs import BARS, FAMILIES, family, program

TIMES = [r for r in read("published.csv") if r.chip in tpu.CHIPS and r.quantity == "time"]
TIMES = [row for row in TIMES if "devices" not in row.sizes]


def key(operator, implementation, sizes, dtype="float32", tuning=(), **options):
    problem = {"sizes": sizes, "dtype": dtype, "options": options, "tuning": dict(tuning)}
    return Key(operator=operator, implementation=implementation, chip="v5e", **problem)


def drawn(arguments, seed=0):
    rng = np.random.default_rng(seed)

    def draw(a):
        if a is None or isinstance(a, np.ndarray):
            return a
        if a.dtype == bool:
            return jnp.asarray(rng.random(a.shape) < 0.7)
        if a.dtype == jnp.int32:
            return jnp.asarray(rng.integers(0, 4, a.shape), jnp.int32)
        return jnp.asarray(rng.standard_normal(a.shape), a.dtype)

    return [draw(a) for a in arguments]


def test_every_published_time_of_a_tpu_has_a_clock_a_program_and_a_sort():
    assert len(TIMES) > 400 and {row.chip for row in TIMES} == set(tpu.CHIPS)
    for row in TIMES:
        assert row.clock in ("device", "wall") and family(row), row.key
    assert fused_programs.matmul_sum  # its families are registered with it
    assert {(row.operator, row.implementation) for row in TIMES} == set(FAMILIES)
    assert {each.sort for each in FAMILIES.values()} == set(BARS)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_row_of_each_family_can_be_traced(name):
    known = FAMILIES[name]
    row = min((r for r in TIMES if (r.operator, r.implementation) == name), key=lambda r: r.value)
    if known.needs and not available(known.needs):
        with pytest.raises(MissingPackage, match=r"pip install .*\[validation\]"):
            program(row)
        return
    ran = program(row)
    with abstract_device(row.chip):
        assert jax.tree.leaves(jax.jit(ran.function).trace(*ran.arguments).out_info)
    groups = [a for a in ran.arguments if isinstance(a, np.ndarray)]
    assert all(sizes.sum() == row.sizes["m"] for sizes in groups)


def test_an_unknown_row_is_refused_in_words():
    with pytest.raises(ValueError, match=r"row is matmul/nobody's; accepted: one of .*matmul/xla"):
        program(dataclasses.replace(TIMES[0].key, operator="matmul", implementation="nobody's"))


def softmax_attention(q, k, v, bias, mask, causal):
    """Query by query, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    heads = q.shape[2]
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    whole = q.shape[0], heads, q.shape[1], k.shape[1]
    bias, mask = (a if a is None else np.broadcast_to(a, whole) for a in (bias, mask))
    for b, i, h in np.ndindex(*q.shape[:3]):
        group = h * k.shape[2] // heads
        scores = k[b, :, group] @ q[b, i, h] / np.sqrt(q.shape[-1])
        if bias is not None:
            scores = scores + bias[b, h, i]
        seen = np.arange(len(scores)) <= i if causal else np.ones(len(scores), bool)
        if mask is not None:
            seen &= mask[b, h, i]
        weights = np.where(seen, np.exp(scores - scores.max()), 0)
        out[b, i, h] = weights @ v[b, :, group] / weights.sum()
    return out


@pytest.mark.parametrize("implementation", ["xla", "xla_chunked"])
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (160, {"causal": True}),
        (40, {"bias": "1,4,40,40", "mask": "2,1,1,40"}),
        (128, {"leading": "1,2"}),
    ],
)
def test_attention_is_attention(implementation, n, options):
    """n = 160 leaves a remainder behind the chunks of 128, in queries and in keys."""
    sizes = {"b": 2, "n": n, "m": n, "h": 4, "hkv": 2, "d": 8, "e": 16}
    ran = program(key("dot_product_attention", implementation, sizes, **options))
    q, k, v, bias, mask = drawn(ran.arguments)
    if mask is not None:
        mask = mask.at[..., 0].set(True)
    found = np.asarray(ran.function(q, k, v, bias, mask))
    flat = [x.reshape(2, n, *x.shape[-2:]) for x in (q, k, v)]
    expected = softmax_attention(*flat, bias, mask, options.get("causal", False))
    assert np.abs(found.reshape(expected.shape) - expected).max() < 0.03  # products in bfloat16
    assert found.shape == (*q.shape[:-1], 16)


def test_heads_first_is_the_same():
    ran = program(
        key("flash_attention", "xla", {"b": 1, "h": 2, "n": 40, "d": 8}, "float32", causal=True)
    )
    q, k, v = drawn(ran.arguments)
    found = np.asarray(ran.function(q, k, v)).swapaxes(1, 2)
    expected = softmax_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), None, None, True)
    assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("form", ["forward", "dlhs", "drhs"])
def test_ragged_products_are_products_of_groups(form):
    sizes = {"m": 12, "k": 5, "n": 7, "g": 3}
    ran = program(key("ragged_dot", "xla", sizes, groups="4,0,8", form=form))
    left, right, groups = drawn(ran.arguments)
    found = np.asarray(ran.function(left, right, groups))
    rows = np.split(np.arange(12), np.cumsum(groups)[:-1])
    if form == "drhs":
        expected = np.stack([np.asarray(left)[r].T @ np.asarray(right)[r] for r in rows])
    else:
        of = [w.T if form == "dlhs" else w for w in np.asarray(right)]
        expected = np.concatenate([np.asarray(left)[r] @ w for r, w in zip(rows, of)])
    assert found.shape == expected.shape and np.abs(found - expected).max() < 1e-4


def test_groups_are_drawn_as_they_were():
    sizes = {"m": 1000, "k": 8, "n": 8, "g": 4}
    equal = tpu_programs.group_sizes(key("ragged_dot", "xla", sizes, groups="equal"))
    assert equal.tolist() == [250] * 4
    found = tpu_programs.group_sizes(key("ragged_dot", "xla", sizes, groups="drawn"))
    again = np.bincount(np.random.default_rng(0).choice(4, 1000), minlength=4)
    assert found.sum() == 1000 and found.tolist() == again.tolist() and found.dtype == np.int32


def test_a_published_matmul_has_the_blocks_of_its_row():
    for row in TIMES:
        if (row.operator, row.implementation) == ("matmul", "published kernel"):
            jaxpr = str(jax.make_jaxpr(program(row).function)(*program(row).arguments))
            bm, bk, bn = str(row.tuning["block"]).split("×")
            assert f"{bm},{bk}" in jaxpr.replace(" ", "") and f"{bk},{bn}" in jaxpr.replace(" ", "")


def test_cross_entropy_in_chunks_is_cross_entropy():
    sizes = {"t": 10, "d": 8, "v": 21}
    whole = program(key("linear_cross_entropy", "xla", sizes, reduction="mean", residuals=True))
    blocks = {"b_block_size": 4, "v_block_size": 8}
    parts = program(
        key("linear_cross_entropy", "xla_chunked", sizes, tuning=blocks, reduction="mean")
    )
    x, labels, w = drawn(whole.arguments)
    loss, logs = whole.function(x, labels, w)
    logits = np.asarray(x @ w, np.float64)
    sums = np.log(np.exp(logits).sum(1))
    assert np.allclose(logs, sums, rtol=1e-5)
    assert loss == pytest.approx((sums - logits[np.arange(10), labels]).mean(), rel=1e-5)
    # The columns that fill the last block count as well there: e⁰ each, as in the published one.
    expected = (np.log(np.exp(logits).sum(1) + 3) - logits[np.arange(10), labels]).mean()
    assert parts.function(x, labels, w) == pytest.approx(expected, rel=1e-5)


def test_gradients_of_cross_entropy_are_its_gradients():
    forward = key("linear_cross_entropy", "xla", {"t": 10, "d": 8, "v": 21}, reduction="mean")
    x, labels, w = drawn(program(forward).arguments)
    back = program(dataclasses.replace(forward, pass_="backward"))
    wide, weights = np.asarray(x, np.float64), np.asarray(w, np.float64)
    sums = np.log(np.exp(wide @ weights).sum(1))
    scores = (np.exp(wide @ weights - sums[:, None]) - np.eye(21)[labels]) / 10
    found = back.function(np.float32(sums), np.float32(2), x, labels, w)
    for made, expected in zip(found, (2 * scores @ weights.T, 2 * wide.T @ scores), strict=True):
        assert np.abs(made - expected).max() < 1e-5
    assert [a.shape for a in back.arguments] == [(10,), (), (10, 8), (10,), (8, 21)]


@pytest.mark.skipif(not available("tokamax"), reason="the programs are tokamax's: '.[validation]'")
def test_a_normalization_and_its_gradients():
    row = key("normalization", "xla", {"m": 6, "n": 5}, subtract_mean=True, leading="2,3")
    x, *_ = arrays = drawn(program(row).arguments[1:])
    whole = lambda x, scale, offset: jax.nn.standardize(x, -1, epsilon=1e-6) * scale + offset
    out, pull = jax.vjp(whole, *arrays)
    assert np.allclose(program(row).function((), *arrays), out, atol=1e-5)
    sums = x.mean(-1, keepdims=True), jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    [gradient] = drawn([x], seed=1)
    back = program(dataclasses.replace(row, pass_="backward"))
    found = back.function((sums, out, gradient), *arrays)
    for made, expected in zip(found, pull(gradient), strict=True):
        assert np.allclose(made, expected, atol=1e-4)


def test_the_gate_is_a_gate():
    sizes = {"m": 6, "k": 8, "n": 5}
    ran = program(key("gated_linear_unit", "xla", sizes, activation="silu", leading="2,3"))
    x, weights = drawn(ran.arguments)
    gate, projection = (np.asarray(x) @ np.asarray(weights)[:, j] for j in (0, 1))
    expected = gate / (1 + np.exp(-gate)) * projection
    assert np.abs(np.asarray(ran.function(x, weights)) - expected).max() < 0.2
    assert ran.function(x, weights).shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("operator", "sizes", "expected"),
    [
        ("rms_norm", {"m": 4, "n": 8}, lambda x, w: x / (x * x).mean(1)[:, None] ** 0.5 * w),
        ("softmax", {"m": 4, "n": 8}, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        ("cumsum", {"n": 9}, np.cumsum),
        ("scale", {"m": 4, "n": 8}, lambda x: 2 * x),
        ("copy", {"m": 4, "n": 8}, lambda x: x),
        ("embedding_lookup", {"t": 3, "v": 4, "d": 8}, lambda table, rows: table[rows]),
    ],
)
def test_what_streams_computes_what_it_says(operator, sizes, expected):
    ran = program(key(operator, "xla", sizes))
    arguments = drawn(ran.arguments)
    found = np.asarray(ran.function(*arguments))
    assert np.abs(found - expected(*map(np.asarray, arguments))).max() < 1e-4


def test_plain_attention_keeps_its_scores_in_its_own_dtype():
    sizes = {"b": 1, "h": 2, "n": 8, "d": 4}
    ran = program(key("flash_attention", "xla", sizes, "bfloat16", causal=True))
    made = jaxprs.own_equations(jaxprs.trace(ran.function, *ran.arguments))
    products = [jaxprs.outputs(e)[0] for e in made if jaxprs.operation(e) == "dot_general"]
    assert [jaxprs.dtype(each) for each in products] == ["bfloat16", "bfloat16"]


def test_a_softmax_takes_one_reduction_and_a_lookup_fills_nothing_in():
    """As the published programs do: jax.nn.softmax would read the rows once more, and jnp.take
    write the result twice."""
    ran = program(key("softmax", "xla", {"m": 4, "n": 8}))
    made = jaxprs.own_equations(jaxprs.trace(ran.function, *ran.arguments))
    names = [jaxprs.operation(each) for each in made]
    assert names.count("reduce") == 1 and not {"reduce_max", "reduce_sum"} & {*names}
    ran = program(key("embedding_lookup", "xla", {"t": 2, "v": 4, "d": 8}))
    table = np.ones(ran.arguments[0].shape, np.float32)
    assert np.isfinite(ran.function(jnp.asarray(table), np.array([0, 9]))).all()


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("fits", [True, False])
def test_a_ragged_row_of_another_program_is_told_by_its_time_at_the_peak(kernel, fits):
    """2·16·8·32·4 operations: with all matrices they take 32.768 µs at 1 GFLOP/s."""
    sizes = {"m": 16, "k": 8, "n": 32, "g": 4}
    known = key("ragged_dot", "xla", sizes, "bfloat16", groups="equal")
    row = known.record(kind="published", value=0.033 if fits else 0.032, versions="-", source="-")
    said = tpu_programs.another_program(row, kernel, 1e9)
    assert bool(said) == (kernel == fits)
    if said:
        assert said.startswith(tpu_programs.OTHER)
        ours, timed = said.split(", and what was timed ")
        assert ("all matrices" in ours) == (not kernel) and ("all matrices" in timed) == fits
    other = dataclasses.replace(row, operator="matmul")
    assert tpu_programs.another_program(other, kernel, 1e9) == ""


@pytest.mark.skipif(not available("tokamax"), reason="tokamax is not installed")
def test_a_tuning_of_the_search_names_tiles_as_the_search_does(monkeypatch):
    """Of the left side's gradient: tile_k of what comes out, tile_n of what is summed over."""
    taken = []
    monkeypatch.setattr(tokamax_door, "function", lambda op: taken.append(op.config))
    of = lambda row: (row.chip, row.operator, row.implementation, row.options.get("form"))
    for form, swapped in (("dlhs", True), ("drhs", False)):
        wanted = "v5p", "ragged_dot", "tokamax", form
        row = next(row for row in TIMES if of(row) == wanted and row.sizes["k"] == 7168)
        program(row)
        tiles = row.tuning.typed()
        names = ("tile_n", "tile_k") if swapped else ("tile_k", "tile_n")
        assert (taken[-1].tile_k, taken[-1].tile_n) == tuple(tiles[name] for name in names)


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def norm(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def swish(x):
    return x * expit(x)


def groups(x, count, gain, offset):
    return norm(x.reshape(len(x), count, -1)).reshape(x.shape) * gain + offset


def batch_norm(y, mean, var, gain, offset):
    return (y - mean) / np.sqrt(var + 1e-5) * gain + offset


def experts(x, router, gate, up, down):
    scores = x @ router
    out = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        best = np.argsort(-scores[place])[:2]
        for expert, share in zip(best, softmax(scores[place][best])):
            hidden = swish(x[place] @ gate[expert]) * (x[place] @ up[expert])
            out[place] += share * (hidden @ down[expert])
    return out


def conv(x, kernel, b):
    out = np.zeros((len(x), len(kernel), x.shape[2] - 2, x.shape[3] - 2))
    for i, j in np.ndindex(3, 3):
        part = x[:, :, i : i + out.shape[2], j : j + out.shape[3]]
        out += np.einsum("bchw,oc->bohw", part, kernel[:, :, i, j])
    return gelu(out + b[:, None, None]).mean((2, 3))


def transposed(x, kernel, b, gain, offset):
    batch, _, *sizes = x.shape
    out = np.zeros((batch, kernel.shape[1], *(2 * size + 2 for size in sizes)))
    for at in np.ndindex(*sizes):
        window = tuple(slice(2 * i, 2 * i + 4) for i in at)
        out[(slice(None), slice(None), *window)] += np.einsum(
            "bc,coxyz->boxyz", x[(slice(None), slice(None), *at)], kernel
        )
    y = out[:, :, 1:-1, 1:-1, 1:-1].transpose(0, 2, 3, 4, 1) + b
    return gelu(norm(y) * gain + offset).transpose(0, 4, 1, 2, 3)


def mish(z):
    return z * z * np.tanh(np.logaddexp(z, 0))


EXPECTED = {
    "matmul_sum": lambda x, w: 0.75 * (x @ w.T).sum(1, keepdims=True),
    "matmul_logsumexp": lambda x, w, b: mish(
        logsumexp(np.clip(4 * (x @ w.T + b), -10, 10), 1, keepdims=True)
    ),
    "matmul_norm_of_one": lambda x, y, w, b, gain, offset: (offset + y) * y,
    "matmul_groupnorm_64": lambda x, w, b, *rest: groups(swish(x @ w) + b, 64, *rest),
    "matmul_groupnorm_256": lambda x, w, b, gain, offset, scale: swish(
        swish(groups(x @ w.T + b, 256, gain, offset)) * scale
    ),
    "matmul_residual": lambda x, w, b: 1.5 * (x @ w + b),
    "matmul_gelu_tanh": lambda x, w, b: gelu(np.clip((x @ w + b) / 2, -2, 2)),
    "matmul_softmax": lambda x, w, b: softmax(x @ w.T + b, 1),
    "matmul_max_gelu": lambda x, w, b: np.zeros((5, 1)),
    "matmul_batchnorm_softmax": lambda x, w, b, *rest: softmax(
        batch_norm(x @ w + b, *rest[:-1]) * rest[-1], 1
    ),
    "matmul_batchnorm_swish": lambda x, w, b, *rest: swish(
        batch_norm(x @ w + b, *rest[:-1]) + rest[-1]
    ),
    "matmul_div_gelu": lambda x, w, b: gelu((x @ w + b) / 10),
    "matmul_five_activations": lambda x, w, b, a: np.clip(
        gelu(np.tanh(swish(x @ w + b + a))), -1, 1
    ),
    "matmul_avgpool_max": lambda x, w, b: 2 * gelu((x @ w + b).reshape(5, -1, 16).mean(-1)).max(1),
    "conv2d_gelu_mean": conv,
    "transposed_conv3d": transposed,
    "swiglu": lambda x, gate, up, down: (swish(x @ gate) * (x @ up)) @ down,
    "experts_all": experts,
}
SIZES = {  # where others than those of a product
    "conv2d_gelu_mean": {"b": 2, "c": 3, "h": 6, "o": 4},
    "transposed_conv3d": {"b": 2, "c": 3, "e": 2, "h": 3, "o": 4},
    "swiglu": {"b": 2, "t": 3, "d": 8, "f": 5},
    "experts_all": {"b": 2, "t": 3, "d": 8, "f": 5, "e": 4},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_computes_what_its_publisher_says(name):
    ran = program(key(name, "xla", SIZES.get(name, {"m": 5, "k": 7, "n": 512})))
    arguments = drawn(ran.arguments)
    if "batchnorm" in name:
        arguments[4] = abs(arguments[4])  # a variance
    result = np.asarray(ran.function(*arguments), np.float64)
    wanted = EXPECTED[name](*(np.asarray(a, np.float64) for a in arguments))
    assert result.shape == wanted.shape
    assert np.abs(result - wanted).max() <= 1e-4 * max(1, np.abs(wanted).max())


def test_all_of_them_are_checked():
    names = {n for n, f in FAMILIES.items() if f.build.__module__ == fused_programs.__name__}
    assert names == {(name, "xla") for name in EXPECTED}
