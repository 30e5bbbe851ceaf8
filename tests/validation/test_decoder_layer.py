"""The decoder layer in every form against float64, its parts, and what its page says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.proof import budget
from validation import decoder_layer as dl
from validation.decoder_layer import FORMS, LayerSizes, Weights

SMALL = LayerSizes(96, 4, 2, 32, 160, 1e4)
TOKENS = 70  # no block divides them


@functools.cache
def problem(dtype):
    """x, the weights, the table and what comes back, as NumPy arrays."""
    rng = np.random.default_rng(0)
    x, weights, table = SMALL.shapes(2, TOKENS, dtype)
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

    d, heads, groups = SMALL.head_dim, SMALL.heads, SMALL.groups
    columns = jnp.split(norm(x, w.attention_norm) @ w.qkv, heads + 2 * groups, axis=-1)
    attended = []
    for head in range(heads):
        group = heads + head // (heads // groups)
        scores = turned(columns[head]) @ turned(columns[group]).swapaxes(1, 2) / d**0.5
        scores = jnp.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, -jnp.inf)
        attended.append(jax.nn.softmax(scores, -1) @ columns[group + groups])
    x = x + jnp.concatenate(attended, -1) @ w.output
    h = norm(x, w.mlp_norm)
    gate = h @ w.gate
    return x + (gate / (1 + jnp.exp(-gate)) * (h @ w.up)) @ w.down


def pulled(function, x, w, back):
    """The result and the gradients of x and of each weight."""
    result, pull = jax.vjp(function, x, w)
    dx, dw = pull(back)
    return [np.asarray(a) for a in (result, dx, *dw)]


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
    x, w, _, back = problem(dtype)
    exact, plain = expected(dtype)
    for name, got, want, near in zip(
        ("result", "x", *Weights._fields), pulled(layer, x, w, back), exact, plain, strict=True
    ):
        scale = np.full(want.shape, (want**2).mean() ** 0.5)
        verdict = budget.compare(got, want, near, scale)
        if not verdict.passed:
            yield f"{name}: {verdict.message}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_right_and_so_are_its_gradients(form, dtype):
    table = problem(dtype)[2]
    assert not [*wrong(dtype, lambda x, w: dl.layer(x, w, table, FORMS[form]))]
    # XLA's form sets the budget of the others, so it has to be near by itself.
    for got, want in zip(*reversed(expected(dtype)), strict=True):
        off = np.abs(got.astype(np.float64) - want).max() / (want**2).mean() ** 0.5
        assert off < (1e-4 if dtype == "float32" else 0.15)


def faulty(x, w, table, fault):
    form = FORMS["xla"]
    if fault == "another eps":
        form = form._replace(
            norm=lambda x, weight: x * weight / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
        )
    if fault == "turned the other way":
        table = table * np.float32([1, -1])[:, None, None, None]
    if fault == "heads in another order":
        tiled = lambda a: jnp.tile(a, (1, 1, SMALL.heads // SMALL.groups, 1))
        form = form._replace(attend=lambda q, k, v: dl.xla_attend(q, tiled(k), tiled(v)))
    if fault == "no mask":
        form = form._replace(attend=jax.nn.dot_product_attention)
    y = dl.layer(x, w, table, form)
    return y - x if fault == "no residual" else y


FAULTS = ["another eps", "turned the other way", "heads in another order", "no mask", "no residual"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_layer_is_found(fault):
    table = problem("float32")[2]
    found_in = [*wrong("float32", lambda x, w: faulty(x, w, table, fault))]
    assert any(line.startswith("result") for line in found_in)
    assert not [*wrong("float32", lambda x, w: faulty(x, w, table, "none"))]
