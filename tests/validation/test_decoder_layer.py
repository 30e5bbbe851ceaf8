"""The decoder layer in every form against float64, its parts, and what its page says."""

import functools
import itertools
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import tpu
from kernels.norm import rms_norm
from kernels.proof import budget
from validation import comparisons
from validation import decoder_layer as dl
from validation.decoder_layer import FORMS, LayerSizes, Weights

SMALL = LayerSizes(96, 4, 2, 32, 160, 1e4)
TOKENS = 70  # no block divides them


@functools.cache
def problem(dtype):
    """x, the weights, the table and what comes back, as NumPy arrays."""
    rng = np.random.default_rng(0)
    x, weights, _ = SMALL.shapes(2, TOKENS, dtype)
    draw = lambda a, scale=1.0: (scale * rng.standard_normal(a.shape)).astype(dtype)
    drawn = [draw(w, w.shape[0] ** -0.5 if len(w.shape) == 2 else 1.0) for w in weights]
    table = np.asarray(dl.rotary_table(TOKENS, SMALL.head_dim, SMALL.theta))
    return draw(x), Weights(*drawn), table, draw(x)


def oracle(x, w):
    """The layer in float64, as the formulas have it: a loop over heads, angles of its own."""

    def norm(x, weight):
        return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + dl.EPS) * weight

    def turned(x):
        half = x.shape[-1] // 2
        angle = np.arange(TOKENS)[:, None] / SMALL.theta ** (np.arange(half) / half)
        pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
        return jnp.concatenate([pairs.real, pairs.imag], -1)

    heads, groups = SMALL.heads, SMALL.groups
    columns = jnp.split(norm(x, w.attention_norm) @ w.qkv, heads + 2 * groups, axis=-1)
    attended = []
    for head in range(heads):
        group = heads + head // (heads // groups)
        scores = turned(columns[head]) @ turned(columns[group]).swapaxes(1, 2)
        scores = jnp.where(np.tri(TOKENS, dtype=bool), scores / SMALL.head_dim**0.5, -jnp.inf)
        attended.append(jax.nn.softmax(scores, -1) @ columns[group + groups])
    x = x + jnp.concatenate(attended, -1) @ w.output
    h = norm(x, w.mlp_norm)
    gate = h @ w.gate
    return x + (gate / (1 + jnp.exp(-gate)) * (h @ w.up)) @ w.down


def pulled(function, x, w, back):
    """The result and the gradients of x and of each weight."""
    result, pull = jax.vjp(function, x, w)
    return [np.asarray(a) for a in jax.tree.leaves((result, pull(back)))]


@functools.cache
def expected(dtype):
    """The oracle's, and those of XLA alone."""
    x, w, table, back = problem(dtype)
    with jax.enable_x64(True):
        exact = pulled(oracle, *jax.tree.map(lambda a: a.astype(np.float64), (x, w, back)))
    return exact, pulled(lambda x, w: dl.layer(x, w, table, FORMS["xla"]), x, w, back)


def wrong(dtype, layer):
    """What of a layer is out of its budget. Every array has one scale, its root mean square, since
    no element of a layer is a sum that could be written down."""
    x, w, table, back = problem(dtype)
    got = pulled(lambda x, w: layer(x, w, table), x, w, back)
    names = "result", "x", *Weights._fields
    for name, result, exact, plain in zip(names, got, *expected(dtype), strict=True):
        scale = np.full(exact.shape, (exact**2).mean() ** 0.5)
        # XLA's form sets the budget, so it has to be near by itself.
        assert np.abs(plain - exact).max() < scale.max() * (1e-4 if dtype == "float32" else 0.15)
        if not (verdict := budget.compare(result, exact, plain, scale)).passed:
            yield f"{name}: {verdict.message}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_right_and_so_are_its_gradients(form, dtype):
    assert not [*wrong(dtype, functools.partial(dl.layer, form=FORMS[form]))]


