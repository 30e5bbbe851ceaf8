"""Ring attention in plain JAX: jax.lax.ppermute, and the formula of some queries at a time."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

SLICE_BYTES = 4 << 20  # of scores at a time, so that XLA keeps them in VMEM
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)


def _meet(state, q, k, v, diagonal, scale):
    """The online softmax of queries [heads, n, D] goes on with these keys [heads, n, D]."""
    heads, n, d = q.shape
    dot = functools.partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    rows = next(r for r in range(n, 0, -1) if n % r == 0 and (4 * r * n <= SLICE_BYTES or r == 1))

    @jax.checkpoint  # or the loop would keep all scores for the way back
    def some(parts):
        place, q, acc, m, l = parts
        head, start = place // (n // rows), place % (n // rows) * rows
        s = scale * dot("nd,md->nm", q, k[head])
        if diagonal:
            s = jnp.where(jnp.arange(n) <= start + jnp.arange(rows)[:, None], s, HIDDEN)
        new = jnp.maximum(m, s.max(1, keepdims=True))
        p, shrink = jnp.exp(s - new), jnp.exp(m - new)
        acc = acc * shrink + dot("nm,md->nd", p.astype(v.dtype), v[head])
        return acc, new, l * shrink + p.sum(1, keepdims=True)

    sliced = [x.reshape(-1, rows, x.shape[2]) for x in (q, *state)]
    together = max(1, SLICE_BYTES // (4 * rows * n))
    after = lax.map(some, (jnp.arange(len(sliced[0])), *sliced), batch_size=together)
    return [x.reshape(before.shape) for x, before in zip(after, state, strict=True)]


@functools.partial(jax.jit, static_argnames=("axis_name", "causal", "scale"))
def ring_attention(q, k, v, axis_name, *, causal, scale):
    """[B, H, N, D] each → [B, H, N, D]; of a causal sequence, no product that nobody sees."""
    size, me, whole = lax.axis_size(axis_name), lax.axis_index(axis_name), q.shape
    q, k, v = (x.reshape(-1, 1 + causal, x.shape[2] // (1 + causal), x.shape[3]) for x in (q, k, v))
    shape = (*q.shape[:3], 1)
    state = [jnp.zeros(q.shape, jnp.float32), jnp.full(shape, HIDDEN), jnp.zeros(shape)]
    piece = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)
    for step in range(size):
        behind = me >= step  # of keys of a device behind, the early piece is seen by both of mine
        if not causal:
            pairs = [(0, 0)]
        elif step == 0:
            pairs = [(0, 0), (1, 0), (1, 1)]
        else:
            pairs = [(jnp.where(behind, p, 1), jnp.where(behind, 0, p)) for p in (0, 1)]
        for i, j in pairs:
            mine, diagonal = [piece(x, i) for x in state], causal and step == 0 and i == j
            parts = _meet(mine, piece(q, i), piece(k, j), piece(v, j), diagonal, scale)
            state = [
                lax.dynamic_update_index_in_dim(x, part, i, 1)
                for x, part in zip(state, parts, strict=True)
            ]
        if step < size - 1:
            right = [(device, (device + 1) % size) for device in range(size)]
            k, v = (lax.ppermute(x, axis_name, right) for x in (k, v))
    acc, _, l = state
    return (acc / l).astype(q.dtype).reshape(whole)
