"""Between a row of the qkv Linear and separate heads: of NumPy and JAX arrays, and of tensors."""


def unpack(qkv, num_heads):
    """An array [B, N, 3·H·D] → q, k and v, each [B, H, N, D]."""
    batch, tokens, _ = qkv.shape
    heads = qkv.reshape(batch, tokens, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)
    return heads[0], heads[1], heads[2]


def pack(*parts):
    """P arrays [B, H, N, D] → [B, N, P·H·D]."""
    batch, _, tokens, _ = parts[0].shape
    rows = parts[0].__array_namespace__().stack(parts).transpose(1, 3, 0, 2, 4)
    return rows.reshape(batch, tokens, -1)


def by_rows(attention):
    """`attention` of heads [B, H, N, D], as a function of rows."""

    def vit_attention(qkv, num_heads, **options):
        """[B, N, 3·H·D] → [B, N, H·D]."""
        return pack(attention(*unpack(qkv, num_heads), causal=False, **options))

    return vit_attention


def tensor_heads(qkv, num_heads):
    """q, k and v, [B, H, N, D] each, of [B, N, 3·H·D]: views, which a kernel needs copied."""
    batch, length, _ = qkv.shape
    return qkv.reshape(batch, length, 3, num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def tensor_rows(o):
    """A tensor [B, H, N, D] → [B, N, H·D]."""
    return o.transpose(1, 2).flatten(2)
