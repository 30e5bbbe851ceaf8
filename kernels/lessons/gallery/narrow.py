"""Wrong products by narrow weights: one kernel that unpacks int4, with two faults."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import family
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload

WEIGHTS = {"weights": "int4"}
ONE = {"m": 8, "k": 256, "n": 128, "groups": 1}  # a group a block
TWO = ONE | {"groups": 2}


def unpacked(x, y, x_scale, y_scale, bias, *, weights, interpret, fault):
    """float32 [m, k], int4 in bytes [k / 2, n], None, [groups, n], [n] → [m, n], 256 rows of
    weights at a time, whole groups. Right when repaired; else it has the fault of that name."""
    (m, k), (groups, n) = x.shape, y_scale.shape
    parts = 256 // (k // groups)

    def body(x_ref, y_ref, scale_ref, bias_ref, z_ref):
        step = pl.program_id(0)

        @pl.when(step == 0)
        def _():
            z_ref[...] = jnp.broadcast_to(bias_ref[...], z_ref.shape)

        both = y_ref[...].astype(jnp.int32)
        low = both & 15 if fault == "unsigned_nibble" else (both << 28) >> 28
        for part in range(parts):
            rows = slice(part * 128 // parts, (part + 1) * 128 // parts)
            group = step * parts + (0 if fault == "scale_of_the_first" else part)
            sums = dot(x_ref[0, :, rows], low[rows].astype(jnp.float32))
            sums += dot(x_ref[1, :, rows], (both >> 4)[rows].astype(jnp.float32))
            z_ref[...] += sums * scale_ref[pl.ds(group, 1)]

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(k // 256,),
        in_specs=[
            pl.BlockSpec((2, m, 128), lambda step: (0, 0, step)),  # columns of even rows, of odd
            pl.BlockSpec((128, n), lambda step: (step, 0)),
            pl.BlockSpec((groups, n), lambda step: (0, 0)),
            pl.BlockSpec((1, n), lambda step: (0, 0)),
        ],
        out_specs=pl.BlockSpec((m, n), lambda step: (0, 0)),
        interpret=interpret,
    )(jnp.moveaxis(x.reshape(m, k // 2, 2), 2, 0), y, y_scale, bias[None])


_faulty = family(unpacked)

unsigned_nibble = _faulty("unsigned_nibble", Workload("int4", TWO, options=WEIGHTS))

scale_of_the_first = _faulty(
    "scale_of_the_first",
    Workload("group_a_block", ONE, options=WEIGHTS),
    Workload("two_groups", TWO, options=WEIGHTS),
)
