"""In plain JAX: with all logits in memory, and some columns of the vocabulary at a time."""

import jax
import jax.numpy as jnp

from kernels.machines.tpu.products import dot

COLUMNS = 4096  # of the vocabulary at a time


@jax.jit
def linear_cross_entropy(x, w, labels):
    """[T, D], [D, V], int32 [T] → float32 [T]."""
    logits = dot(x, w)
    own = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    # Not JAX's logsumexp, which makes an infinity of a row with one: its softmax is NaN.
    largest = jax.lax.stop_gradient(logits.max(1))
    return largest + jnp.log(jnp.exp(logits - largest[:, None]).sum(1)) - own


def _over_chunks(step, carry, v):
    """step(carry, first, columns) over the vocabulary: whole chunks in a loop, then the rest."""
    whole = v // COLUMNS
    if whole:
        carry, _ = jax.lax.scan(
            lambda carry, chunk: (step(carry, chunk * COLUMNS, COLUMNS), None),
            carry,
            jnp.arange(whole),
        )
    return step(carry, whole * COLUMNS, v % COLUMNS) if v % COLUMNS else carry


def _own(labels, first, columns):
    return labels[:, None] - first == jnp.arange(columns)


def _forward(x, w, labels):
    def step(carry, first, columns):
        largest, total, own = carry
        s = dot(x, jax.lax.dynamic_slice_in_dim(w, first, columns, 1))
        before, largest = largest, jnp.maximum(largest, s.max(1))
        total = total * jnp.exp(before - largest) + jnp.exp(s - largest[:, None]).sum(1)
        return largest, total, own + jnp.where(_own(labels, first, columns), s, 0).sum(1)

    start = jnp.full(len(x), -jnp.inf), jnp.zeros(len(x)), jnp.zeros(len(x))
    largest, total, own = _over_chunks(step, start, w.shape[1])
    lse = largest + jnp.log(total)
    return lse - own, (x, w, labels, lse)


def _backward(saved, do):
    x, w, labels, lse = saved

    def step(carry, first, columns):
        dx, dw = carry
        part = jax.lax.dynamic_slice_in_dim(w, first, columns, 1)
        ds = jnp.exp(dot(x, part) - lse[:, None]) - _own(labels, first, columns)
        ds = (do[:, None] * ds).astype(x.dtype)
        of_part = dot(x, ds, (0, 0)).astype(w.dtype)
        return dx + dot(ds, part, (1, 1)), jax.lax.dynamic_update_slice_in_dim(
            dw, of_part, first, 1
        )

    start = jnp.zeros(x.shape, jnp.float32), jnp.zeros_like(w)
    dx, dw = _over_chunks(step, start, w.shape[1])
    return dx.astype(x.dtype), dw, None


@jax.custom_vjp
def _chunked(x, w, labels):
    return _forward(x, w, labels)[0]


_chunked.defvjp(_forward, _backward)


@jax.jit
def chunked(x, w, labels):
    """The same, the log-sum-exp online over chunks; backward makes the logits of each again."""
    return _chunked(x, w, labels)
