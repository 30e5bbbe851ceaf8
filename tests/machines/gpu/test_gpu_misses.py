"""What is wrong on an H100, and the simulation of a block does not find, or only since JAX 0.12."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.machines.gpu.simulator import SimulationError, simulate

X = np.arange(128, dtype=np.float32)


def launched(kernel, x, **options):
    return plgpu.kernel(kernel, out_type=jax.ShapeDtypeStruct(x.shape, np.float32), **options)(x)


def stored(x, *, commit=True, wait=True, overwrite=False):
    """x + 1, which TMA carries from shared memory to global memory."""

    def kernel(x_gmem, o_gmem, x_smem, arrived):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, arrived)
        plgpu.barrier_wait(arrived)
        x_smem[...] = x_smem[...] + 1
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, o_gmem)
        if overwrite:
            x_smem[...] = jnp.zeros_like(x_smem)
        if wait:
            plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier()]
    return launched(kernel, x, scratch_types=scratch)


def one_output(x):
    """x + the number of the block that comes last, if blocks came one after another."""

    def kernel(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + jax.lax.axis_index("block")

    return launched(kernel, x, grid=(2,), grid_names=("block",))


def unawaited(x):
    """[64, 64] → [64, 64] float32: x x, whose operand is overwritten while it is multiplied."""

    def kernel(x_gmem, o_gmem, x_smem, arrived):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, arrived)
        plgpu.barrier_wait(arrived)

        def multiply(acc):
            plgpu.wgmma(acc, x_smem, x_smem)
            x_smem[...] = jnp.zeros_like(x_smem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64), jnp.float32))

    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    scratch = [plgpu.SMEM((64, 64), jnp.float16, transforms=transforms), plgpu.Barrier()]
    return launched(kernel, x, scratch_types=scratch)


# JAX 0.12 finds all of these.
MISSED = {
    "stores to shared memory are not committed before TMA reads them": (stored, {"commit": False}),
    "nobody waits for TMA to have stored": (stored, {"wait": False}),
    "shared memory is overwritten while TMA reads it": (stored, {"overwrite": True}),
    "two blocks write one output": (one_output, {}),
}


@pytest.mark.parametrize("what", MISSED)
def test_the_simulation_misses(what):
    """When one of these fails, JAX's simulation has learned something: tell it where it is told."""
    function, options = MISSED[what]
    if jax.__version_info__ >= (0, 12):
        try:
            assert simulate(function, X, **options).races
        except SimulationError as refused:
            assert "operations completed before kernel finished" in str(refused)
    else:
        run = simulate(function, X, **options)
        assert not run.races and np.array_equal(run.result, X + 1)


def test_the_simulation_misses_a_product_that_nobody_waits_for():
    found = simulate(unawaited, np.eye(64, dtype=np.float16))
    assert not found.races and np.array_equal(found.result, np.eye(64, dtype=np.float32))
