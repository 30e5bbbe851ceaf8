"""tokamax's splash attention, under this package's contract.

It grew out of the one that ships with JAX, and differs from it in what counts: powers of two, an
array's layout that can be asked for, one kernel for all three gradients. It has no scale, so q is
scaled before.
"""

import math

import jax.numpy as jnp

from kernels.attention.jax_flash import check
from kernels.attention.jax_splash import differentiable
from kernels.machines.compat import tokamax
from kernels.machines.pallas import interprets


def blocks(n, m, d):
    """The best of its settings, by estimate: large blocks, and the layout that XLA would choose.

    Args:
        n: queries, a multiple of 128.
        m: keys, a multiple of 128.
        d: features of a head.

    Returns:
        Fields of tokamax's SplashConfig.
    """
    # The greatest common divisor with a power of two is the largest block up to it. Fewer features
    # than lanes would be padded in the lanes, so the tokens take their place.
    layout = "HEAD_DIM_MINOR" if d >= 128 else "SEQ_MINOR"
    return {
        "block_q": math.gcd(n, 1024),
        "block_kv": math.gcd(m, 2048),
        "block_kv_compute": math.gcd(m, 1024),
        "block_q_dkv": math.gcd(n, 1024),
        "block_kv_dkv": math.gcd(m, 1024),
        "block_kv_dkv_compute": math.gcd(m, 512),
        "q_layout": layout,
        "k_layout": layout,
        "v_layout": layout,
        "use_experimental_scheduler": d >= 128,  # slower where the tokens are in the lanes
    }


def _kernel(heads, n, m, d, causal, interpret):
    """tokamax's kernel, which takes any number of heads."""
    return tokamax.splash_attention(n, m, causal=causal, interpret=interpret, **blocks(n, m, d))


_differentiable = differentiable(_kernel)


def attention(q, k, v, *, causal, scale, interpret=None):
    """The splash attention of tokamax.

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
        MissingPackage: where tokamax is not installed.
    """
    check(q, k, "tokamax")
    arrays = map(jnp.asarray, (q, k, v))
    return _differentiable(*arrays, causal, scale, interprets(interpret, "tpu"))
