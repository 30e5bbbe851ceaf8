"""Which experts a token goes to: float32, for every implementation and for the oracle."""

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
