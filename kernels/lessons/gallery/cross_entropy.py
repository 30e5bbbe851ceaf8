"""Wrong cross-entropy: one online loss with four faults."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import family
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload

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


_faulty = family(online_loss, Workload("one_block", ONE), Workload("two_blocks", TWO))

padded_vocabulary = _faulty(
    "padded_vocabulary", Workload("whole", TWO), Workload("ragged", ONE | {"v": 200})
)
old_scale = _faulty("old_scale")
forgotten_offset = _faulty("forgotten_offset")
early_result = _faulty("early_result")
