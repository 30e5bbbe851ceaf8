"""The flash attention that ships with JAX, under this package's contract.

Its lengths are whole multiples of 128, and its gradient is one: it is called with block sizes that
suit it better than its own default of 128. float32 is multiplied at its own default precision.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

from kernels.machines.checks import fail
from kernels.machines.pallas import interprets

LANES = 128


def blocks(n, m):
    """The best of its block sizes, by estimate: as large as they can be.

    The kernel of dq alone would be 8 % faster with 1024 keys than with 512, but delta is handed to
    it as [B, H, N, block_k_major_dq], and writing that costs more than it saves.

    Args:
        n: queries, a multiple of 128.
        m: keys, a multiple of 128.

    Returns:
        JAX's BlockSizes.
    """
    q, k = (next(b for b in (1024, 512, 256, 128) if size % b == 0) for size in (n, m))
    half = min(k, 512)
    return BlockSizes(
        block_q=q,
        block_k_major=k,
        block_k=half,
        block_b=1,
        block_q_major_dkv=q,
        block_k_major_dkv=k,
        block_k_dkv=half,
        block_q_dkv=min(q, 512),
        block_k_major_dq=half,
        block_k_dq=half,
        block_q_dq=q,
    )


def machine(interpret):
    """Where it runs: it has no `interpret=` of its own."""
    if not interpret:
        return contextlib.nullcontext()
    return pltpu.force_tpu_interpret_mode(
        pltpu.InterpretParams() if interpret is True else interpret
    )


def _call(q, k, causal, scale):
    """JAX's function of arrays of these sizes."""
    return functools.partial(
        flash_attention,
        causal=causal,
        sm_scale=scale,
        block_sizes=blocks(q.shape[2], k.shape[2]),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _differentiable(q, k, v, causal, scale, interpret):
    # Not by _forward: its kernel writes the sums and maxima that a gradient needs.
    with machine(interpret):
        return _call(q, k, causal, scale)(q, k, v)


def _forward(q, k, v, causal, scale, interpret):
    with machine(interpret):
        return jax.vjp(_call(q, k, causal, scale), q, k, v)


def _backward(causal, scale, interpret, back, do):
    with machine(interpret):
        return back(do)


_differentiable.defvjp(_forward, _backward)


def check(q, k, implementation):
    """Refuse what JAX's kernels do not take.

    Args:
        q: [B, H, N, D]; N a multiple of 128, D at most 128 or a multiple of it.
        k: [B, H, M, D]; M a multiple of 128.
        implementation: whom it is for.

    Raises:
        ValueError: for another N, M or D.
    """
    for name, length in (("q.shape[2]", q.shape[2]), ("k.shape[2]", k.shape[2])):
        if length % LANES:
            fail(name, length, f"a multiple of {LANES}, for {implementation}")
    head_dim = q.shape[3]
    if head_dim > LANES and head_dim % LANES:
        accepted = f"at most {LANES}, or a multiple of it, for {implementation}"
        fail("q.shape[3]", head_dim, accepted)


def attention(q, k, v, *, causal, scale, interpret=None):
    """The flash attention of JAX, by way of a TPU's interpreter where there is no TPU.

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
    check(q, k, "jax_flash")
    arrays = map(jnp.asarray, (q, k, v))
    return _differentiable(*arrays, causal, scale, interprets(interpret, "tpu"))
