"""The grouped matmul that JAX ships, megablox, under this package's contract.

It multiplies whole blocks of rows, and is called with blocks that suit it better than its own
default of 128. float32 it multiplies at the default precision, one pass of bfloat16, so it is
offered bfloat16 alone.
"""

import contextlib
import math

import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.megablox import gmm

from kernels.machines.checks import fail
from kernels.machines.pallas import interprets

LANES = 128
VMEM = 14 << 20  # bytes: it asks for no more than the compiler grants unasked, 16 MiB on a v5e


def _tiling(m, k, n):
    """As large as VMEM allows, k before n; the gradients, whose k and n change places, share it."""
    rows = math.gcd(m, 256)
    k, n = min(k, 2048), min(n, 2048)
    while 4 * (rows * k + k * n + rows * n) + 4 * max(rows, k) * n > VMEM:
        k, n = (k, n // 2) if n >= k else (k // 2, n)
        k, n = (max(size // LANES, 1) * LANES for size in (k, n))
    return rows, k, n


def megablox(x, w, group_sizes, *, interpret=None):
    """[M, K], [G, K, N], int32 [G] → [M, N].

    Raises:
        ValueError: for an M, K or N that 128 does not divide, and for float32.
    """
    for argument, size in zip("MKN", (*x.shape, w.shape[2])):
        if size % LANES:
            fail(argument, size, f"a multiple of {LANES}, for megablox")
    if x.dtype != jnp.bfloat16:
        fail("x.dtype", x.dtype, "bfloat16, for megablox")
    machine = contextlib.nullcontext()
    interpret = interprets(interpret, "tpu")
    if not isinstance(interpret, bool):  # True it takes itself; else a TPU is simulated around it
        machine = pltpu.force_tpu_interpret_mode(interpret)
    x, w, group_sizes = map(jnp.asarray, (x, w, group_sizes))
    # Rows beyond the groups it leaves as they are, unless they are a group that w has no matrix of.
    sizes = jnp.append(group_sizes, x.shape[0] - group_sizes.sum(dtype=jnp.int32))
    none = (None, None, False)  # no group_offset, no existing_out, nothing transposed
    with machine:
        return gmm(x, w, sizes, x.dtype, _tiling(*x.shape, w.shape[2]), *none, interpret is True)
