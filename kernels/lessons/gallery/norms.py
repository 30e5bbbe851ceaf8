"""Wrong softmax, norms and cross-entropy: rows that are read in parts, a variance that cancels."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload, cases

COLUMNS = 128  # of a part


def in_parts(x, *, interpret, fault):
    """[rows, n] → softmax [rows, n]; each part of a row is read for the sum, and then again for the
    result. Right when repaired; else it has the fault of that name."""
    rows, n = x.shape
    parts = pl.cdiv(n, COLUMNS)
    padded = jnp.pad(x, ((0, 0), (0, -n % COLUMNS)))

    def body(x_ref, o_ref, max_ref, sum_ref):
        turn, part = pl.program_id(0), pl.program_id(1)
        x = x_ref[...].astype(jnp.float32)
        if fault != "padded_row":
            column = part * COLUMNS + lax.broadcasted_iota(jnp.int32, x.shape, 1)
            x = jnp.where(column < n, x, -1e30)

        @pl.when((turn == 0) & (part == 0))
        def _():
            max_ref[...] = jnp.full_like(max_ref, -1e30)
            sum_ref[...] = jnp.zeros_like(sum_ref)

        @pl.when(turn == 0)
        def _():
            before = max_ref[...]
            now = jnp.maximum(before, x.max(1, keepdims=True))
            shrink = 1.0 if fault == "unshrunk_sum" else jnp.exp(before - now)
            sum_ref[...] = shrink * sum_ref[...] + jnp.exp(x - now).sum(1, keepdims=True)
            max_ref[...] = now

        @pl.when(turn == 1)
        def _():
            o_ref[...] = (jnp.exp(x - max_ref[...]) / sum_ref[...]).astype(o_ref.dtype)

    out = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(padded.shape, x.dtype),
        grid=(2, parts),
        in_specs=[pl.BlockSpec((rows, COLUMNS), lambda turn, part: (0, part))],
        out_specs=pl.BlockSpec((rows, COLUMNS), lambda turn, part: (0, turn * part)),
        scratch_shapes=[pltpu.VMEM((rows, 1), jnp.float32)] * 2,
        interpret=interpret,
    )(padded)
    return out[:, :n]


_faulty = family(in_parts)

padded_row = _faulty("padded_row", *cases("rows n", whole=(16, 256), ragged=(16, 200)))

unshrunk_sum = _faulty("unshrunk_sum", *cases("rows n", one_part=(16, 128), four_parts=(16, 512)))


@bug(*cases("rows n", around_zero=(16, 384), near_1000=(16, 384, {"values": "cancelling"})))
def cancelling_variance(x, weight, bias, *, interpret, eps=1e-5, repaired=False):
    """[rows, n], [n], [n] → [rows, n], all rows at once."""

    def body(x_ref, weight_ref, bias_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        mean = x.mean(1, keepdims=True)
        if repaired:
            variance = ((x - mean) ** 2).mean(1, keepdims=True)
        else:
            variance = (x**2).mean(1, keepdims=True) - mean**2
        normal = (x - mean) * lax.rsqrt(variance + eps)
        o_ref[...] = (normal * weight_ref[...] + bias_ref[...]).astype(o_ref.dtype)

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=interpret
    )(x, weight[None], bias[None])


ONE = {"t": 16, "d": 32, "v": 128}  # a block of the vocabulary
TWO = ONE | {"v": 256}


def online_loss(x, w, labels, *, interpret, fault):
    """[t, d], [d, v], int32 [t] → float32 [t], 128 columns at a time. Right when repaired; else it
    has the fault of that name."""
    (t, d), v = x.shape, w.shape[1]
    steps = pl.cdiv(v, 128)
    if fault == "padded_vocabulary":
        w = jnp.pad(w, ((0, 0), (0, -v % 128)))

    def body(x_ref, w_ref, labels_ref, loss_ref, max_ref, sum_ref, own_ref):
        j = pl.program_id(0)

        @pl.when(j == 0)
        def _():
            max_ref[...] = jnp.full_like(max_ref, -1e30)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            own_ref[...] = jnp.zeros_like(own_ref)

        s = dot(x_ref[...].astype(jnp.float32), w_ref[...].astype(jnp.float32))
        column = lax.broadcasted_iota(jnp.int32, s.shape, 1)
        if fault != "padded_vocabulary":
            s = jnp.where(128 * j + column < v, s, -1e30)
        if fault != "forgotten_offset":
            column += 128 * j
        own_ref[...] += jnp.where(column == labels_ref[...], s, 0).sum(1, keepdims=True)
        before = max_ref[...]
        now = jnp.maximum(before, s.max(1, keepdims=True))
        kept = sum_ref[...] if fault == "old_scale" else sum_ref[...] * jnp.exp(before - now)
        sum_ref[...] = kept + jnp.exp(s - now).sum(1, keepdims=True)
        max_ref[...] = now

        @pl.when(j == (0 if fault == "early_result" else steps - 1))
        def _():
            loss_ref[...] = max_ref[...] + jnp.log(sum_ref[...]) - own_ref[...]

    whole = pl.BlockSpec((t, 1), lambda j: (0, 0))
    loss = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((t, 1), jnp.float32),
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((t, d), lambda j: (0, 0)),
            pl.BlockSpec((d, 128), lambda j: (0, j)),
            whole,
        ],
        out_specs=whole,
        scratch_shapes=[pltpu.VMEM((t, 1), jnp.float32)] * 3,
        interpret=interpret,
    )(x, w, labels[:, None])
    return loss[:, 0]


_of_loss = family(online_loss, Workload("one_block", ONE), Workload("two_blocks", TWO))

padded_vocabulary = _of_loss(
    "padded_vocabulary", Workload("whole", TWO), Workload("ragged", ONE | {"v": 200})
)
old_scale = _of_loss("old_scale")
forgotten_offset = _of_loss("forgotten_offset")
early_result = _of_loss("early_result")