def repeated_wrongly(q, *kv):
    return dl.xla_attend(q, *(jnp.tile(a, (1, 1, q.shape[2] // a.shape[2], 1)) for a in kv))


stopped = jax.lax.stop_gradient
FAULTS = {  # what is wrong → what it changes, and where that shows first
    "another eps": ("result", {"norm": functools.partial(rms_norm, eps=1e-4)}),
    "no mask": ("result", {"attend": jax.nn.dot_product_attention}),
    "heads in another order": ("result", {"attend": repeated_wrongly}),
    "a gradient that ends": ("x", {"attend": lambda q, k, v: dl.xla_attend(q, stopped(k), v)}),
    "no residual": ("result", {}),
    "the other way round": ("result", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layer_is_found(fault):
    where, parts = FAULTS[fault]

    def layer(x, w, table):
        turned = np.float32([1, -1 if fault == "the other way round" else 1])
        y = dl.layer(x, w, table * turned[:, None, None, None], FORMS["xla"]._replace(**parts))
        return y - x if fault == "no residual" else y

    assert next(wrong("float32", layer), "").startswith(f"{where}: ")


# What is wrong → how many tokens each length is off, and how many rows the table.
DECODING = {"": (0, 0), "a token overwritten": (-1, 0), "another's pages": (0, 1)}


@pytest.mark.parametrize("fault", DECODING)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", dl.PAGED)
def test_a_token_decoded_from_pages_is_the_last_of_its_sequence(form, dtype, fault):
    (x, w, table, _), tokens, page = problem(dtype), np.array([TOKENS, 33]), 8
    exact, plain = (results[0] for results in expected(dtype))
    qkv = dl.xla_product(dl.xla_norm(x, w.attention_norm), w.qkv)
    _, k, v = dl.split_heads(qkv, len(w.output), SMALL.head_dim)
    order = np.random.default_rng(1).permutation(18).reshape(2, 9).astype(np.int32)

    def paged(a):
        pages = np.full((SMALL.groups, 18, page, SMALL.head_dim), np.nan, dtype)
        for s, n in enumerate(tokens):  # the place of the new token stays NaN
            for t in range(n - 1):
                pages[:, order[s, t // page], t % page] = a[s, t]
        return jnp.asarray(pages)

    off, by = DECODING[fault]
    last = np.arange(2), tokens - 1
    cache = paged(dl.rotated(k, table)), paged(v), jnp.int32(last[1] + off), np.roll(order, by, 0)
    y, *_ = dl.program(form, "decode")(x[last][:, None], table, *cache, *w)
    scale = np.full((2, SMALL.d), (exact**2).mean() ** 0.5)
    verdict = budget.compare(np.asarray(y[:, 0]), exact[last], plain[last], scale)
    assert verdict.passed == (not fault), verdict.message


def test_parts_stages_and_what_a_gain_is_worth():
    named = {
        "jit(call)/jit(layer)/attention_norm/rsqrt": "attention_norm",
        "jit(f)/transpose(jvp(attention))/jit(g)/flash_attention_backward": "attention",
        "jit(f)/flash_attention_forward": dl.COPIES,
    }
    assert {o: dl._place(SimpleNamespace(origin=o)) for o in named} == named

    def timed(attention, gate_up, down):
        ms = {"attention": attention, "gate_up": gate_up, "down": down}
        spent, key = (lambda part: ms.get(part, 0.0)), SimpleNamespace(chip="v5e")
        records = [SimpleNamespace(versions="libtpu 0.0.42.1")]
        return SimpleNamespace(spent=spent, seconds=sum(ms.values()), key=key, records=records)

    forms = {"xla": timed(9, 0, 1), "xla_sliced": timed(4, 2, 2), "package": timed(1, 5, 2)}
    stands = [dl.verdict(forms, "package", s) for s in ("rotary, attention", "feed-forward", "")]
    assert [dl.best_of_xla(forms), *stands] == ["xla_sliced", "ahead", "behind", "a tie"]
    assert dl.gain(forms["xla_sliced"], "feed-forward", 2) == pytest.approx(4 / 3)
    with pytest.raises(ValueError, match="form is 'torch'; accepted: xla, xla_sliced, xla_blocks"):
        dl.program("torch")
    with pytest.raises(ValueError, match=r"layer is xla, gradient on v7x; accepted"):
        dl.recorded("v7x", "gradient")


def test_what_the_page_works_out_and_says():
    page = (Path(dl.__file__).parents[1] / "book" / "decoder_layer.md").read_text("utf-8")
    sizes, rates = dl.SMOLLM3, tpu.CHIPS["v5e"]
    matrices = [np.prod(w.shape) for w in sizes.shapes(1, 1)[1] if len(w.shape) == 2]
    feed_forward, moved = 2 * dl.TOKENS * sum(matrices[-3:]), 3 * 2 * dl.TOKENS * sizes.f
    floor = 1e3 * feed_forward / rates.bf16_flops
    tokens = f"{sum(matrices) // (sizes.heads * sizes.head_dim):,}".replace(",", "{,}")
    assert f"= {floor:.2f}$ ms" in page and f"{floor / 3:.2f} ms at the peak, which" in page
    assert f"= {tokens}$ tokens" in page and f"= {moved / 1e6:.0f}$ MB" in page
    assert f"at least {1e3 * moved / rates.hbm_bytes_per_second:.2f} ms" in page
    weights = 2 * sum(matrices)
    token = dl.SEQUENCES * 2 * sizes.groups * sizes.head_dim * 2  # bytes of one more of each
    cached, chips = dl.CACHED * token, ("v5e", "v6e")
    least, on = (1e3 * (weights + cached) / tpu.CHIPS[c].hbm_bytes_per_second for c in chips)
    assert f"{weights / 1e6:.0f} MB, the keys and values {cached / 1e6:.0f}:" in page
    assert f"least {least:.2f} ms on a v5e" in page and f"least {on:.2f} ms there" in page
    assert f"{dl.CACHED:,} tokens on a" in page and f"Beyond {weights / token:,.0f} tokens" in page
    decoded = [dl.recorded(chip, "decode") for chip in chips]
    assert {dl.verdict(d, f) for d in decoded for f in ("package", "mixed")} == {"a tie"}
    assert f"XLA at once takes {1e3 * decoded[0]['xla'].seconds:.2f}," in page
    assert 1.1 < 1e3 * min(p.seconds for p in decoded[0].values()) / least < 1.2
    ours = decoded[0]["package"]
    assert all(1e3 * ours.seconds / dl.narrow_gain(ours, w)[2] < least for w in ("int8", "int4"))
    forms, on_v6e, training = dl.recorded(), dl.recorded("v6e"), dl.recorded("v5e", "gradient")
    xla, in_slices, in_blocks, package, mixed = forms.values()
    norms, attention, last, rest = [stage for stage in dl.STAGES if stage != dl.COPIES]
    attending = 2 * dl.TOKENS**2 * sizes.heads * sizes.head_dim / rates.bf16_flops
    kernel, row = mixed.spent("attention", "kernel"), dl.spent(mixed, attention)
    times = (f"{1e3 * t:.2f} ms" for t in (attending, kernel, row - kernel))
    assert "take {}, our kernel takes {}, and XLA's work around it {}".format(*times) in page
    assert f"reaches {100 * attending / kernel:.0f} % of the peak" in page
    assert {dl.best_of_xla(layers) for layers in (forms, on_v6e, training)} == {"xla_blocks"}
    near = dict(zip((attention, rest), dl.ratio_band("v5e").around(1.0)))  # the package's edges
    away = (forms, [last], None), (on_v6e, [attention, last], norms), (training, [attention], None)
    beside_copies = lambda form: dl.moved(form, rest) + dl.moved(form, dl.COPIES)
    for form, (layers, leads, late) in itertools.product(("package", "mixed"), away):
        places = {late: "behind" if form == "package" else "a tie"} | dict.fromkeys(leads, "ahead")
        for stage in {*dl.STAGES, ""} - {dl.COPIES} - (near.keys() if layers is forms else set()):
            assert dl.verdict(layers, form, stage) == places.get(stage, "a tie")
    assert mixed.seconds < in_blocks.seconds < min(package.seconds, in_slices.seconds, xla.seconds)
    longer, more = (of(package, rest) - of(xla, rest) for of in (dl.spent, dl.moved))
    assert moved / rates.hbm_bytes_per_second > longer / 2 and moved < more / 2
    v6e, (theirs, sliced, blocks, ours, both) = tpu.CHIPS["v6e"], on_v6e.values()
    assert f"saves at most {1e3 * dl.spent(xla, rest) - floor:.2f} ms" in page
    at_peak, least = (n / v6e.bf16_flops for n in (attending * rates.bf16_flops, feed_forward))
    assert dl.spent(ours, rest) < dl.spent(theirs, rest) and dl.moved(sliced, attention) > 1e9
    assert dl.verdict({"xla": both, "package": ours}, "package") == "a tie"
    by_xla, by_slices, by_blocks, *kernels = training.values()
    assert dl.verdict({"xla": by_xla, "mixed": kernels[1]}, "mixed", rest) == "behind"
    timed = [r for r in comparisons.read() if r.chip == "v6e"]
    named = lambda *of: [r for r in timed if (r.operator, r.implementation, r.sizes.get("d")) == of]
    errors = lambda *of: [100 * r.error for r in named(*of) if r.half == "test"]
    tuned = [r for r in timed if r.implementation == "tokamax" and "causal" in r.options]
    work = lambda b, n, m, h, hkv, d, e: 2 * b * h * n * m * d / v6e.bf16_flops  # half of all
    times = [(r.sizes["d"], r.published_ms / 1e3 / work(*r.sizes.values())) for r in tuned]
    assert min(t for d, t in times if d == 128) > 3 > 2 > min(t for d, t in times if d == 256)
    chunks, wide = (errors("dot_product_attention", "xla_chunked", d) for d in (128, 256))
    assert f"between {-min(chunks):.0f} % below the time and {max(chunks):.0f} % above" in page
    assert f"up to {max(wide):.0f} % above" in page and -min(wide) < max(wide)
    assert 6 < np.abs(errors("dot_product_attention", "xla", 128)).max() < 7 and "7 % (128" in page
    assert f"is {errors('swiglu', 'xla', 8192)[0]:.0f} % too long" in page
    for ratio, low, high in (
        (dl.spent(mixed, last) / dl.spent(in_slices, last), 0.4, 0.6),
        *((dl.moved(mixed, last) / dl.moved(p, last), -1, 0.01) for p in (xla, in_slices)),
        *((dl.spent(in_blocks, s) / dl.spent(package, s) * x, 0.95, 1.05) for s, x in near.items()),
        ((xla.seconds - in_blocks.seconds) / (xla.seconds - mixed.seconds), 0.9, 0.95),
        (beside_copies(ours) / beside_copies(theirs), 1.65, 1.75),
        *((p.seconds / on / 1e-3, 1.3, 2.4) for p in decoded[1].values()),
        (decoded[1]["xla_sliced"].seconds / on / 1e-3, 2, 2.4),
        (dl.moved(decoded[0]["xla"], attention) / cached, 0.9, 1.1),
        (dl.spent(blocks, attention) / dl.spent(ours, attention), 2.15, 2.25),
        (dl.spent(theirs, attention) / dl.spent(ours, attention), 8.5, 9.5),
        ((dl.spent(both, rest) / 1.2 - least) / (dl.spent(both, attention) - at_peak), 1, 2),
        (dl.spent(theirs, rest) / least, 1.8, 2.2),
        (both.spent("attention", "kernel") / at_peak, 3, 3.7),
        (v6e.bf16_flops / rates.bf16_flops, 4.65, 4.75),
        (v6e.hbm_bytes_per_second / rates.hbm_bytes_per_second, 1.9, 2.1),
        *((dl.spent(p, attention) / p.seconds, 0.5, 1) for p in (theirs, sliced)),
        *((dl.spent(by_blocks, attention) / dl.spent(p, attention), 1.9, 2.1) for p in kernels),
        (dl.spent(by_slices, attention) / dl.spent(by_xla, attention), 0.3, 0.5),
        (beside_copies(by_slices) / beside_copies(by_xla), 1.34, 1.45),
    ):
        assert low < ratio < high


@pytest.mark.full
def test_slices_alone_keep_their_scores_in_vmem():
    pytest.importorskip("libtpu")
    q, kv = (jax.ShapeDtypeStruct((1, dl.TOKENS, n, 128), jnp.bfloat16) for n in (16, 4))
    alone = tpu.estimate(dl.sliced_attend, q, kv, kv, chip="v6e").hbm_bytes
    assert alone < dl.moved(dl.recorded("v6e")["xla_sliced"], "rotary, attention") / 20
