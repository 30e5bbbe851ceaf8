"""vit_attention by way of attention: heads are taken out of the rows before, and put back after.

These are the two relayouts that the packed kernel saves, which reads the rows as they are.
"""

import functools

import jax

from kernels.attention import pallas as ours
from kernels.attention import shipped
from kernels.attention import xla as formula
from kernels.attention.layout import pack, unpack


def by(attention):
    """`attention` of heads [B, H, N, D], as a function of rows."""

    def vit_attention(qkv, num_heads, *, scale, **options):
        """[B, N, 3·H·D] → [B, N, H·D]."""
        return pack(attention(*unpack(qkv, num_heads), causal=False, scale=scale, **options))

    return vit_attention


xla = by(formula.attention)
sdpa = by(formula.sdpa)


@functools.partial(jax.jit, static_argnames=("num_heads", "scale"))
def xla_sliced(qkv, num_heads, *, scale):
    """The formula, some images at a time: XLA keeps their scores and their heads in VMEM."""
    batch, tokens, _ = qkv.shape
    size = formula.slice_of(batch, num_heads * tokens**2)
    some = jax.checkpoint(functools.partial(xla, num_heads=num_heads, scale=scale))
    out = jax.lax.map(some, qkv.reshape(-1, size, *qkv.shape[1:]))
    return out.reshape(batch, tokens, -1)


unpacked = by(ours.attention)
jax_flash = by(shipped.jax_flash)
jax_splash = by(shipped.jax_splash)
