"""Attention over pages in plain JAX: a sequence's pages are gathered, then it is attention."""

import functools

import jax
import jax.numpy as jnp


def _attend(q, length, table, k_pages, v_pages, scale):
    """One sequence: [H, D], [], [pages], [Hkv, P, page, D] twice → [H, D]."""
    (heads, d), hkv = q.shape, len(k_pages)
    dot = functools.partial(
        jnp.einsum,
        precision=jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    # What a table holds beyond its sequence's last page may be anything.
    k, v = (x.at[:, table].get(mode="clip").reshape(hkv, -1, d) for x in (k_pages, v_pages))
    seen = jnp.arange(k.shape[1]) < length
    v = jnp.where(seen[:, None], v, 0)  # a probability of 0 times NaN would be NaN
    s = scale * dot("hgd,htd->hgt", q.reshape(hkv, -1, d), k)
    s = jnp.where(seen, s, jnp.finfo(jnp.float32).min)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    o = dot("hgt,htd->hgd", p, v).reshape(heads, d)
    return jnp.where(length > 0, o, 0).astype(q.dtype)


@functools.partial(jax.jit, static_argnames="scale")
def paged_attention(q, k_pages, v_pages, lengths, page_table, *, scale):
    """[S, H, D], [Hkv, P, page, D] twice, [S], [S, pages] → [S, H, D]."""
    attend = jax.vmap(_attend, in_axes=(0, 0, 0, None, None, None))
    return attend(q, lengths, page_table, k_pages, v_pages, scale)


@functools.partial(jax.jit, static_argnames="scale")
def in_turn(q, k_pages, v_pages, lengths, page_table, *, scale):
    """The same, a sequence after another, so that XLA gathers its pages into VMEM."""
    attend = lambda sequence: _attend(*sequence, k_pages, v_pages, scale)
    return jax.lax.map(attend, (q, lengths, page_table))


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
