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
    batch, tokens, _ = qkv.shape
    size = formula.slice_of(batch, num_heads * tokens**2)
    some = jax.checkpoint(functools.partial(xla, num_heads=num_heads, scale=scale))
    out = jax.lax.map(some, qkv.reshape(-1, size, *qkv.shape[1:]))
    return out.reshape(batch, tokens, -1)


unpacked = by_rows(ours.attention)
jax_flash = by_rows(shipped.jax_flash)
jax_splash = by_rows(shipped.jax_splash)
