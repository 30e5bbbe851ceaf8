"""Attention over pages in plain JAX: all pages of a sequence are gathered, then it is attention."""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames="scale")
def paged_attention(q, k_pages, v_pages, lengths, page_table, *, scale):
    """[S, H, D], [Hkv, P, page, D] twice, [S], [S, pages] → [S, H, D]."""
    (sequences, heads, d), hkv = q.shape, len(k_pages)
    dot = functools.partial(
        jnp.einsum,
        precision=jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    # What a table holds beyond its sequence's last page may be anything.
    k, v = (
        x.at[:, page_table].get(mode="clip").reshape(hkv, sequences, -1, d)
        for x in (k_pages, v_pages)
    )
    seen = jnp.arange(k.shape[2]) < lengths[:, None]  # [S, tokens]
    v = jnp.where(seen[:, :, None], v, 0)  # a probability of 0 times NaN would be NaN
    s = scale * dot("shgd,hstd->shgt", q.reshape(sequences, hkv, -1, d), k)
    s = jnp.where(seen[:, None, None], s, jnp.finfo(jnp.float32).min)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    o = dot("shgt,hstd->shgd", p, v).reshape(sequences, heads, d)
    return jnp.where(lengths[:, None, None] > 0, o, 0).astype(q.dtype)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def update_pages(k_pages, v_pages, k, v, lengths, page_table):
    """See kernels.paged_attention.update_pages."""
    page = k_pages.shape[2]
    # The place after the last token; a sequence whose table is full is left alone.
    number = jnp.take_along_axis(page_table, lengths[:, None] // page, axis=1, mode="fill")[:, 0]
    number = jnp.where(lengths < page_table.shape[1] * page, number, k_pages.shape[1])

    def write(pages, new):
        new = new.swapaxes(0, 1).astype(pages.dtype)  # [Hkv, S, D]
        return pages.at[:, number, lengths % page].set(new, mode="drop")

    return write(k_pages, k), write(v_pages, v)
