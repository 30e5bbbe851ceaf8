"""vit_attention, on the rows that a qkv Linear makes.

Our packed kernel reads them as they are. Every other attention wants the heads taken out of the
rows before, and put back after: two relayouts, which the packed kernel saves.
"""

from kernels.attention import jax_flash as flash
from kernels.attention import packed as whole
from kernels.attention import pallas as ours
from kernels.attention import sdpa as of_jax
from kernels.attention import xla as formula
from kernels.attention.layout import pack, unpack


def by(attention):
    """`attention` of heads [B, H, N, D], as a function of rows."""

    def vit_attention(qkv, num_heads, *, scale, **options):
        """[B, N, 3·H·D] → [B, N, H·D]."""
        return pack(attention(*unpack(qkv, num_heads), causal=False, scale=scale, **options))

    return vit_attention


xla = by(formula.attention)
sdpa = by(of_jax.attention)
unpacked = by(ours.attention)
jax_flash = by(flash.attention)


def packed(qkv, num_heads, *, scale, interpret=None):
    """[B, N, 3·H·D] → [B, N, H·D]; a sequence too long for VMEM is unpacked after all."""
    fitting = whole.vit_attention if whole.fits(qkv, num_heads) else unpacked
    return fitting(qkv, num_heads, scale=scale, interpret=interpret)
