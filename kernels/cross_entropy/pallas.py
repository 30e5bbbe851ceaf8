"""Cross-entropy of a linear layer on a TPU: a kernel for the loss, one for dx and one for dw.

Each program makes a block of logits [tokens, vocab] from all of D. The softmax is online twice
over: from one block of the vocabulary to the next, and in each of the 128 lanes by itself, so that
no step reduces over lanes; the lanes meet after the last block. What belongs to a token is held
[tokens, 128], the same in every lane. Between forward and backward one float32 is kept for each
token, the log-sum-exp, and both gradients make the logits again.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.cross_entropy.blocks import LANES, CrossEntropyBlocks, plan
from kernels.machines.pallas import interprets
from kernels.machines.tpu.products import dot, mask

HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a logit that no softmax sees


@dataclasses.dataclass(frozen=True)
class CrossEntropySpec:
    """Everything about a loss but its operands; hashable, so that jit can key on it."""

    block: CrossEntropyBlocks | None  # of all kernels; None lets each choose
    interpret: object  # as `pallas_call` takes it

    def call(self, kernel, result, x, w, *rows):
        """One of the kernels, over all blocks of x and w.

        Args:
            kernel: of refs as below.
            result: which one, of blocks.RESULTS.
            x, w: the operands.
            rows: [1, T] arrays.
        """
        (t, d), v = x.shape, w.shape[1]
        planned = plan(t, d, v, x.dtype, result, block=self.block)
        tokens, vocab = planned.block.tokens, planned.block.vocab
        grid = pl.cdiv(t, tokens), pl.cdiv(v, vocab)
        # The blocks that are kept stand outside: those of the vocabulary for dw.
        outside = (lambda j, i: (i, j)) if result == "dw" else (lambda i, j: (i, j))
        of_tokens = pl.BlockSpec((tokens, d), lambda *step: (outside(*step)[0], 0))
        of_vocab = pl.BlockSpec((d, vocab), lambda *step: (0, outside(*step)[1]))
        of_row = pl.BlockSpec((1, tokens), lambda *step: (0, outside(*step)[0]))
        row = jax.ShapeDtypeStruct((1, t), jnp.float32)
        of_x, of_w = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (x, w))
        place, wide = (pltpu.VMEM((tokens, LANES), dtype) for dtype in (jnp.int32, jnp.float32))
        dx, dw = (pltpu.VMEM(shape, jnp.float32) for shape in ((tokens, d), (d, vocab)))
        out_shape, out_specs, scratch = {
            "loss": ([row] * 2, [of_row] * 2, [place, wide, wide, wide]),
            "dx": (of_x, of_tokens, [place, wide, wide, dx]),
            "dw": (of_w, of_vocab, [dw]),
        }[result]
        return pl.pallas_call(
            functools.partial(kernel, t=t, v=v, widen=self.interpret is True),
            out_shape=out_shape,
            grid=outside(*grid),
            in_specs=[of_tokens, of_vocab, *[of_row] * len(rows)],
            out_specs=out_specs,
            scratch_shapes=scratch,
            compiler_params=pltpu.CompilerParams(
                # What is outside runs in any order; inside, each step adds to those before it.
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=planned.vmem_limit_bytes,
            ),
            interpret=self.interpret,
            name=f"cross_entropy_{result}",
        )(x, w, *rows)


def _wide(row):
    """[1, tokens] → [tokens, 128], the same in every lane."""
    return jnp.broadcast_to(row, (LANES, row.shape[1])).T


def _row(column):
    """[tokens, 1] → [1, tokens]."""
    return jnp.broadcast_to(column, (len(column), LANES)).T[:1]


def _inside(size, block, run):
    """Run the step of this program: run(left) with None, or, in a last block that is cut short,
    with how many elements of it there are."""
    left = size % block
    if not left:
        run(None)
        return
    last = pl.program_id(1) == pl.num_programs(1) - 1
    pl.when(~last)(functools.partial(run, None))
    pl.when(last)(functools.partial(run, left))


def _cut(x, axis, left):
    """x, zero beyond its first `left` elements along an axis; None is all of them."""
    return x if left is None else mask(x, axis, left)


def _loss_kernel(x_ref, w_ref, labels_ref, loss_ref, lse_ref, *scratch, t, v, widen):
    # x_ref [tokens, D], w_ref [D, vocab]; labels_ref, loss_ref, lse_ref [1, tokens]
    # scratch [tokens, 128] each; grid (T / tokens, V / vocab)
    place_ref, max_ref, sum_ref, own_ref = scratch
    j, vocab = pl.program_id(1), w_ref.shape[1]

    @pl.when(j == 0)
    def _():
        place_ref[...] = _wide(labels_ref[...])
        max_ref[...] = jnp.full_like(max_ref, HIDDEN)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        own_ref[...] = jnp.zeros_like(own_ref)

    def run(left):
        s = dot(x_ref[...], w_ref[...], widen=widen)
        lane = jax.lax.broadcasted_iota(jnp.int32, max_ref.shape, 1)
        place, own, parts = place_ref[...] - j * vocab, own_ref[...], []
        before = largest = max_ref[...]
        for first in range(0, vocab if left is None else left, LANES):
            part = s[:, first : first + LANES]
            own = jnp.where(lane + first == place, part, own)
            if left is not None and left < first + LANES:
                part = jnp.where(lane + first < left, part, HIDDEN)
            largest = jnp.maximum(largest, part)
            parts.append(part)
        total = sum_ref[...] * jnp.exp(before - largest)
        for part in parts:
            total += jnp.exp(part - largest)
        max_ref[...], sum_ref[...], own_ref[...] = largest, total, own

    _inside(v, vocab, run)

    @pl.when(j == pl.num_programs(1) - 1)
    def _():
        largest = jnp.max(max_ref[...], axis=1, keepdims=True)
        total = jnp.sum(sum_ref[...] * jnp.exp(max_ref[...] - largest), axis=1, keepdims=True)
        lse = largest + jnp.log(total)
        lse_ref[...] = _row(lse)
        loss_ref[...] = _row(lse - jnp.sum(own_ref[...], axis=1, keepdims=True))


def _logits_gradient(x, w, place, lse, do, widen):
    """do (softmax(x w) − 1 at the label) of a block, [tokens, vocab], in x's dtype.

    Args:
        x, w: the block's.
        place: where in the block the label stands; it and the next two [tokens, 128].
        lse: log-sum-exp of all logits.
        do: what comes back to the loss.
        widen: see machines.tpu.products.
    """
    s = dot(x, w, widen=widen)
    lane = jax.lax.broadcasted_iota(jnp.int32, place.shape, 1)
    parts = []
    for first in range(0, s.shape[1], LANES):
        p = jnp.exp(s[:, first : first + LANES] - lse)
        parts.append(do * jnp.where(lane + first == place, p - 1, p))
    return jnp.concatenate(parts, axis=1).astype(x.dtype)


def _dx_kernel(
    x_ref, w_ref, labels_ref, lse_ref, do_ref, dx_ref, place, lse, do, acc_ref, *, t, v, widen
):
    # as above; dx_ref, acc_ref [tokens, D]; place, lse, do [tokens, 128]
    j, vocab = pl.program_id(1), w_ref.shape[1]

    @pl.when(j == 0)
    def _():
        place[...], lse[...], do[...] = map(_wide, (labels_ref[...], lse_ref[...], do_ref[...]))
        acc_ref[...] = jnp.zeros_like(acc_ref)

    def run(left):
        x, w = x_ref[...], _cut(w_ref[...], 1, left)
        ds = _logits_gradient(x, w, place[...] - j * vocab, lse[...], do[...], widen)
        acc_ref[...] += dot(_cut(ds, 1, left), w, (1, 1), widen)

    _inside(v, vocab, run)

    @pl.when(j == pl.num_programs(1) - 1)
    def _():
        dx_ref[...] = acc_ref[...].astype(dx_ref.dtype)


def _dw_kernel(x_ref, w_ref, labels_ref, lse_ref, do_ref, dw_ref, acc_ref, *, t, v, widen):
    # as above; dw_ref, acc_ref [D, vocab]; grid (V / vocab, T / tokens)
    j, i = pl.program_id(0), pl.program_id(1)
    tokens, vocab = len(x_ref), w_ref.shape[1]

    @pl.when(i == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    def run(left):
        x = _cut(x_ref[...], 0, left)
        place, lse, do = map(_wide, (labels_ref[...], lse_ref[...], do_ref[...]))
        ds = _logits_gradient(x, w_ref[...], place - j * vocab, lse, do, widen)
        acc_ref[...] += dot(x, _cut(ds, 0, left), (0, 0), widen)

    _inside(t, tokens, run)

    @pl.when(i == pl.num_programs(1) - 1)
    def _():
        dw_ref[...] = acc_ref[...].astype(dw_ref.dtype)


@functools.partial(jax.jit, static_argnums=3)
def _forward(x, w, labels, spec):
    loss, lse = spec.call(_loss_kernel, "loss", x, w, labels[None])
    return loss[0], (x, w, labels, lse)


@functools.partial(jax.jit, static_argnums=0)
def _backward(spec, saved, do):
    x, w, labels, lse = saved
    rows = labels[None], lse, do[None]
    dx = spec.call(_dx_kernel, "dx", x, w, *rows)
    dw = spec.call(_dw_kernel, "dw", x, w, *rows)
    return dx, dw, None


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _loss(x, w, labels, spec):
    return _forward(x, w, labels, spec)[0]


_loss.defvjp(_forward, _backward)


def linear_cross_entropy(x, w, labels, *, block=None, interpret=None):
    """[T, D], [D, V], int32 [T] → float32 [T]; grid (T / tokens, V / vocab)."""
    x, w, labels = map(jnp.asarray, (x, w, labels))
    return _loss(x, w, labels, CrossEntropySpec(block, interprets(interpret, "tpu")))
