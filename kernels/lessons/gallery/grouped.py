"""Wrong grouped matmuls in Pallas for a TPU: one kernel with two faults, its gradient with one."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import family
from kernels.proof.workload import cases

ROWS = 128


def visits(group_sizes, blocks, *, empty):
    """For each pair of a group and a block of 128 rows, in that order: the group, the block, and
    whether they have a row in common, or, with `empty`, the group has none and this is block 0."""
    end = jnp.cumsum(group_sizes)
    start = end - group_sizes
    group, block = (a.reshape(-1) for a in jnp.indices((len(group_sizes), blocks), jnp.int32))
    first = block * ROWS
    meets = (start[group] < first + ROWS) & (end[group] > first) & (group_sizes[group] > 0)
    meets |= empty & (group_sizes[group] == 0) & (block == 0)
    kept = jnp.argsort(~meets, stable=True)
    return group[kept], block[kept], start.astype(jnp.int32), end.astype(jnp.int32), meets.sum()


def by_group(x, w, group_sizes, *, interpret, fault):
    """[m, k], [g, k, n], int32 [g] → [m, n]; every row in a group, 128 divides m, k and n. Right
    when repaired; else it has the fault of that name."""
    (m, k), n = x.shape, w.shape[2]
    *scalars, count = visits(group_sizes, m // ROWS, empty=False)

    def body(group_ref, block_ref, start_ref, end_ref, x_ref, w_ref, z_ref, acc_ref):
        visit, step = pl.program_id(0), pl.program_id(1)
        group, block = group_ref[visit], block_ref[visit]
        new = step == 0
        if fault == "stale_sums":
            new &= (visit == 0) | (block_ref[jnp.maximum(visit - 1, 0)] != block)

        @pl.when(new)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], precision="highest")

        @pl.when(step == pl.num_programs(1) - 1)
        def _():
            z = acc_ref[...]
            if fault != "overwritten_neighbour":
                row = block * ROWS + jax.lax.broadcasted_iota(jnp.int32, z.shape, 0)
                inside = (row >= start_ref[group]) & (row < end_ref[group])
                z = jnp.where(inside, z, z_ref[...])
            z_ref[...] = z

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(count, k // 128),
            in_specs=[
                pl.BlockSpec((ROWS, 128), lambda v, step, group, block, *_: (block[v], step)),
                pl.BlockSpec((None, 128, n), lambda v, step, group, *_: (group[v], step, 0)),
            ],
            out_specs=pl.BlockSpec((ROWS, n), lambda v, step, group, block, *_: (block[v], 0)),
            scratch_shapes=[pltpu.VMEM((ROWS, n), jnp.float32)],
        ),
        interpret=interpret,
    )(*scalars, x, w)


_faulty = family(by_group)

overwritten_neighbour = _faulty(
    "overwritten_neighbour",
    *cases(
        "m k n g", single=(256, 128, 128, 1, "one group shares nothing"), drawn=(256, 128, 128, 3)
    ),
)

stale_sums = _faulty(
    "stale_sums",
    *cases("m k n g", single=(256, 256, 128, 1, "a visit a block"), drawn=(256, 256, 128, 3)),
)
