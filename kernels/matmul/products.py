"""What every form of the kernel does with two blocks beside multiplying them."""

import jax.numpy as jnp

from kernels.machines.tpu.products import accumulator, mask


def result_dtype(dtype):
    """The dtype of the result: 8 bits would not hold a sum; other dtypes are kept."""
    return dtype if jnp.dtype(dtype).itemsize > 1 else accumulator(dtype)


def mask_tails(x, y, step, k, contract=(1, 0)):
    """The two blocks of a step, counted along k, zero beyond k, where the last block is garbage."""
    bk = x.shape[contract[0]]
    if k % bk == 0:
        return x, y
    return mask(x, contract[0], k - step * bk), mask(y, contract[1], k - step * bk)
