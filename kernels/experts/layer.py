"""The layer in two forms: tokens sorted by expert, around grouped products, and the dense one."""

import functools

import jax
import jax.numpy as jnp

from kernels.experts.reference import route, weights
from kernels.grouped_matmul import grouped_matmul
from kernels.machines.compat.xla import whole


def _gated(a, b, dtype):
    """silu(a) b in float32, rounded to dtype."""
    return (jax.nn.silu(a.astype(jnp.float32)) * b.astype(jnp.float32)).astype(dtype)


@functools.partial(jax.jit, static_argnames=("top_k", "implementation", "interpret"))
def _sorted(x, router, gate, up, down, *, top_k, implementation, interpret=None):
    """Each token comes top_k times, among the rows of the experts that it goes to.

    rows = the tokens, once for each expert chosen, sorted by expert
    hidden = silu(rows gate[expert]) · (rows up[expert]), by grouped products
    z[token] = Σ weight · (hidden down[expert])[the token's rows]
    """
    tokens, number = x.shape[0], router.shape[1]
    multiply = functools.partial(grouped_matmul, implementation=implementation, interpret=interpret)
    logits, chosen = route(x, router, top_k)
    order = jnp.argsort(chosen.reshape(-1), stable=True)  # row → its token and which of its choices
    group_sizes = (chosen.reshape(-1, 1) == jnp.arange(number)).sum(0, dtype=jnp.int32)
    rows = x[order // top_k]
    hidden = _gated(multiply(rows, gate, group_sizes), multiply(rows, up, group_sizes), x.dtype)
    out = multiply(hidden, down, group_sizes)
    # Back by a gather: of a scatter's additions no one knows the order.
    back = out[jnp.argsort(order)].reshape(tokens, top_k, -1).astype(jnp.float32)
    return (weights(logits, chosen)[..., None] * back).sum(1).astype(x.dtype)


# Grouped products by this package's kernel, and by jax.lax.ragged_dot.
by_kernel, ragged = (functools.partial(_sorted, implementation=name) for name in ("pallas", "xla"))


@functools.partial(jax.jit, static_argnames="top_k")
def dense(x, router, gate, up, down, *, top_k):
    """Every expert for every token; the weights of those that were not chosen are zero."""
    multiply = functools.partial(jnp.einsum, **whole(x.dtype))
    logits, chosen = route(x, router, top_k)
    places = jax.nn.one_hot(chosen, router.shape[1])
    share = jnp.einsum("tke,tk->te", places, weights(logits, chosen), precision="highest")
    a, b = (multiply("td,edf->etf", x, matrix).astype(x.dtype) for matrix in (gate, up))
    out = multiply("etf,efd->etd", _gated(a, b, x.dtype), down).astype(x.dtype)
    z = jnp.einsum("te,etd->td", share, out.astype(jnp.float32), precision="highest")
    return z.astype(x.dtype)
