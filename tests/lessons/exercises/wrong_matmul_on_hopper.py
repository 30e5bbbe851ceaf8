"""Wrong answers to the exercises of "Matmul on Hopper", and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
WARPGROUP = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup)


def turns(x, *, interpret):
    def kernel(x_gmem, o_gmem, x_smem, arrived):
        rows = pl.ds(jax.lax.axis_index("i") * 64, 64)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, arrived)
        x_smem[...] = 2 * x_smem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, o_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 64,),
        grid_names=("i",),
        scratch_types=[plgpu.SMEM((64, 64), x.dtype), plgpu.Barrier()],
        interpret=interpret,
    )(x)


def handover(x, *, interpret):
    def kernel(x_gmem, o_gmem, x_smem):
        @pl.when(jax.lax.axis_index("wg") == 0)
        def _():
            x_smem[...] = 3 * x_gmem[...]

        @pl.when(jax.lax.axis_index("wg") == 1)
        def _():
            o_gmem[...] = x_gmem[...] + 1

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        num_threads=2,
        thread_name="wg",
        scratch_types=[plgpu.SMEM(x.shape, x.dtype)],
        interpret=interpret,
    )(x)


def product(x, y, *, interpret, stages=4):
    (m, k), n = x.shape, y.shape[1]

    def kernel(x_gmem, y_gmem, o_gmem, o_smem):
        i, j = jax.lax.axis_index("i"), jax.lax.axis_index("j")

        def sums(acc_ref):
            def step(_, x_smem, y_smem):
                plgpu.wgmma(acc_ref, x_smem, y_smem)
                plgpu.wgmma_wait(0)

            blocks = [
                plgpu.BlockSpec((128, 64), lambda s: (i, s), transforms=SWIZZLED),
                plgpu.BlockSpec((64, 128), lambda s: (s, j), transforms=SWIZZLED),
            ]
            plgpu.emit_pipeline(
                step, grid=(k // 64,), in_specs=blocks, max_concurrent_steps=stages
            )(x_gmem, y_gmem)
            return acc_ref[...]

        o_smem[...] = pl.run_scoped(sums, plgpu.ACC((128, 128), jnp.float32)).astype(x.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[pl.ds(i * 128, 128), pl.ds(j * 128, 128)])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128),
        grid_names=("i", "j"),
        scratch_types=[plgpu.SMEM((128, 128), x.dtype, transforms=SWIZZLED)],
        compiler_params=WARPGROUP,
        interpret=interpret,
    )(x, y)


def one_stage(x, y, *, interpret):
    return product(x, y, interpret=interpret, stages=1)


WRONG = (
    ("hopper_turns", turns, "simulate", "race: "),
    ("hopper_handover", handover, "interpret", "the reference"),
    ("hopper_product", product, "compile", "1 block an SM because of shared memory, 2 wanted"),
    ("hopper_lean", product, "speed", "cycles a product in the loop; the bar is 24.0"),
    ("hopper_lean", one_stage, "compile", "4 copies by TMA in its code; two stages have 6"),
)
