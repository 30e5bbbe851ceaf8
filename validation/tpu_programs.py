"""The programs behind published times of TPUs: what ran there, as a function and what it takes.

XLA's programs are written here, after the published ones; a Pallas kernel is the publisher's own,
at the very blocks of its row, and tokamax's come with the extra "validation".

Over 600 lines because each of the published programs is written out here, once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas.ops.tpu import flash_attention as jax_flash
from jax.experimental.pallas.ops.tpu.megablox import gmm

from kernels.figures.schema import Key, Record
from kernels.machines import optional
from kernels.machines.checks import fail
from kernels.matmul import BlockSizes
from kernels.proof.catalog import OPERATORS
from kernels.softmax import RowBlocks
from validation import tokamax_door

# Sort of program → what its errors should stay below: their median, and nine in ten of them.
MATMULS = "matmul and grouped matmul kernels"
FLASH = "Pallas attention"
LOSSES = "Pallas cross-entropy"
STREAMS = "XLA programs that stream"
SCORES = "XLA attention and cross-entropy"
RAGGED = "XLA's ragged products"
FUSED = "XLA's fused products"
NORMS = "XLA norms and softmax behind products"
CONVOLUTIONS = "XLA convolutions"
BARS = {
    MATMULS: (0.05, 0.12),
    FUSED: (0.05, 0.12),
    FLASH: (0.08, 0.20),
    LOSSES: (0.12, 0.30),
    STREAMS: (0.08, 0.20),
    CONVOLUTIONS: (0.12, 0.25),
    SCORES: (0.12, 0.30),
    NORMS: (0.12, 0.30),
    RAGGED: None,
}
BIAS = 0.04  # that the middle error of a sort should stay below, either way
MILLISECONDS = {"s": 1e3, "ms": 1.0}  # of the units of published times

BF16 = jax.lax.DotAlgorithmPreset.BF16_BF16_F32


@dataclass(frozen=True)
class PublishedProgram:
    """What a row ran.

    Args:
        function: of JAX; its kernels are compiled, never interpreted.
        arguments: jax.ShapeDtypeStruct, or arrays where the time depends on what they hold.
        tunings: lists those that the publisher's search tried; None where it did not search.
        flops: of its products, a multiply-add counting two; 0 where nobody asks.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tunings: Callable[[], list[dict[str, Any]]] | None = None
    flops: float = 0.0


Build = Callable[[Key], PublishedProgram]


@dataclass(frozen=True)
class Family:
    """Rows of one program at many sizes.

    Args:
        operator, implementation: as in their keys.
        sort: one of BARS, whose errors are reported together.
        build: makes a row's program.
        needs: the module that it comes from; "" for none.
    """

    operator: str
    implementation: str
    sort: str
    build: Build = field(repr=False)
    needs: str = ""

    @property
    def name(self) -> str:
        """OPERATOR/IMPLEMENTATION."""
        return f"{self.operator}/{self.implementation}"


FAMILIES: dict[tuple[str, str], Family] = {}


def family(key: Key) -> Family | None:
    """The family of a row; None where nothing here can run what it ran."""
    return FAMILIES.get((key.operator, key.implementation))


def program(key: Key) -> PublishedProgram:
    """The program of a published row.

    Args:
        key: of the row.

    Returns:
        The function, and its arguments.

    Raises:
        ValueError: where nothing here knows what ran.
        MissingPackage: where the package that brings the kernel is not installed.
    """
    known = family(key)
    if known is None:
        accepted = ", ".join(family.name for family in FAMILIES.values())
        fail("row", f"{key.operator}/{key.implementation}", f"one of {accepted}")
        raise AssertionError
    if known.needs:
        optional.require(known.needs, f"the kernels of {known.name}")
    return known.build(key)


def milliseconds(row: Record) -> float:
    """A published time."""
    return row.value * MILLISECONDS[row.unit]


def registered(
    operator: str, implementation: str, sort: str, needs: str = ""
) -> Callable[..., Any]:
    """Register what builds the programs of a family; arguments as Family has them."""

    def add(build: Build) -> Build:
        FAMILIES[operator, implementation] = Family(operator, implementation, sort, build, needs)
        return build

    return add


