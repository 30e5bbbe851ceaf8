"""Flash attention for a Hopper GPU, through Mosaic GPU, forward; backward it is the formula.

Each block takes 128 queries of a head. One of its three warpgroups copies keys and values ahead;
the other two take 64 queries each, and hold scores, sums and maxima in registers. The probabilities
go from there into wgmma, without a detour through shared memory. The two take turns, as in
FlashAttention-3: while one has the tensor cores, the other makes its softmax. Where the mask is
causal, a block stops at the last keys that any of its queries sees, masks only the steps that the
diagonal crosses, and the blocks with most steps start first.

    for each block of keys and values:     its copies are on their way
        s = q kᵀ;  hand over the tensor cores
        new = max(top, largest of s);  p = exp(s - new);  shrink = exp(top - new)
        wait for the tensor cores
        o = o shrink + p v;  l = l shrink + sum of p;  top = new
    o / l
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.attention import xla
from kernels.attention.arguments import AttentionSpec
from kernels.machines import checks
from kernels.machines.gpu.simulator import interprets

TQ, TK = 64, 128  # queries of a warpgroup, keys of a step
MEMORY_REGISTERS = 40  # of a thread that only copies
LARGEST_HEAD = 128  # numbers: with more, sums and products no longer fit into the registers
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def blocks(q, k, v, spec, keys):
    """[heads, N, D], [heads, M, D], [heads, M, D] → [heads, N, D]; 128 divides N and M, 64 D.

    Of the M keys, those behind the first `keys` are padding.
    """
    heads, n, d = q.shape
    m = k.shape[1]
    scale = spec.scale * math.log2(math.e)

    def product(x, y, columns, after=lambda: None):
        def sums(acc_ref):
            plgpu.wgmma(acc_ref, x, y)
            after()
            return acc_ref[...]

        return pl.run_scoped(sums, plgpu.ACC((TQ, columns), jnp.float32))

    def masked(s, first_query, first_key):
        key = first_key + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
        seen = key < keys
        if spec.causal:
            query = first_query + jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)
            seen = seen & (key <= query)
        return jnp.where(seen, s, -jnp.inf)

    def kernel(q_gmem, k_gmem, v_gmem, o_gmem, q_smem, q_barrier, turn, buffers):
        wg, head = jax.lax.axis_index("wg"), jax.lax.axis_index("head")
        tile = n // (2 * TQ) - 1 - jax.lax.axis_index("tile")
        first = tile * 2 * TQ + wg * TQ

        def hand_over():
            plgpu.barrier_arrive(turn)
            plgpu.barrier_wait(turn)

        def step(place, k_smem, v_smem, carry):  # [TK, D] both
            o, l, top = carry  # [TQ, D], [TQ], [TQ]: sums of p v and of p, the largest score

            s = product(q_smem.at[wg], k_smem.transpose((1, 0)), TK, hand_over)
            first_key = place[0] * TK
            if spec.causal or keys < m:
                last = jnp.minimum(first, keys - 1) if spec.causal else keys - 1
                hidden = first_key + TK - 1 > last
                s = jax.lax.cond(hidden, lambda s: masked(s, first, first_key), lambda s: s, s)
            new = jnp.maximum(top, s.max(axis=1) * scale)
            p = jnp.exp2(s * scale - jax.lax.broadcast_in_dim(new, s.shape, (0,)))
            shrink = jnp.exp2(top - new)
            o = o * jax.lax.broadcast_in_dim(shrink, o.shape, (0,))
            weights = p.astype(v_smem.dtype)
            if d == LARGEST_HEAD:  # either order was measured: the other is faster with 64
                hand_over()
            l = l * shrink + p.sum(axis=1)
            if d < LARGEST_HEAD:
                hand_over()
            return o + product(weights, v_smem, d), l, new

        def compute(run):
            here = q_gmem.at[head, pl.ds(first, TQ)]
            plgpu.copy_gmem_to_smem(here, q_smem.at[wg], q_barrier.at[wg])
            plgpu.barrier_wait(q_barrier.at[wg])
            pl.when(wg == 1)(hand_over)  # the other begins
            zeros = jnp.zeros((TQ, d), jnp.float32), jnp.zeros((TQ,), jnp.float32)
            o, l, _ = run((*zeros, jnp.full((TQ,), -jnp.inf, jnp.float32)))
            pl.when(wg == 0)(hand_over)
            o = o / jax.lax.broadcast_in_dim(l, o.shape, (0,))
            q_smem[wg] = o.astype(q.dtype)  # nobody reads these queries any more
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(q_smem.at[wg], o_gmem.at[head, pl.ds(first, TQ)])
            plgpu.wait_smem_to_gmem(0)

        steps = m // TK
        if spec.causal:  # the keys behind the last of these queries are hidden from all of them
            steps = jnp.minimum(pl.cdiv((tile + 1) * 2 * TQ, TK), steps)
        pipeline(step, compute, steps)(k_gmem.at[head], v_gmem.at[head], allocations=buffers)

    def pipeline(step, compute, steps=m // TK):
        block = plgpu.BlockSpec((TK, d), lambda s: (s, 0), transforms=SWIZZLED)
        return plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(steps,),
            in_specs=[block, block],
            wg_axis="wg",
            num_compute_wgs=2,
            memory_registers=MEMORY_REGISTERS,
            max_concurrent_steps=min(2 if d == LARGEST_HEAD else 3, m // TK),
            compute_context=compute,
        )

    def entry(q_gmem, k_gmem, v_gmem, o_gmem):
        nothing = lambda *_: None
        pl.run_scoped(
            functools.partial(kernel, q_gmem, k_gmem, v_gmem, o_gmem),
            plgpu.SMEM((2, TQ, d), q.dtype, transforms=SWIZZLED),
            plgpu.Barrier(num_barriers=2),
            plgpu.Barrier(num_arrivals=2),
            pipeline(nothing, nothing).get_allocations(k_gmem.at[0], v_gmem.at[0]),
            collective_axes="wg",
        )

    return plgpu.kernel(
        entry,
        out_type=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads, n // (2 * TQ)),
        grid_names=("head", "tile"),
        num_threads=3,
        thread_name="wg",
        compiler_params=plgpu.CompilerParams(
            lowering_semantics=plgpu.LoweringSemantics.Warpgroup, approx_math=True
        ),
        interpret=spec.interpret,
        kernel_name="attention",
    )(q, k, v)


@functools.partial(jax.jit, static_argnums=3)
def padded(q, k, v, spec):
    """The same for [B, H, N, D] of any lengths, with zeros up to whole tiles."""
    b, h, n, d = q.shape

    def tiled(x, step):
        x = x.reshape(b * h, x.shape[2], d)
        return jnp.pad(x, ((0, 0), (0, -x.shape[1] % step), (0, -d % 64)))

    o = blocks(tiled(q, 2 * TQ), tiled(k, TK), tiled(v, TK), spec, k.shape[2])
    return o[:, :n, :d].reshape(q.shape)


def _backward(spec, saved, do):
    """XLA's, of the formula: with the probabilities in HBM."""
    formula = functools.partial(xla.attention, causal=spec.causal, scale=spec.scale)
    return jax.vjp(formula, *saved)[1](do)


_differentiable = jax.custom_vjp(padded, nondiff_argnums=(3,))
_differentiable.defvjp(lambda q, k, v, spec: (padded(q, k, v, spec), (q, k, v)), _backward)


def attention(q, k, v, *, causal, scale, interpret=None):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]; bfloat16, D at most 128.

    Raises:
        ValueError: for float32, which wgmma would round, and for larger heads.
    """
    q, k, v = map(jnp.asarray, (q, k, v))
    checks.one_of('q.dtype, for "mosaic_gpu",', str(q.dtype), ("bfloat16",))
    if q.shape[3] > LARGEST_HEAD:
        checks.fail("q.shape[3]", q.shape[3], f'at most {LARGEST_HEAD}, for "mosaic_gpu"')
    spec = AttentionSpec(causal=causal, scale=float(scale), interpret=interprets(interpret))
    return _differentiable(q, k, v, spec)
