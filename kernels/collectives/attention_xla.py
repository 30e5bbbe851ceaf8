"""Ring attention in plain JAX: jax.lax.ppermute, and the formula of some queries at a time."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

SLICE_BYTES = 4 << 20  # of scores at a time, so that XLA keeps them in VMEM
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)


def _fits(parts, scores):
    """The largest divisor of `parts` that keeps so many scores of each in SLICE_BYTES, or 1."""
    most = max(1, SLICE_BYTES // (4 * scores))
    return next(size for size in range(min(parts, most), 0, -1) if parts % size == 0)


def _meet(q, k, v, state, diagonal, scale):
    """The online softmax of queries [heads, n, D] goes on with these keys [heads, n, D]."""
    heads, n, _ = q.shape
    group = _fits(heads, n * n)
    rows = _fits(n, group * n)
    dot = functools.partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )

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
    """[B, H, N, D] each → [B, H, N, D]; of a causal sequence, no product that nobody sees."""
    size, me, whole = lax.axis_size(axis_name), lax.axis_index(axis_name), q.shape
    parts = 1 + causal
    q, k, v = (x.reshape(-1, parts, x.shape[2] // parts, x.shape[3]) for x in (q, k, v))
    piece = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)

    def meet(state, k, v, pairs, own=False):
        for i, j in pairs:
            mine = [piece(x, i) for x in state]
            diagonal = own and causal and i == j
            after = _meet(piece(q, i), piece(k, j), piece(v, j), mine, diagonal, scale)
            update = functools.partial(lax.dynamic_update_index_in_dim, index=i, axis=1)
            state = [update(x, new) for x, new in zip(state, after, strict=True)]
        return state

    def step(carried, number):
        state, *held = carried
        right = [(device, (device + 1) % size) for device in range(size)]
        k, v = (lax.ppermute(x, axis_name, right) for x in held)
        behind = me >= number  # keys of a device behind: both of my pieces see its early one
        pairs = [(jnp.where(behind, p, 1), jnp.where(behind, 0, p)) for p in range(parts)]
        return (meet(state, k, v, pairs if causal else [(0, 0)]), k, v), None

    row = (*q.shape[:3], 1)
    state = [jnp.zeros(q.shape, jnp.float32), jnp.full(row, HIDDEN), jnp.zeros(row)]
    state = meet(state, k, v, [(0, 0), (1, 0), (1, 1)] if causal else [(0, 0)], own=True)
    ((acc, _, l), *_), _ = lax.scan(step, (state, k, v), jnp.arange(1, size))
    return (acc / l).reshape(whole).astype(q.dtype)
