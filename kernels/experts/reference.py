"""The oracle, in float64 but for one thing: which experts a token goes to.

That is a jump, not a number that is rounded: where two logits nearly tie, float32 and float64 may
choose differently, and both are right. So the choice is taken in float32, as every implementation
takes it, and all else, the weights of the chosen included, in the precision of the arguments.
"""

import jax
import jax.numpy as jnp

from kernels.experts.routing import route, weights


def _share(x, router, top_k):
    """[T, E]: the weight with which each token goes to each expert, zero where it does not."""
    _, chosen = route(jnp.asarray(x), jnp.asarray(router), top_k)
    places = jax.nn.one_hot(chosen, router.shape[1], dtype=x.dtype)
    return jnp.einsum("tke,tk->te", places, weights(x @ router, chosen))


def experts(x, router, gate, up, down, *, top_k):
    """[T, D], [D, E], [E, D, F], [E, D, F], [E, F, D] → [T, D], every expert for every token."""
    share = _share(x, router, top_k)
    z = jnp.zeros(x.shape, x.dtype)
    for expert in range(router.shape[1]):
        hidden = jax.nn.silu(x @ gate[expert]) * (x @ up[expert])
        z = z + share[:, expert, None] * (hidden @ down[expert])
    return z


def _sizes(share, x, router, gate, up, down):
    """Of arguments ≥ 0: what errors of one unit come to, on the way to each element.

    |silu'| ≤ 1.1 and |silu''| ≤ 1/2, so an error of a in silu(a) b comes to at most 1.1 |b|, and in
    its derivative to half of that; an error of a logit changes a weight by its share.
    """
    logit = 1 + (share > 0) * (x @ router)
    z = jnp.zeros_like(x)
    for expert in range(router.shape[1]):
        a, b = x @ gate[expert], x @ up[expert]
        size = share[:, expert] * logit[:, expert]
        z = z + size[:, None] * (1.1 * (a + a**2 / 2) * b) @ down[expert]
    return z


def experts_magnitude(x, router, gate, up, down, *, top_k):
    """The sums of the absolute values behind each element, two products deep."""
    arguments = (jnp.abs(a) for a in (x, router, gate, up, down))
    return _sizes(_share(x, router, top_k), *arguments)


def experts_gradient_magnitude(x, router, gate, up, down, dz, *, top_k):
    """The same for each gradient: what the cotangents' sizes come to on the way back."""
    share = _share(x, router, top_k)
    arguments = [jnp.abs(a) for a in (x, router, gate, up, down)]
    return jax.vjp(lambda *args: _sizes(share, *args), *arguments)[1](jnp.abs(dz))
