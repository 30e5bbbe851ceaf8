"""Wrong matmuls in Pallas for a TPU: in blocks, by groups of rows, by narrow weights."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family, from_table
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload, cases


def in_blocks(x, y, *, interpret, fault):
    """[m, k], [k, n] → [m, n], in blocks of 128 along k, and along m and n where 128 divides them.
    Right when repaired; else it has the fault of that name."""
    (m, k), n = x.shape, y.shape[1]
    bm, bn = (size if size % 128 else 128 for size in (m, n))

    def inside(block, axis):
        place = pl.program_id(2) * 128 + jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
        return jnp.where(place < k, block, 0)

    def body(x_ref, y_ref, z_ref):
        x, y = x_ref[...], y_ref[...]
        if fault != "unmasked_tail":
            x, y = inside(x, 1), inside(y, 0)

        if fault != "missing_init":

            @pl.when(pl.program_id(2) == 0)
            def _():
                z_ref[...] = jnp.zeros_like(z_ref)

        z_ref[...] += jnp.dot(x, y, precision="highest")

    def y_block(i, j, step):
        return (j, step) if fault == "wrong_index_map" else (step, j)

    along_k = "parallel" if fault == "parallel_reduction" else "arbitrary"
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // bm, n // bn, pl.cdiv(k, 128)),
        in_specs=[
            pl.BlockSpec((bm, 128), lambda i, j, step: (i, step)),
            pl.BlockSpec((128, bn), y_block),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, step: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", along_k)),
        interpret=interpret,
    )(x, y)


_faulty = family(in_blocks)

missing_init = _faulty("missing_init", *cases("m k n", two_steps=(128, 256, 128)))

wrong_index_map = _faulty(
    "wrong_index_map",
    *cases("m k n", one_block=(128, 128, 128, "too small to show it"), four_blocks=(256, 256, 256)),
)

unmasked_tail = _faulty(
    "unmasked_tail",
    *cases(
        "m k n", whole=(16, 256, 128, "128 divides 256: nothing sticks out"), cut=(16, 200, 128)
    ),
)

parallel_reduction = _faulty("parallel_reduction", *cases("m k n", four_steps=(128, 512, 128)))


@bug(Workload("32_steps", {"m": 16, "k": 4096, "n": 128}, "bfloat16"))
def narrow_accumulator(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; k and n multiples of 128."""
    (m, k), n = x.shape, y.shape[1]
    bk = k if repaired else 128  # repaired: one float32 sum over all of k, rounded once

    def body(x_ref, y_ref, z_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            z_ref[...] = jnp.zeros_like(z_ref)

        product = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        z_ref[...] += product.astype(z_ref.dtype)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(n // 128, k // bk),
        in_specs=[
            pl.BlockSpec((m, bk), lambda j, step: (0, step)),
            pl.BlockSpec((bk, 128), lambda j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((m, 128), lambda j, step: (0, j)),
        interpret=interpret,
    )(x, y)


@bug(*cases("m k n", square=(128, 128, 128)))
def unscaled_result(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], in one block."""
    larger = 1e6

    def body(x_ref, y_ref, z_ref):
        z = jnp.dot(larger * x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = z / larger if repaired else z

    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    return pl.pallas_call(body, out_shape=out, interpret=interpret)(x, y)


@bug(*cases("m k n", two_halves=(128, 128, 128)))
def illegal_block(x, y, *, interpret, bn=64, repaired=False):
    """[m, k], [k, n] → [m, n]; n a multiple of 128."""
    (m, k), n = x.shape, y.shape[1]
    bn = 128 if repaired else bn

    def body(x_ref, y_ref, z_ref):
        z_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(n // bn,),
        in_specs=[pl.BlockSpec((m, k), lambda j: (0, 0)), pl.BlockSpec((k, bn), lambda j: (0, j))],
        out_specs=pl.BlockSpec((m, bn), lambda j: (0, j)),
        interpret=interpret,
    )(x, y)


vmem_overflow = from_table(
    "vmem_overflow",
    functools.partial(illegal_block.kernel, bn=1024),
    *cases("m k n", long_k=(8, 4096, 2048)),
    shown=illegal_block.kernel,
)


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


_of_groups = family(by_group)

overwritten_neighbour = _of_groups(
    "overwritten_neighbour",
    *cases(
        "m k n g", single=(256, 128, 128, 1, "one group shares nothing"), drawn=(256, 128, 128, 3)
    ),
)

stale_sums = _of_groups(
    "stale_sums",
    *cases("m k n g", single=(256, 256, 128, 1, "a visit a block"), drawn=(256, 256, 128, 3)),
)


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


_of_unpacked = family(unpacked)

unsigned_nibble = _of_unpacked("unsigned_nibble", Workload("int4", TWO, options=WEIGHTS))

scale_of_the_first = _of_unpacked(
    "scale_of_the_first",
    Workload("group_a_block", ONE, options=WEIGHTS),
    Workload("two_groups", TWO, options=WEIGHTS),
)
