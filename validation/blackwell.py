"""The steps of JAX's guide to a matrix product on Blackwell GPUs, in our own words.

Each step changes one thing (https://docs.jax.dev/en/latest/pallas/gpu/blackwell_matmul.html):
0 the plainest pipeline on tcgen05; 1 a warp that copies and a warp that multiplies; 2 the tile of
the result leaves in pieces; 3 two SMs share a product; 4 blocks that stay, one on each SM, with
two tiles of sums. Steps 5 and 6, an epilogue with a warpgroup of its own and the order of the
tiles, are JAX's shipped kernel.

They are compiled, and no more: no simulator of the pinned JAX knows TMEM, so no rung could say that
they are right. That is why they stand here, where published times are held against what is
compiled, and not with the operator.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.ops.gpu import blackwell_matmul_mgpu as shipped

from kernels.machines.checks import fail

__all__ = ["STEPS", "product", "specialised"]
STEPS = (
    "basic",
    "specialised warps",
    "tiled epilogue",
    "two SMs together",
    "persistent",
    "epilogue apart",
    "order of the tiles",
)
BM, BN, BK = 128, 128, 64  # a block's tile of the result, and its step in depth
STAGES, PIECE = 4, 32  # steps of depth in flight; columns of the result that leave at a time
BAND = 8  # tiles that the last step's order is wide
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
NARROW = (plgpu.TilingTransform((8, PIECE)), plgpu.SwizzleTransform(64))


def tile(*shape, transforms=SWIZZLED, dtype=jnp.bfloat16):
    """A tile of shared memory as TMA and tcgen05 want it."""
    return plgpu.SMEM(shape, dtype, transforms=transforms)


def product(x, y, step=0, sms=148):
    """[M, K], [K, N] → [M, N], by one of STEPS; sizes are multiples of whole tiles.

    Args:
        x, y: of bfloat16 or float16.
        step: a place in STEPS.
        sms: of the GPU, for blocks that stay.

    Raises:
        ValueError: for another step.
    """
    if step not in range(len(STEPS)):
        fail("step", step, f"0 to {len(STEPS) - 1}")
    if step == 0:
        return _basic(x, y)
    if step <= 4:
        return specialised(x, y, tiled=step >= 2, together=step >= 3, stays=step >= 4, sms=sms)
    return shipped.matmul_kernel(
        x,
        y,
        shipped.TuningConfig(
            tile_m=BM,
            tile_n=BN,
            tile_k=BK,
            max_concurrent_steps=STAGES,
            collective=True,
            epilogue_tile_n=PIECE,
            grid_tile_width=BAND if step == 6 else 1,
        ),
    )


def _basic(x, y):
    (m, k), n = x.shape, y.shape[1]

    def kernel(x_gmem, y_gmem, o_gmem, sums_tmem, o_smem, done):
        i, j = jax.lax.axis_index("i"), jax.lax.axis_index("j")

        def step(place, x_smem, y_smem):
            again = place[0] > 0  # the first product sets the sums
            plgpu.tcgen05_mma(sums_tmem, x_smem, y_smem, done, accumulate=again)
            plgpu.barrier_wait(done)

        plgpu.emit_pipeline(
            step,
            grid=(k // BK,),
            in_specs=[
                plgpu.BlockSpec((BM, BK), lambda s: (i, s), transforms=SWIZZLED),
                plgpu.BlockSpec((BK, BN), lambda s: (s, j), transforms=SWIZZLED),
            ],
            max_concurrent_steps=STAGES,
        )(x_gmem, y_gmem)
        o_smem[...] = plgpu.async_load_tmem(sums_tmem).astype(o_smem.dtype)
        plgpu.commit_smem()
        rows, columns = pl.ds(i * BM, BM), pl.ds(j * BN, BN)
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, columns])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // BM, n // BN),
        grid_names=("i", "j"),
        scratch_types=[
            plgpu.TMEM((BM, BN), jnp.float32),
            tile(BM, BN, dtype=x.dtype),
            plgpu.Barrier(orders_tensor_core=True),
        ],
        kernel_name="basic",
    )(x, y)


def specialised(x, y, *, tiled, together, stays, sms):
    """Steps 1 to 4. A "pair" is one block, or the two that share a product."""
    (m, k), n = x.shape, y.shape[1]
    pair = 2 if together else 1
    bm, bn = pair * BM, pair * BN  # of a pair's tile of the result; a block has BM rows of it
    rows, columns, depth = m // bm, n // bn, k // BK
    slots = 2 if stays else 1  # tiles of sums
    axis = "pair" if together else None
    part = plgpu.CopyPartition.PARTITIONED

    def kernel(x_gmem, y_gmem, o_gmem, x_smem, y_smem, sums_tmem, o_smem, arrived, used, done):
        me = jax.lax.axis_index("pair")

        def one_tile(i, j, round):
            slot = jax.lax.rem(round, slots)
            sums = sums_tmem.at[:, pl.ds(slot * bn, bn)]

            @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
            def _():
                warp = jax.lax.axis_index("warp")

                @pl.when(warp == 0)
                def _():
                    @pl.loop(0, depth)
                    def copy(s):
                        stage, along = jax.lax.rem(s, STAGES), pl.ds(s * BK, BK)

                        @pl.when(jnp.logical_or(s >= STAGES, round > 0))
                        def _():
                            plgpu.barrier_wait(used.at[stage])

                        for at, (ref, place) in enumerate(
                            (
                                (x_smem, x_gmem.at[pl.ds(i * bm, bm), along]),
                                (y_smem, y_gmem.at[along, pl.ds(j * bn, bn)]),
                            )
                        ):
                            plgpu.copy_gmem_to_smem(
                                place,
                                ref.at[stage],
                                arrived.at[stage],
                                collective_axes=axis,
                                leader_tracked=part(at) if together else None,
                            )

                @pl.when(jnp.logical_and(warp == 1, me == 0))
                def _():
                    @pl.loop(0, depth)
                    def multiply(s):
                        stage = jax.lax.rem(s, STAGES)
                        plgpu.barrier_wait(arrived.at[stage])
                        plgpu.tcgen05_mma(
                            sums,
                            x_smem.at[stage],
                            y_smem.at[stage],
                            used.at[stage],
                            accumulate=s > 0,
                            collective_axis=axis,
                        )

                        @pl.when(s == depth - 1)
                        def _():
                            plgpu.tcgen05_commit_arrive(done.at[slot], collective_axis=axis)

            plgpu.barrier_wait(done.at[slot])
            mine = pl.ds((i * pair + me) * BM, BM)
            wide = PIECE if tiled else bn
            for piece in range(bn // wide):
                here = o_smem.at[piece % 2] if tiled else o_smem
                if tiled:
                    plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                loaded = plgpu.async_load_tmem(sums.at[:, pl.ds(piece * wide, wide)])
                here[...] = loaded.astype(x.dtype)
                plgpu.commit_smem()
                place = o_gmem.at[mine, pl.ds(j * bn + piece * wide, wide)]
                plgpu.copy_smem_to_gmem(here, place)
            plgpu.wait_load_tmem()
            if stays:
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        if stays:

            @plgpu.nd_loop((rows, columns), collective_axes=("block",))
            def each(loop):
                one_tile(*loop.index, loop.local_index)
        else:
            one_tile(jax.lax.axis_index("i"), jax.lax.axis_index("j"), jnp.int32(0))
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(sms // pair,) if stays else (rows, columns),
        grid_names=("block",) if stays else ("i", "j"),
        cluster=(pair,),
        cluster_names=("pair",),
        scratch_types=[
            tile(STAGES, BM, BK, dtype=x.dtype),
            tile(STAGES, BK, BN, dtype=x.dtype),
            plgpu.TMEM((BM, slots * bn), jnp.float32, collective=together),
            tile(2, BM, PIECE, transforms=NARROW, dtype=x.dtype)
            if tiled
            else tile(BM, bn, dtype=x.dtype),
            plgpu.Barrier(num_arrivals=2, num_barriers=STAGES),
            plgpu.Barrier(num_barriers=STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_barriers=slots, orders_tensor_core=True),
        ],
        kernel_name=STEPS[1 + tiled + together + stays].replace(" ", "_"),
    )(x, y)
