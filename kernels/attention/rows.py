"""vit_attention by way of attention: heads are taken out of the rows before, and put back after.

These are the two relayouts that the packed kernel saves, which reads the rows as they are.
"""

import functools

import jax

from kernels.attention import pallas as ours
from kernels.attention import shipped
from kernels.attention import xla as formula
from kernels.attention.layout import by_rows

xla = by_rows(formula.attention)
sdpa = by_rows(formula.sdpa)


@functools.partial(jax.jit, static_argnames=("num_heads", "scale"))
def xla_sliced(qkv, num_heads, *, scale):
    """The formula, some images at a time: XLA keeps their scores and their heads in VMEM."""
    one = jax.checkpoint(lambda rows: xla(rows[None], num_heads, scale=scale)[0])
    size = formula.slice_of(len(qkv), num_heads * qkv.shape[1] ** 2)
    # Over slices of one image each, XLA would take all heads apart before the loop.
    return jax.lax.map(one, qkv, batch_size=size if size > 1 else None)


unpacked = by_rows(ours.attention)
jax_flash = by_rows(shipped.jax_flash)
jax_splash = by_rows(shipped.jax_splash)