def array(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    """An argument without values."""
    return jax.ShapeDtypeStruct(shape, dtype)


def _of(key: Key, names: str) -> jax.ShapeDtypeStruct:
    """An argument of these sizes of a row, in its dtype."""
    return array(tuple(key.sizes[name] for name in names), key.dtype)


def leading(options: Mapping[str, Any], size: int) -> tuple[int, ...]:
    """The dimensions in front: those that the row names, or their product."""
    front = options.get("leading", (size,))
    return front if isinstance(front, tuple) else (front,)


# --- attention, [batch, tokens, heads, features] --------------------------------------------------


def attention_arguments(key: Key) -> tuple[Any, ...]:
    """q, k, v, and the bias and the mask of rows that have them, else None."""
    size, options = key.sizes, key.options.typed()
    front = leading(options, size["b"])
    q = array((*front, size["n"], size["h"], size["d"]), key.dtype)
    k = array((*front, size["m"], size["hkv"], size["d"]), key.dtype)
    v = array((*front, size["m"], size["hkv"], size["e"]), key.dtype)
    bias = array(options["bias"], "bfloat16") if "bias" in options else None
    mask = array(options["mask"], "bool") if "mask" in options else None
    return q, k, v, bias, mask


def _product(subscripts: str, x: Any, y: Any) -> Any:
    return jnp.einsum(subscripts, x, y, precision=BF16, preferred_element_type=jnp.float32)


def _scores(q: Any, k: Any, bias: Any, scale: float) -> Any:
    scores = _product("...qhd,...khd->...hqk", q, k) * scale
    return scores if bias is None else (scores + bias).astype(scores.dtype)


def _weighted(weights: Any, v: Any) -> Any:
    return _product("...hqk,...khd->...qhd", weights, v)


def _masked(scores: Any, seen: Any) -> Any:
    if seen is None:
        return scores
    return jnp.where(seen, scores, float(jnp.finfo(scores.dtype).min))


def _repeated(x: Any, heads: int) -> Any:
    """Keys or values, each head as often as queries share it."""
    return x if x.shape[-2] in (1, heads) else jnp.repeat(x, heads // x.shape[-2], axis=-2)


def _seen(mask: Any, causal: bool, n: int, m: int) -> Any:
    """Which key a query sees; None for all."""
    if not causal:
        return mask
    below = jnp.arange(m) <= jnp.arange(n)[:, None]
    return below if mask is None else below & mask


def attention_call(key: Key, route: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """tokamax's op of a row, forward or backward, as a function of `call`, which calls an op with
    its arguments, and of the row's arrays; and those: what comes before q, k and v, and these.

    Args:
        key: of the row.
        route: as `tokamax_door.op` has it.
    """
    size, options = key.sizes, key.options.typed()
    q, k, v, bias, mask = attention_arguments(key)
    before: tuple[Any, ...] = ()
    if backward := key.pass_ == "backward":
        # The softmax's greatest values and sums, the result, and its gradient.
        sums = array((*q.shape[:-3], size["h"], size["n"]), "float32")
        out = array((*q.shape[:-1], size["e"]), key.dtype)
        before = (sums, sums), out, out
    kind = "attention backward" if backward else "attention"
    op = tokamax_door.op(kind, route, key.tuning.typed())
    product = jax.lax.DotAlgorithmPreset[str(options.get("precision", "DEFAULT"))]

    def attention(call, before, q, k, v, bias, mask):
        return call(
            op,
            *before,
            *(q, k, v),
            precision=(product, product),
            logits_dtype=jnp.dtype("float32"),
            logits_scale=1 / math.sqrt(size["d"]),
            bias=bias,
            logits_soft_cap=None,
            mask=tokamax_door.mask(mask, options.get("causal", False)),
            dropout_mask=None,
            dropout_rate=0.0,
            paging_info=None,
            q_indices=None,
            k_indices=None,
            normalize_output=True,
            return_residuals=options.get("residuals", False),
        )

    return attention, (before, q, k, v, bias, mask)


def _attention_gradients(key: Key, route: str) -> PublishedProgram:
    optional.require("tokamax", "the gradients of attention")
    attention, arguments = attention_call(key, route)
    return PublishedProgram(functools.partial(attention, tokamax_door.call), arguments)


@registered("dot_product_attention", "xla", SCORES)
def _attention(key: Key) -> PublishedProgram:
    if key.pass_ == "backward":
        return _attention_gradients(key, "xla")
    options = key.options.typed()
    causal, residuals = options.get("causal", False), options.get("residuals", False)
    scale = 1 / math.sqrt(key.sizes["d"])

    def attention(q, k, v, bias, mask):
        k, v = (_repeated(x, q.shape[-2]) for x in (k, v))
        scores = _scores(q, k, bias, scale)
        scores = _masked(scores, _seen(mask, causal, q.shape[-3], k.shape[-3]))
        most = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - most)
        total = weights.sum(-1, keepdims=True)
        out = _weighted(weights / total, v).astype(q.dtype)
        return (out, (most[..., 0], total[..., 0])) if residuals else out

    return PublishedProgram(attention, attention_arguments(key))


@registered("dot_product_attention", "xla_chunked", SCORES)
def _chunked_attention(key: Key) -> PublishedProgram:
    """Chunks of 128 queries and of 128 keys, each in a loop, what is left over behind them."""
    causal = key.options.typed().get("causal", False)
    scale, chunk = 1 / math.sqrt(key.sizes["d"]), 128

    def cut(x, start, size, axis):
        if x is None or x.shape[axis] == 1:
            return x
        return jax.lax.dynamic_slice_in_dim(x, start, size, axis)

    def attention(q, k, v, bias, mask):
        *front, n, heads, _ = q.shape
        k, v = (_repeated(x, heads) for x in (k, v))
        m, features = k.shape[-3], v.shape[-1]
        seen = _seen(mask, causal, n, m)

        @functools.partial(jax.remat, prevent_cse=False)
        def step(q, k, v, bias, seen, out, most, total):
            scores = _masked(_scores(q, k, bias, scale), seen)
            higher = jnp.maximum(most, scores.max(-1))
            weights, fade = jnp.exp(scores - higher[..., None]), jnp.exp(most - higher)
            out = out * fade.mT[..., None] + _weighted(weights, v)
            return out, higher, total * fade + weights.sum(-1)

        def rows(start, size):
            q_, bias_, seen_ = cut(q, start, size, -3), cut(bias, start, size, -2), None
            if seen is not None:
                seen_ = cut(seen, start, size, -2)

            def columns(carry, size):
                at, *state = carry
                inputs = cut(k, at, size, -3), cut(v, at, size, -3)
                limits = cut(bias_, at, size, -1), cut(seen_, at, size, -1)
                return at + size, *step(q_, *inputs, *limits, *state)

            shape = (*front, heads, size)
            carry = (
                0,
                jnp.zeros((*front, size, heads, features), jnp.float32),
                jnp.full(shape, -jnp.inf),
                jnp.zeros(shape, jnp.float32),
            )
            if m >= chunk:
                turn = lambda _, carry: columns(carry, chunk)
                carry = jax.lax.fori_loop(0, m // chunk, turn, carry)
            if m % chunk:
                carry = columns(carry, m % chunk)
            _, out, _, total = carry
            return (out / total.mT[..., None]).astype(q.dtype)

        parts = []
        if n >= chunk:
            turn = lambda start, _: (start + chunk, rows(start, chunk))
            _, out = jax.lax.scan(turn, 0, length=n // chunk)
            out = jnp.moveaxis(out, 0, len(front))
            parts.append(out.reshape(*front, n // chunk * chunk, heads, features))
        if n % chunk:
            parts.append(rows(n // chunk * chunk, n % chunk))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-3)

    return PublishedProgram(attention, attention_arguments(key))


@registered("dot_product_attention", "tokamax", FLASH, needs="tokamax")
def _tokamax_attention(key: Key) -> PublishedProgram:
    if key.pass_ == "backward":
        return _attention_gradients(key, "tpu")
    options = key.options.typed()
    attend = tokamax_door.function(tokamax_door.op("attention", "tpu", key.tuning.typed()))
    causal, residuals = options.get("causal", False), options.get("residuals", False)

    def attention(q, k, v):
        return attend(q, k, v, is_causal=causal, return_residuals=residuals)

    arguments = attention_arguments(key)[:3]
    op = tokamax_door.op("attention", "tpu")
    tunings = functools.partial(tokamax_door.tunings, op, *arguments)
    return PublishedProgram(attention, arguments, tunings)


@registered("flash_attention", "jax_flash", FLASH)
def _jax_flash(key: Key) -> PublishedProgram:
    """The kernel that JAX ships, [batch, heads, tokens, features]."""
    tuning = key.tuning.typed()
    names = "block_q", "block_k_major", "block_k"
    blocks = jax_flash.BlockSizes(**{name: tuning[name] for name in names}, block_b=1)
    function = functools.partial(
        jax_flash.flash_attention,
        causal=key.options.typed().get("causal", False),
        sm_scale=1 / math.sqrt(key.sizes["d"]),
        block_sizes=blocks,
    )
    return PublishedProgram(function, (_of(key, "bhnd"),) * 3)


@registered("flash_attention", "xla", SCORES)
def _heads_first(key: Key) -> PublishedProgram:
    """The same in plain JAX, [batch, heads, tokens, features]; the scores keep the dtype of q."""
    size, causal = key.sizes, key.options.typed().get("causal", False)

    def attention(q, k, v):
        scores = jnp.einsum("bhnd,bhmd->bhnm", q, k) * size["d"] ** -0.5
        seen = _seen(None, causal, size["n"], size["n"])
        if seen is not None:
            scores = jnp.where(seen, scores, -jnp.inf)
        return jnp.einsum("bhnm,bhmd->bhnd", jax.nn.softmax(scores, axis=-1), v)

    return PublishedProgram(attention, (_of(key, "bhnd"),) * 3)


@registered("attention", "jax_flash", FLASH)
def _default_flash(key: Key) -> PublishedProgram:
    """JAX's kernel at its default blocks, [batch, heads, tokens, features]."""
    function = functools.partial(jax_flash.flash_attention)
    return PublishedProgram(function, (_of(key, "bhnd"),) * 3)


# --- ragged products ------------------------------------------------------------------------------


def group_sizes(key: Key) -> Any:
    """The rows of each group, int32: those of the row's list, all equal, or as tokamax draws them.

    Source: tokamax, ragged_dot/base.py, generate_group_sizes: as many draws as rows, from seed 0.
    """
    groups, rows = key.sizes["g"], key.sizes["m"]
    listed = key.options["groups"]
    if listed == "equal":
        return np.full(groups, rows // groups, np.int32)
    if listed == "drawn":
        drawn = np.random.default_rng(0).choice(groups, (rows,), replace=True)
        return np.bincount(drawn, minlength=groups).astype(np.int32)
    return np.array([int(size) for size in str(listed).split(",")], np.int32)


def _form(key: Key) -> str:
    """Of a ragged product: "forward", or the gradient of the left or of the right side."""
    return str(key.options.get("form", "forward"))


def _ragged_arguments(key: Key) -> tuple[Any, ...]:
    """Left, right, and the groups' sizes."""
    shapes = {"forward": ("mk", "gkn"), "dlhs": ("mn", "gkn"), "drhs": ("mk", "mn")}[_form(key)]
    return *(_of(key, names) for names in shapes), group_sizes(key)


def _ragged_dimensions(form: str) -> Any:
    contracted = {"forward": ([1], [1]), "dlhs": ([1], [2]), "drhs": ([0], [0])}[form]
    return jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contracted, ([], [])),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[] if form == "drhs" else [0],
    )


@registered("ragged_dot", "xla", RAGGED)
def _ragged(key: Key) -> PublishedProgram:
    dimensions = _ragged_dimensions(_form(key))
    residuals = key.options.typed().get("residuals", False)

    def ragged_dot(left, right, sizes):
        out = jax.lax.ragged_dot_general(
            left, right, sizes, dimensions, preferred_element_type=jnp.float32
        ).astype(left.dtype)
        return (out, out) if residuals else out

    return PublishedProgram(ragged_dot, _ragged_arguments(key))


OTHER = "another program: "  # how the reason begins of a row that our compiler does not compile to


def another_program(row: Record, kernel: bool, peak: float) -> str:
    """Whether what was timed is another program than what our compiler makes of a row, in words.

    XLA multiplies ragged groups in one of two ways: each row by the matrix of its own group, with a
    kernel that it brings, or by the matrices of all of them, without. Which way ours takes is read
    off the compiled program; which way was timed, off the published time alone: whether the second
    fits into it at the chip's peak. The estimate has no part in it.

    Args:
        row: the published one.
        kernel: whether XLA put its kernel into the program that our compiler makes.
        peak: operations a second of the chip.

    Returns:
        The two programs; empty where they are the same, or where XLA has one way only.
    """
    if (row.operator, row.implementation) != ("ragged_dot", "xla"):
        return ""
    everything = 2.0 * math.prod(row.sizes[name] for name in "mkng")
    ours = not kernel
    timed = milliseconds(row) * 1e-3 >= everything / peak
    if ours == timed:
        return ""
    ways = "each row by its own matrix", "each row by all matrices"
    return f"{OTHER}ours multiplies {ways[ours]}, and what was timed {ways[timed]}"


@registered("ragged_dot", "tokamax", MATMULS, needs="tokamax")
def _tokamax_ragged(key: Key) -> PublishedProgram:
    form = _form(key)
    residuals = key.options.typed().get("residuals", False)
    left, right, sizes = _ragged_arguments(key)
    more = {"group_sizes": sizes, "ragged_dot_dimension_numbers": _ragged_dimensions(form)}
    op = tokamax_door.op("ragged_dot", "tpu")
    tunings = functools.partial(tokamax_door.tunings, op, left, right, **more)
    tuning = key.tuning.typed()
    if form == "dlhs" and any(tuning.items() <= tried.items() for tried in tunings()):
        # The search lets tile_k follow what comes out and tile_n what is summed over, and took its
        # times so: with a tile_k of 3,584 of 512 summed, the padding alone would take longer than
        # the chip's peak allows. The released kernel takes them the other way round.
        tuning["tile_k"], tuning["tile_n"] = tuning["tile_n"], tuning["tile_k"]
    product = tokamax_door.function(tokamax_door.op("ragged_dot", "tpu", tuning))

    def ragged_dot(left, right, sizes):
        return product(left, right, **more | {"group_sizes": sizes}, return_residuals=residuals)

    return PublishedProgram(ragged_dot, (left, right, sizes), tunings)


@registered("ragged_dot", "megablox", MATMULS)
def _megablox(key: Key) -> PublishedProgram:
    """The kernel that JAX ships."""
    tuning = key.tuning.typed()
    tiling = tuning["tile_m"], tuning["tile_k"], tuning["tile_n"]

    def ragged_dot(left, right, sizes):
        return gmm(left, right, sizes, preferred_element_type=left.dtype, tiling=tiling)

    return PublishedProgram(ragged_dot, _ragged_arguments(key))


@registered("ragged_dot", "xla_batched", MATMULS)
def _batched(key: Key) -> PublishedProgram:
    """All groups of one size: a product for each."""

    def batched_dot(left, right):
        return jnp.einsum("gmk,gkn->gmn", left, right)

    m, k, g = (key.sizes[name] for name in "mkg")
    return PublishedProgram(batched_dot, (array((g, m // g, k), key.dtype), _of(key, "gkn")))


# --- gated linear unit, cross-entropy -------------------------------------------------------------


@registered("gated_linear_unit", "xla", STREAMS)
def _gated(key: Key) -> PublishedProgram:
    activation = getattr(jax.nn, str(key.options["activation"]))

    def gated_linear_unit(x, weights):
        both = jnp.einsum("...k,kjn->...jn", x, weights, precision=BF16)
        both = jax.lax.collapse(both, -2).astype(jnp.float32)
        gate, projection = jnp.split(both, 2, axis=-1)
        return (activation(gate) * projection).astype(x.dtype)

    return PublishedProgram(gated_linear_unit, gated_arguments(key))


def gated_arguments(key: Key) -> tuple[Any, ...]:
    """x, and the weights of gate and projection."""
    size = key.sizes
    x = array((*leading(key.options.typed(), size["m"]), size["k"]), key.dtype)
    return x, array((size["k"], 2, size["n"]), key.dtype)


def _loss_arguments(key: Key) -> tuple[Any, ...]:
    w = array((key.sizes["d"], key.sizes["v"]), str(key.options.get("w", key.dtype)))
    return _of(key, "td"), array((key.sizes["t"],), "int32"), w


def _reduced(loss: Any, tokens: int, key: Key) -> Any:
    return loss / tokens if key.options["reduction"] == "mean" else loss


def _loss_gradients(key: Key) -> PublishedProgram:
    """Of tokens and weights, as tokamax's plain JAX has them."""
    x, labels, w = _loss_arguments(key)

    def gradients(sums, gradient, x, labels, w):
        right = jax.nn.one_hot(labels, w.shape[1], dtype=x.dtype)
        scores = jnp.exp(x @ w - sums[:, None]) - right
        count = x.shape[0] if key.options["reduction"] == "mean" else 1
        return gradient * (scores @ w.T) / count, gradient * (x.T @ scores) / count

    before = array(labels.shape, key.dtype), array((), "float32")
    return PublishedProgram(gradients, (*before, x, labels, w))


@registered("linear_cross_entropy", "xla", SCORES)
def _cross_entropy(key: Key) -> PublishedProgram:
    if key.pass_ == "backward":
        return _loss_gradients(key)
    residuals = key.options.typed().get("residuals", False)

    def loss(x, labels, w):
        logits = x @ w
        right = jax.nn.one_hot(labels, w.shape[1], dtype=x.dtype)
        total = jnp.sum(-right * jax.nn.log_softmax(logits, axis=-1), dtype=jnp.float32)
        total = _reduced(total, x.shape[0], key)
        return (total, jax.nn.logsumexp(logits, axis=-1)) if residuals else total

    return PublishedProgram(loss, _loss_arguments(key))


@registered("linear_cross_entropy", "xla_chunked", SCORES)
def _chunked_cross_entropy(key: Key) -> PublishedProgram:
    """A loop over blocks of tokens, and in it one over blocks of the vocabulary."""
    tuning = key.tuning.typed()
    tokens, words = tuning["b_block_size"], tuning["v_block_size"]
    residuals = key.options.typed().get("residuals", False)

    def loss(x, labels, w):
        t, d = x.shape
        x_ = jnp.pad(x, ((0, -t % tokens), (0, 0)))
        labels_ = jnp.pad(labels, (0, -t % tokens))
        w_ = jnp.pad(w, ((0, 0), (0, -w.shape[1] % words)))

        def over_tokens(i, carry):
            sums, total = carry
            start = i * tokens

            def over_words(j, carry):
                logsum, picked = carry
                block = jax.lax.dynamic_slice(x_, (start, 0), (tokens, d))
                columns = jax.lax.dynamic_slice(w_, (0, j * words), (d, words))
                label = jax.lax.dynamic_slice(labels_, (start,), (tokens,))
                logits = jnp.dot(block, columns).astype(x.dtype)
                logsum = jnp.logaddexp(logsum, jax.nn.logsumexp(logits, axis=-1))
                right = jax.nn.one_hot(label - j * words, words, dtype=x.dtype)
                return logsum, picked - jnp.sum(logits * right, axis=-1)

            empty = jnp.full(tokens, -jnp.inf, x.dtype), jnp.zeros(tokens, x.dtype)
            logsum, picked = jax.lax.fori_loop(0, w_.shape[1] // words, over_words, empty)
            inside = jax.lax.dynamic_slice(jnp.arange(len(x_)) < t, (start,), (tokens,))
            inside = inside.astype(x.dtype)
            sums = jax.lax.dynamic_update_slice(sums, logsum, (start,))
            return sums, total + jnp.sum(picked * inside) + jnp.sum(logsum * inside)

        empty = jnp.zeros(len(x_), x.dtype), jnp.array(0.0, x.dtype)
        sums, total = jax.lax.fori_loop(0, len(x_) // tokens, over_tokens, empty)
        total = _reduced(total, t, key)
        return (total, sums[:t]) if residuals else total

    return PublishedProgram(loss, _loss_arguments(key))


@registered("linear_cross_entropy", "tokamax", LOSSES, needs="tokamax")
def _tokamax_cross_entropy(key: Key) -> PublishedProgram:
    operator, residuals = "linear_softmax_cross_entropy_loss", key.options.get("residuals")
    if key.pass_ == "backward":
        op = tokamax_door.op(f"{operator} backward", "tpu", key.tuning.typed())
        x, labels, w = _loss_arguments(key)
        one = array((), key.dtype)
        gradients = functools.partial(tokamax_door.call, op, reduction=key.options["reduction"])
        before = (array(labels.shape, "float32"),), one, one
        return PublishedProgram(gradients, (*before, x, labels, w))
    loss = tokamax_door.function(tokamax_door.op(operator, "tpu", key.tuning.typed()))

    def cross_entropy(x, labels, w):
        more = {"reduction": key.options["reduction"], "return_residuals": bool(residuals)}
        return loss(x, labels, w, **more)

    arguments = _loss_arguments(key)
    op = tokamax_door.op(operator, "tpu")
    return PublishedProgram(
        cross_entropy, arguments, functools.partial(tokamax_door.tunings, op, *arguments)
    )


# --- products, and what only streams --------------------------------------------------------------


@registered("matmul", "xla", MATMULS)
def _matmul(key: Key) -> PublishedProgram:
    wide = jnp.int32 if key.dtype == "int8" else None

    def matmul(x, y):
        return jax.lax.dot(x, y, preferred_element_type=wide)

    return PublishedProgram(matmul, (_of(key, "mk"), _of(key, "kn")))


@registered("matmul", "published kernel", MATMULS)
def _published_matmul(key: Key) -> PublishedProgram:
    """Adds to an accumulator from zero: levels 2 and 3 of our own matmul, at the blocks that they
    have; the last level at other blocks, and where an activation follows."""
    text = str(key.tuning["block"])
    block = BlockSizes(*(int(size) for size in text.split("×")))
    level = {"128×128×128": "v2", "512×1024×1024": "v3"}.get(text, "pallas")
    options: dict[str, Any] = {"block": block} if level == "pallas" else {}
    if "activation" in key.options:
        level, options["block"] = "pallas", block
        options["activation"] = getattr(jax.nn, str(key.options["activation"]))
    function = functools.partial(
        OPERATORS["matmul"].function, implementation=level, interpret=False, **options
    )
    return PublishedProgram(function, (_of(key, "mk"), _of(key, "kn")))


@registered("rms_norm", "xla", STREAMS)
def _rms_norm(key: Key) -> PublishedProgram:
    def rms_norm(x, weight):
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
        return (wide * scale).astype(x.dtype) * weight

    return PublishedProgram(rms_norm, (_of(key, "mn"), _of(key, "n")))


@registered("rms_norm", "row blocks", STREAMS)
def _blocked_rms_norm(key: Key) -> PublishedProgram:
    """A block of whole rows a step."""
    m, n = key.sizes["m"], key.sizes["n"]
    rows = key.tuning["rows"]

    def kernel(x_ref, weight_ref, out_ref):  # [rows, n], [1, n], [rows, n]
        x = x_ref[...].astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        out_ref[...] = (x * scale * weight_ref[...].astype(jnp.float32)).astype(out_ref.dtype)

    block = pl.BlockSpec((rows, n), lambda i: (i, 0))
    rms_norm = pl.pallas_call(
        kernel,
        out_shape=_of(key, "mn"),
        grid=(m // rows,),
        in_specs=[block, pl.BlockSpec((1, n), lambda i: (0, 0))],
        out_specs=block,
        name="rms_norm",
    )
    return PublishedProgram(rms_norm, (_of(key, "mn"), array((1, n), key.dtype)))


def normalization_call(key: Key, route: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """As `attention_call`, of a normalization."""
    size, options = key.sizes, key.options.typed()
    axis, backward = options.get("axis", -1), key.pass_ == "backward"
    kind = "normalization backward" if backward else "normalization"
    op = tokamax_door.op(kind, route, key.tuning.typed())

    def normalization(call, before, x, scale, offset):
        return call(
            op,
            *before,
            *(x, scale, offset),
            axis=axis,
            epsilon=1e-6,
            scale_offset=0.0,
            subtract_mean=options.get("subtract_mean", False),
            return_residuals=options.get("residuals", False),
        )

    shape = (*leading(options, size["m"]), size["n"])
    if axis == 0:
        shape = (size["n"], *options["trailing"])
    x, one = array(shape, key.dtype), array((size["n"],), "float32")
    sums = array((*shape[:-1], 1), "float32")
    before = ((sums, sums), x, x) if backward else ()
    return normalization, (before, x, one, one if options.get("subtract_mean") else None)


@registered("normalization", "xla", STREAMS, needs="tokamax")
def _normalization(key: Key) -> PublishedProgram:
    normalization, arguments = normalization_call(key, "xla")
    return PublishedProgram(functools.partial(normalization, tokamax_door.call), arguments)


@registered("softmax", "xla", STREAMS)
def _softmax(key: Key) -> PublishedProgram:
    """The maximum and the sum of a row in one reduction, as the published program takes them."""

    def both(one, other):
        most = jnp.maximum(one[0], other[0])
        return most, one[1] * jnp.exp(one[0] - most) + other[1] * jnp.exp(other[0] - most)

    def softmax(x):
        wide = x.astype(jnp.float32)
        start = -math.inf, 0.0
        most, total = jax.lax.reduce((wide, jnp.ones_like(wide)), start, both, (1,))
        return (jnp.exp(wide - most[:, None]) / total[:, None]).astype(x.dtype)

    return PublishedProgram(softmax, (_of(key, "mn"),))


@registered("softmax", "xla formula", STREAMS)
def _softmax_formula(key: Key) -> PublishedProgram:
    softmax = functools.partial(OPERATORS["softmax"].function, implementation="xla")
    return PublishedProgram(softmax, (_of(key, "mn"),))


@registered("softmax", "row blocks", STREAMS)
def _blocked_softmax(key: Key) -> PublishedProgram:
    """A block of whole rows a step."""
    block = RowBlocks(key.tuning["rows"], key.sizes["n"])
    options = {"implementation": "pallas", "block": block, "interpret": False}
    softmax = functools.partial(OPERATORS["softmax"].function, **options)
    return PublishedProgram(softmax, (_of(key, "mn"),))


@registered("cumsum", "xla", STREAMS)
def _cumsum(key: Key) -> PublishedProgram:
    """The published program spells it as a window of n; the compiler makes the same of both."""
    return PublishedProgram(functools.partial(jnp.cumsum, axis=0), (_of(key, "n"),))


@registered("embedding_lookup", "xla", STREAMS)
def _lookup(key: Key) -> PublishedProgram:
    """By plain indexing, which fills nothing in where a row is out of bounds."""

    def embedding_lookup(table, rows):
        return table[rows]

    return PublishedProgram(embedding_lookup, (_of(key, "vd"), array((key.sizes["t"],), "int32")))


@registered("scale", "xla", STREAMS)
def _scale(key: Key) -> PublishedProgram:
    def scale(x):
        return x * 2

    return PublishedProgram(scale, (_of(key, "mn"),))


@registered("copy", "xla", STREAMS)
def _copy(key: Key) -> PublishedProgram:
    return PublishedProgram(jnp.copy, (_of(key, "mn"),))
