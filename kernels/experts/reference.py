"""The oracle, in float64 but for one thing: which experts a token goes to.

That is a jump, not a number that is rounded: where two logits nearly tie, float32 and float64 may
choose differently, and both are right. So the choice is taken in float32, as every implementation
takes it, and all else, the weights of the chosen included, in the precision of the arguments.
"""

import jax
import jax.numpy as jnp


def route(x, router, top_k):
    """The logits [T, E] in float32, and the top_k experts of each token, int32 [T, top_k].

    Where two logits are equal, the expert of the lower number comes first.
    """
    wide = (a.astype(jnp.float32) for a in (x, router))
    logits = jnp.matmul(*wide, precision=jax.lax.Precision.HIGHEST)
    return logits, jax.lax.top_k(logits, top_k)[1]


def weights(logits, chosen):
    """Softmax over the chosen logits: that over all of them, made to add up to 1 again."""
    return jax.nn.softmax(jnp.take_along_axis(logits, chosen, axis=1), axis=1)


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


def _sizes(x, router, gate, up, down, top_k):
    """What an error of one unit in each sum comes to, to the first order.

    Returns:
        share [T, E] and with its own error; and of each expert |silu(a)|, |b|, A and B [T, F],
        where A and B are the sums behind a = x gate and b = x up; and the size of the hidden row,
        its error included: |silu'| is at most 1.1.
    """
    share = _share(x, router, top_k)
    logit = jnp.abs(x) @ jnp.abs(router)  # an error of a logit changes every weight by its share
    weight = share * (2 + logit + (share * logit).sum(-1, keepdims=True))
    hidden = []
    for expert in range(router.shape[1]):
        a, b = x @ gate[expert], jnp.abs(x @ up[expert])
        sums = (jnp.abs(x) @ jnp.abs(w[expert]) for w in (gate, up))
        silu = jnp.abs(jax.nn.silu(a))
        a_sum, b_sum = sums
        hidden.append((silu, b, a_sum, b_sum, silu * (b + b_sum) + 1.1 * a_sum * b))
    return share, weight, hidden


def experts_magnitude(x, router, gate, up, down, *, top_k):
    """The sums of the absolute values behind each element, two products deep."""
    share, weight, hidden = _sizes(x, router, gate, up, down, top_k)
    z = jnp.zeros_like(x)
    for expert, (silu, b, *_, size) in enumerate(hidden):
        places = share[:, expert, None] * size + weight[:, expert, None] * silu * b
        z = z + places @ jnp.abs(down[expert])
    return z


def experts_gradient_magnitude(x, router, gate, up, down, dz, *, top_k):
    """The same for each gradient; of silu, |silu''| is at most 1/2."""
    share, weight, hidden = _sizes(x, router, gate, up, down, top_k)
    x, router, gate, up, down, dz = map(jnp.abs, (x, router, gate, up, down, dz))
    dx, dgate, dup, ddown, dshare = jnp.zeros_like(x), [], [], [], []
    for expert, (silu, b, a_sum, b_sum, size) in enumerate(hidden):
        back = weight[:, expert, None] * (dz @ down[expert].T)
        da = back * (1.1 * (b + b_sum) + a_sum * b / 2)
        db = back * (silu + 1.1 * a_sum)
        dx = dx + da @ gate[expert].T + db @ up[expert].T
        dgate.append(x.T @ da)
        dup.append(x.T @ db)
        ddown.append((share[:, expert, None] * size + weight[:, expert, None] * silu * b).T @ dz)
        dshare.append((dz * (size @ down[expert])).sum(-1))
    dshare = jnp.stack(dshare, -1)
    dlogit = weight * (dshare + (share * dshare).sum(-1, keepdims=True))
    return dx + dlogit @ router.T, x.T @ dlogit, *map(jnp.stack, (dgate, dup, ddown))
