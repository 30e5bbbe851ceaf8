"""The splash attention that ships with JAX, under this package's contract.

It is the younger of JAX's two kernels for a TPU: what a mask hides is not in its grid. It has no
scale, so q is scaled before; and its default of 128 for all blocks is slow, so it gets larger ones.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from kernels.attention.jax_flash import check, machine
from kernels.machines.pallas import interprets


def blocks(n, m):
    """The best of its block sizes, by estimate: the largest that fit, and smaller ones backward.

    Args:
        n: queries, a multiple of 128.
        m: keys, a multiple of 128.

    Returns:
        JAX's BlockSizes.
    """
    # The greatest common divisor with a power of two is the largest block up to it.
    return splash.BlockSizes(
        block_q=math.gcd(n, 1024),
        block_kv=math.gcd(m, 2048),
        block_kv_compute=math.gcd(m, 1024),
        block_q_dkv=math.gcd(n, 512),
        block_kv_dkv=math.gcd(m, 1024),
        block_kv_dkv_compute=math.gcd(m, 512),
        block_q_dq=math.gcd(n, 512),
        block_kv_dq=math.gcd(m, 1024),
    )


def _kernel(heads, n, m, d, causal, interpret):
    """JAX's kernel of [H, N, D], [H, M, D], [H, M, D]."""
    mask = (splash.CausalMask if causal else splash.FullMask)((n, m))
    return splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads),
        block_sizes=blocks(n, m),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )


def differentiable(kernel):
    """Attention by a splash kernel, with the kernel's own gradients.

    Args:
        kernel: kernel(heads, n, m, d, causal, interpret) gives a function of q [H, N, D], k and v
            [H, M, D] that scales nothing.

    Returns:
        A function of q [B, H, N, D], k, v [B, H, M, D], causal, scale and interpret.
    """

    # With InterpretParams a machine runs it; with True, it interprets itself.
    def simulated(interpret):
        return machine(False if interpret is True else interpret)

    def called(heads, n, m, d, causal, scale, interpret):
        made = kernel(heads, n, m, d, causal, interpret is True)
        return lambda q, k, v: jax.vmap(made)((scale * q).astype(q.dtype), k, v)

    @functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
    def attend(q, k, v, causal, scale, interpret):
        # Not by forward: its kernel writes the sums that a gradient needs.
        call = called(*q.shape[1:3], *k.shape[2:], causal, scale, interpret)
        with simulated(interpret):
            return call(q, k, v)

    def forward(q, k, v, causal, scale, interpret):
        call = called(*q.shape[1:3], *k.shape[2:], causal, scale, interpret)
        with simulated(interpret):
            return jax.vjp(call, q, k, v)

    def backward(causal, scale, interpret, back, do):
        with simulated(interpret):
            return back(do)

    attend.defvjp(forward, backward)
    return attend


_differentiable = differentiable(_kernel)


def attention(q, k, v, *, causal, scale, interpret=None):
    """The splash attention of JAX.

    Args:
        q: [B, H, N, D]; N a multiple of 128, D at most 128 or a multiple of it.
        k, v: [B, H, M, D]; M a multiple of 128.
        causal: query i sees the keys 0 to i.
        scale: of the products.
        interpret: None interprets where there is no TPU.

    Returns:
        [B, H, N, D].

    Raises:
        ValueError: for another N, M or D.
    """
    check(q, k, "jax_splash")
    arrays = map(jnp.asarray, (q, k, v))
    return _differentiable(*arrays, causal, scale, interprets(interpret, "tpu"))
