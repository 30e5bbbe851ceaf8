"""Attention over pages in plain JAX: a sequence's pages are gathered, then it is attention."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import whole
from kernels.paged_attention import tiles


def _attend(q, first, seen, table, k_pages, v_pages, scale):
    """A tile of kernels.paged_attention.tiles: [rows, H, D], [], [], [pages], [Hkv, P, page, D]
    twice → [rows, H, D]."""
    (rows, h, d), hkv = q.shape, len(k_pages)
    dot = functools.partial(jnp.einsum, **whole(q.dtype))
    # What a table holds beyond its sequence's last page may be anything.
    k, v = (x.at[:, table].get(mode="clip").reshape(hkv, -1, d) for x in (k_pages, v_pages))
    token = jnp.arange(k.shape[1])
    v = jnp.where((token < seen)[:, None], v, 0)  # a probability of 0 times NaN would be NaN
    queries = q.reshape(rows, hkv, -1, d).transpose(1, 2, 0, 3).reshape(hkv, -1, d)
    s = scale * dot("hgd,htd->hgt", queries, k)
    row = jnp.tile(jnp.arange(rows), h // hkv)[:, None]
    is_seen = token < jnp.minimum(first + row + 1, seen)
    s = jnp.where(is_seen, s, jnp.finfo(jnp.float32).min)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    o = dot("hgt,htd->hgd", p, v).reshape(hkv, -1, rows, d).transpose(2, 0, 1, 3).reshape(q.shape)
    return jnp.where(seen > 0, o, 0).astype(q.dtype)


def _attends(k_pages, v_pages, page_table, scale, at_once=False):
    """Of many tiles, at once or one after another, so that XLA gathers their pages into VMEM."""

    def attend(q, sequence, first, seen):
        one = lambda q, sequence, first, seen: _attend(
            q, first, seen, page_table[sequence], k_pages, v_pages, scale
        )
        if at_once:
            return jax.vmap(one)(q, sequence, first, seen)
        return jax.lax.map(lambda tile: one(*tile), (q, sequence, first, seen))

    return attend


@functools.partial(jax.jit, static_argnames="scale")
def paged_attention(q, k_pages, v_pages, lengths, page_table, *, scale):
    """[S, H, D], [Hkv, P, page, D] twice, [S], [S, pages] → [S, H, D]."""
    return tiles.decode(_attends(k_pages, v_pages, page_table, scale, True), q, lengths)


@functools.partial(jax.jit, static_argnames="scale")
def in_turn(q, k_pages, v_pages, lengths, page_table, *, scale):
    """The same, a sequence after another."""
    return tiles.decode(_attends(k_pages, v_pages, page_table, scale), q, lengths)


@functools.partial(jax.jit, static_argnames="scale")
def ragged_paged_attention(q, k_pages, v_pages, lengths, page_table, query_starts, *, scale):
    """[T, H, D], [Hkv, P, page, D] twice, [S], [S, pages], [S + 1] → [T, H, D]."""
    attend = _attends(k_pages, v_pages, page_table, scale)
    return tiles.ragged(attend, q, lengths, query_starts, q.shape[1] // len(k_pages))


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
