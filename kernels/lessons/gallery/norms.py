"""Wrong softmax and norms: rows that are read in parts, and a variance that cancels."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family
from kernels.proof.workload import cases

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
