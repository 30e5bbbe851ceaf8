"""XLA's own collectives, and products before or after them.

Inside jax.shard_map XLA does one after the other. A product that it partitions itself, of arrays
with shardings under jax.jit, it cuts into a ring of collective-permutes beside partial products.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from kernels.machines.compat.xla import whole
from kernels.machines.tpu.products import product

SLICE_BYTES = 4 << 20  # of scores at a time, so that XLA keeps them in VMEM
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)


def all_gather(x, axis_name):
    """[rows, columns] → [devices · rows, columns]."""
    return jax.lax.all_gather(x, axis_name, tiled=True)


def reduce_scatter(x, axis_name):
    """[devices · rows, columns] → [rows, columns], added up in float32."""
    total = jax.lax.psum_scatter(x.astype(jnp.float32), axis_name, tiled=True)
    return total.astype(x.dtype)


def all_to_all(x, sizes, axis_name):
    """[devices, rows, columns], int32 [devices] → [devices, rows, columns]."""
    sent = jnp.arange(x.shape[1]) < sizes[:, None]
    return lax.all_to_all(jnp.where(sent[..., None], x, 0), axis_name, 0, 0)


def all_gather_matmul(x, w, axis_name):
    """[rows, k], [k, columns] → [devices · rows, columns]."""
    return product(all_gather(x, axis_name), w).astype(x.dtype)


def matmul_reduce_scatter(x, w, axis_name):
    """[devices · rows, k], [k, columns] → [rows, columns], added up in float32."""
    total = jax.lax.psum_scatter(product(x, w), axis_name, tiled=True)
    return total.astype(x.dtype)


def _fits(parts, scores):
    """The largest divisor of `parts` that keeps so many scores of each in SLICE_BYTES, or 1."""
    most = max(1, SLICE_BYTES // (4 * scores))
    return next(size for size in range(min(parts, most), 0, -1) if parts % size == 0)


def _meet(q, k, v, state, diagonal, scale):
    """The online softmax of queries [heads, n, D] goes on with these keys [heads, n, D]."""
    heads, n, _ = q.shape
    group = _fits(heads, n * n)
    rows = _fits(n, group * n)
    dot = functools.partial(jnp.einsum, **whole(q.dtype))

    @jax.checkpoint  # or the loops would keep all scores for the way back
    def some(k, v, start, q, acc, m, l):
        s = scale * dot("hnd,hmd->hnm", q, k)
        if diagonal:
            s = jnp.where(jnp.arange(n) <= start + jnp.arange(rows)[:, None], s, HIDDEN)
        new = jnp.maximum(m, s.max(2, keepdims=True))
        p, shrink = jnp.exp(s - new), jnp.exp(m - new)
        acc = acc * shrink + dot("hnm,hmd->hnd", p.astype(v.dtype), v)
        return acc, new, l * shrink + p.sum(2, keepdims=True)

    def some_heads(arrays):
        k, v, *mine = arrays
        return lax.map(lambda parts: some(k, v, *parts), (jnp.arange(0, n, rows), *mine))

    groups = [x.reshape(-1, group, *x.shape[1:]) for x in (k, v)]
    mine = [x.reshape(-1, group, n // rows, rows, x.shape[2]).swapaxes(1, 2) for x in (q, *state)]
    after = lax.map(some_heads, (*groups, *mine))
    return [x.swapaxes(1, 2).reshape(old.shape) for x, old in zip(after, state, strict=True)]


@functools.partial(jax.jit, static_argnames=("axis_name", "causal", "scale"))
def ring_attention(q, k, v, axis_name, *, causal, scale):
    """[B, H, N, D] each → [B, H, N, D]; of a causal sequence, no product that nobody sees.

    Half of the heads go round the other way; what comes next is on its way beside the products.
    """
    size, me, whole = lax.axis_size(axis_name), lax.axis_index(axis_name), q.shape
    parts, heads = 1 + causal, q.shape[0] * q.shape[1]
    lanes = [(1, slice(0, -(-heads // 2))), (-1, slice(-(-heads // 2), heads))][:heads]
    q, k, v = (x.reshape(heads, parts, x.shape[2] // parts, x.shape[3]) for x in (q, k, v))
    piece = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)

    def send(held):
        after = []
        for (way, _), arrays in zip(lanes, held, strict=True):
            ring = [(device, (device + way) % size) for device in range(size)]
            after.append([lax.ppermute(x, axis_name, ring) for x in arrays])
        return after

    def meet(states, held, number, own=False):
        after = []
        for (way, lane), state, (k, v) in zip(lanes, states, held, strict=True):
            # Keys of a device behind: both of my pieces see its early one.
            behind = (me - way * number) % size < me
            pairs = [(jnp.where(behind, p, 1), jnp.where(behind, 0, p)) for p in (0, 1)]
            if own or not causal:
                pairs = [(0, 0), (1, 0), (1, 1)] if causal else [(0, 0)]
            for i, j in pairs:
                mine = [piece(x, i) for x in state]
                diagonal = own and causal and i == j
                new = _meet(piece(q[lane], i), piece(k, j), piece(v, j), mine, diagonal, scale)
                update = functools.partial(lax.dynamic_update_index_in_dim, index=i, axis=1)
                state = [update(x, part) for x, part in zip(state, new, strict=True)]
            after.append(state)
        return after

    row = (*q.shape[:3], 1)
    state = [jnp.zeros(q.shape, jnp.float32), jnp.full(row, HIDDEN), jnp.zeros(row)]
    states = [[x[lane] for x in state] for _, lane in lanes]
    own = [[x[lane] for x in (k, v)] for _, lane in lanes]
    states = meet(states, own, 0, own=True)
    held = send(own) if size > 1 else own

    def step(carried, number):
        states, held = carried
        return (meet(states, held, number), send(held)), None

    if size > 2:
        (states, held), _ = lax.scan(step, (states, held), jnp.arange(1, size - 1))
    if size > 1:
        states = meet(states, held, size - 1)
    o = jnp.concatenate([acc / l for acc, _, l in states])
    return o.reshape(whole).astype(q.dtype)
