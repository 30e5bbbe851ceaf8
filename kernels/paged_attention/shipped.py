"""JAX's own kernel for attention over pages, under this package's contract.

It fetches whole blocks of pages, for a head at a time, whatever a sequence's length, so what the
table holds beyond a sequence's last page is made a page that there is.
"""

import contextlib

import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention as jax_kernel

from kernels.machines.pallas import interprets

MOST_TOKENS = 2048  # of a block; the best by estimate


def jax_paged(q, k_pages, v_pages, lengths, page_table, *, scale, interpret=None):
    """[S, H, D], [Hkv, P, page, D] twice, [S], [S, pages] → [S, H, D]."""
    interpret = interprets(interpret, "tpu")
    on = pltpu.InterpretParams() if interpret is True else interpret
    width, page = page_table.shape[1], k_pages.shape[2]
    most = max(min(width, MOST_TOKENS // page), 1)
    pages = next(n for n in range(most, 0, -1) if width % n == 0)
    page_table = jnp.clip(page_table, 0, k_pages.shape[1] - 1)
    with pltpu.force_tpu_interpret_mode(on) if on else contextlib.nullcontext():
        o = jax_kernel(
            (scale * q).astype(q.dtype),
            *map(jnp.asarray, (k_pages, v_pages, lengths, page_table)),
            pages_per_compute_block=pages,
        )
    return jnp.where(jnp.asarray(lengths)[:, None, None] > 0, o, 0)
