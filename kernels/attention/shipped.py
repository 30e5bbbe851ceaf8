"""The attention kernels that others ship, under this package's contract: JAX's two and tokamax's.

JAX's flash attention is the oldest. Of JAX's splash attention the grid leaves out what a mask
hides. tokamax's grew out of that one, and differs in what counts: powers of two, a layout of the
arrays that can be asked for, one kernel for all three gradients.

Their lengths are whole multiples of 128, and they are called with block sizes that suit them better
than their own defaults of 128. Of float32 whole factors are asked for, as everywhere here: by their
own default a TPU would round them to bfloat16.
"""

import contextlib
import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from kernels.attention import xla
from kernels.attention.arguments import AttentionSpec
from kernels.machines.checks import fail
from kernels.machines.pallas import interprets

LANES = 128


def shipped(name, call, *, interprets_itself):
    """Attention by a kernel of others, with the kernel's own gradients.

    Args:
        name: whom a refusal is for.
        call: call(q, k, v, ids, spec), of arrays [B, H, …, D], int32 [B, …] or None, and an
            AttentionSpec.
        interprets_itself: whether `interpret=True` of the spec is for it; else, as with
            InterpretParams in any case, a TPU is simulated around it.

    Returns:
        attention(q, k, v, *, interpret=None, **options), with those of AttentionSpec.
    """

    @contextlib.contextmanager
    def machine(spec, dtype):
        on = pltpu.InterpretParams() if spec.interpret is True else spec.interpret
        forced = spec.interpret and not (spec.interpret is True and interprets_itself)
        around = pltpu.force_tpu_interpret_mode(on) if forced else contextlib.nullcontext()
        precision = "highest" if dtype == jnp.float32 else None
        with around, jax.default_matmul_precision(precision):
            yield

    @functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
    def attend(q, k, v, ids, spec):
        # Not by forward: its kernel writes the sums and maxima that a gradient needs.
        with machine(spec, q.dtype):
            return call(q, k, v, ids, spec)

    def forward(q, k, v, ids, spec):
        with machine(spec, q.dtype):
            return jax.vjp(functools.partial(call, ids=ids, spec=spec), q, k, v)

    def backward(spec, back, do):
        with machine(spec, do.dtype):
            return *back(do), None

    attend.defvjp(forward, backward)

    def attention(q, k, v, *, interpret=None, segment_ids=None, **options):
        """[B, H, N, D], [B, Hkv, M, D] twice → [B, H, N, D].

        Raises:
            ValueError: for an N or M that is no multiple of 128, for a D above 128 that is none
                either, and where the last queries see no key.
        """
        for argument, length in (("q.shape[2]", q.shape[2]), ("k.shape[2]", k.shape[2])):
            if length % LANES:
                fail(argument, length, f"a multiple of {LANES}, for {name}")
        if (head_dim := q.shape[3]) > LANES and head_dim % LANES:
            fail("q.shape[3]", head_dim, f"at most {LANES}, or a multiple of it, for {name}")
        spec = AttentionSpec(**options, interpret=interprets(interpret, "tpu"))
        seen = k.shape[2] + (spec.window or (q.shape[2],))[0]
        if q.shape[2] > seen:
            fail("q.shape[2]", q.shape[2], f"at most {seen}, so that each sees a key, for {name}")
        q, k, v, ids = jax.tree.map(jnp.asarray, (q, k, v, segment_ids))
        o = attend(q, k, v, ids, spec)
        if not ids or len(ids) == 1:
            return o
        # Of a query that sees no key, they add up all values.
        return jnp.where(xla.seen(q, k, spec.causal, spec.window, ids)[1], o, 0)

    return attention


@functools.partial(shipped, "jax_flash", interprets_itself=False)
def jax_flash(q, k, v, ids, spec):
    # The best of its block sizes, by estimate: as large as they can be. The kernel of dq alone
    # would be 8 % faster with 1024 keys than with 512, but delta is handed to it as
    # [B, H, N, block_k_major_dq], and writing that costs more than it saves.
    # The greatest common divisor with a power of two is the largest block up to it.
    queries, keys = math.gcd(q.shape[2], 1024), math.gcd(k.shape[2], 1024)
    half = min(keys, 512)
    blocks = flash.BlockSizes(
        block_q=queries,
        block_k_major=keys,
        block_k=half,
        block_b=1,
        block_q_major_dkv=queries,
        block_k_major_dkv=keys,
        block_k_dkv=half,
        block_q_dkv=min(queries, 512),
        block_k_major_dq=half,
        block_k_dq=half,
        block_q_dq=queries,
    )
    ids = ids and flash.SegmentIds(ids[0], ids[-1])
    options = {"causal": spec.causal, "sm_scale": spec.scale, "block_sizes": blocks}
    return flash.flash_attention(q, k, v, segment_ids=ids, **options)


# --- splash attention, which has no scale: q is scaled before -------------------------------------


# The best by estimate: the largest that fit, smaller backward.
LARGEST = {"q": 1024, "kv": 2048, "kv_compute": 1024, "kv_dkv": 1024, "kv_dkv_compute": 512}


# Of a narrow window's blocks the kernels compute all scores, so smaller ones waste less.
NARROW, IN_NARROW = 2048, 512


def _blocks(n, m, window, **more):
    limit = IN_NARROW if window and sum(window) < NARROW else max(LARGEST.values())
    return {
        f"block_{side}": math.gcd(n if side.startswith("q") else m, min(most, limit))
        for side, most in (LARGEST | more).items()
    }


def splash_blocks(n, m, window=None):
    """Of n queries and m keys."""
    return splash.BlockSizes(**_blocks(n, m, window, q_dkv=512, q_dq=512, kv_dq=1024))


@functools.partial(shipped, "jax_splash", interprets_itself=True)
def jax_splash(q, k, v, ids, spec):
    (heads, n, _), m = q.shape[1:], k.shape[2]
    mask = (splash.CausalMask if spec.causal else splash.FullMask)((n, m))
    if spec.window:
        mask = splash.LocalMask((n, m), spec.reach, 0)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads),
        block_sizes=splash_blocks(n, m, spec.window),
        head_shards=1,
        q_seq_shards=1,
        interpret=spec.interpret is True,
        attn_logits_soft_cap=spec.soft_cap,
    )
    ids = ids and splash.SegmentIds(ids[0], ids[-1])
    return jax.vmap(kernel)((spec.scale * q).astype(q.dtype), k, v, ids)


@functools.partial(shipped, "tokamax", interprets_itself=True)
def tokamax(q, k, v, ids, spec):
    from kernels.machines.compat import tokamax

    (n, d), m = q.shape[2:], k.shape[2]
    # Fewer features than lanes would be padded in the lanes, so the tokens take their place.
    layout = "HEAD_DIM_MINOR" if d >= LANES else "SEQ_MINOR"
    kernel = tokamax.splash_attention(
        n,
        m,
        reach=spec.reach,
        interpret=spec.interpret is True,
        attn_logits_soft_cap=spec.soft_cap,
        **_blocks(n, m, spec.window, q_dkv=1024),
        **dict.fromkeys(("q_layout", "k_layout", "v_layout"), layout),  # as XLA would choose
        use_experimental_scheduler=d >= LANES,  # slower where the tokens are in the lanes
    )
    ids = ids and splash.SegmentIds(ids[0], ids[-1])
    return jax.vmap(kernel)((spec.scale * q).astype(q.dtype), k, v, ids)
