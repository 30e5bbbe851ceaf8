"""Flash attention for a Hopper GPU, through Mosaic GPU, forward; backward it is the formula.

Each block takes 128 queries of a head. One of its three warpgroups copies keys and values ahead;
the other two take 64 queries each, and hold scores, sums and maxima in registers. The probabilities
go from there into wgmma, without a detour through shared memory. Where the mask is causal, a block
stops at the last keys that any of its queries sees.
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
from kernels.machines.gpu.interpreted import interprets

TQ, TK = 64, 64  # queries of a warpgroup, keys of a step
STAGES = 2  # steps whose keys and values are in flight
MEMORY_REGISTERS = 40  # of a thread that only copies
LARGEST_HEAD = 128  # numbers: with more, sums and products no longer fit into the registers
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def blocks(q, k, v, spec, keys):
    """[heads, N, D], [heads, M, D], [heads, M, D] → [heads, N, D]; 128 divides N, 64 M and D.

    Of the M keys, those behind the first `keys` are padding.
    """
    heads, n, d = q.shape
    m = k.shape[1]

    def product(x, y, columns):
        def sums(acc_ref):
            plgpu.wgmma(acc_ref, x, y)
            return acc_ref[...]

        return pl.run_scoped(sums, plgpu.ACC((TQ, columns), jnp.float32))

    def masked(s, first_query, first_key):
        if not spec.causal and keys == m:
            return s
        key = first_key + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
        seen = key < keys
        if spec.causal:
            query = first_query + jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)
            seen = seen & (key <= query)
        return jnp.where(seen, s, -jnp.inf)

    def kernel(q_gmem, k_gmem, v_gmem, o_gmem, q_smem, q_barrier, buffers):
        wg, head = jax.lax.axis_index("wg"), jax.lax.axis_index("head")
        first = jax.lax.axis_index("tile") * 2 * TQ + wg * TQ

        def step(place, k_smem, v_smem, carry):  # [TK, D] both
            o, l, top = carry  # [TQ, D], [TQ], [TQ]: sums of p v and of p, the largest score
            s = product(q_smem.at[wg], k_smem.transpose((1, 0)), TK)
            s = s * (spec.scale * math.log2(math.e))
            s = masked(s, first, place[0] * TK)
            new = jnp.maximum(top, s.max(axis=1))
            p = jnp.exp2(s - jax.lax.broadcast_in_dim(new, s.shape, (0,)))
            shrink = jnp.exp2(top - new)
            o = o * jax.lax.broadcast_in_dim(shrink, o.shape, (0,))
            o = o + product(p.astype(v_smem.dtype), v_smem, d)
            return o, l * shrink + p.sum(axis=1), new

        def compute(run):
            here = q_gmem.at[head, pl.ds(first, TQ)]
            plgpu.copy_gmem_to_smem(here, q_smem.at[wg], q_barrier.at[wg])
            plgpu.barrier_wait(q_barrier.at[wg])
            zeros = jnp.zeros((TQ, d), jnp.float32), jnp.zeros((TQ,), jnp.float32)
            o, l, _ = run((*zeros, jnp.full((TQ,), -jnp.inf, jnp.float32)))
            o = o / jax.lax.broadcast_in_dim(l, o.shape, (0,))
            q_smem[wg] = o.astype(q.dtype)  # nobody reads these queries any more
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(q_smem.at[wg], o_gmem.at[head, pl.ds(first, TQ)])
            plgpu.wait_smem_to_gmem(0)

        steps = m // TK
        if spec.causal:  # the keys behind the last of these queries are hidden from all of them
            seen = (jax.lax.axis_index("tile") + 1) * (2 * TQ // TK)
            steps = jnp.minimum(seen, steps)
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
            max_concurrent_steps=min(STAGES, m // TK),
            compute_context=compute,
        )

    def entry(q_gmem, k_gmem, v_gmem, o_gmem):
        nothing = lambda *_: None
        pl.run_scoped(
            functools.partial(kernel, q_gmem, k_gmem, v_gmem, o_gmem),
            plgpu.SMEM((2, TQ, d), q.dtype, transforms=SWIZZLED),
            plgpu.Barrier(num_barriers=2),
            pipeline(nothing, nothing).get_allocations(k_gmem.at[0], v_gmem.at[0]),
            collective_axes="wg",
        )

    return plgpu.kernel(
        entry,
        out_type=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(n // (2 * TQ), heads),
        grid_names=("tile", "head"),
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
    return _differentiable(q, k, v, AttentionSpec(causal, float(scale), interprets(interpret)))
