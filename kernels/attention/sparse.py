"""Attention to some blocks of keys only: the grid has a program for each block that is kept."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.attention.pallas import (
    FlashSpec,
    block_spec,
    compiler_params,
    forward_block,
    make_tiling,
)
from kernels.machines.pallas import interprets


def _kernel(query_ref, key_ref, q_ref, k_ref, v_ref, o_ref, *state, tiling):
    # query_ref, key_ref [programs]: prefetched, the block of queries and that of keys
    step, steps = pl.program_id(1), pl.num_programs(1)
    i, j = query_ref[step], key_ref[step]
    first = (step == 0) | (query_ref[jnp.maximum(step - 1, 0)] != i)
    last = (step == steps - 1) | (query_ref[jnp.minimum(step + 1, steps - 1)] != i)
    forward_block(i, j, first, last, q_ref, k_ref, v_ref, o_ref, *state, tiling=tiling)


@functools.partial(jax.jit, static_argnums=5)
def _call(query, key, q, k, v, spec):
    block = spec.plan.block
    tiling = make_tiling(q, k, spec, block)
    heads, _, head_dim = q.shape

    def of_block(tokens, which):
        at = block_spec(tiling, block.heads, tokens, head_dim, lambda i, j: i)
        return pl.BlockSpec(
            at.block_shape, lambda h, step, *blocks: at.index_map(h, blocks[which][step], 0)
        )

    queries, keys = of_block(tiling.bq, 0), of_block(tiling.bk, 1)
    turned = [tiling.transpose(x) for x in (q, k, v)]
    o = pl.pallas_call(
        functools.partial(_kernel, tiling=tiling),
        out_shape=jax.ShapeDtypeStruct(turned[0].shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(heads // block.heads, len(query)),
            in_specs=[queries, keys, keys],
            out_specs=queries,
            scratch_shapes=tiling.state(block.heads, head_dim),
        ),
        compiler_params=compiler_params(spec.plan, "parallel", "arbitrary"),
        interpret=spec.interpret,
        name="block_sparse_attention",
    )(query, key, *turned)
    return tiling.transpose(o)


_forward_only = jax.custom_jvp(_call, nondiff_argnums=(5,))


@_forward_only.defjvp
def _refuse(*_):
    raise NotImplementedError("block_sparse_attention has no gradient")


def attention(q, k, v, mask, *, scale, plan, interpret=None):
    """block_sparse_attention by a plan; NotImplementedError where it is differentiated."""
    together = (jnp.asarray(x).reshape(-1, *x.shape[2:]) for x in (q, k, v))
    query, key = (jnp.asarray(x, jnp.int32) for x in np.nonzero(mask))
    spec = FlashSpec(False, scale, interprets(interpret, "tpu"), plan)
    return _forward_only(query, key, *together, spec).reshape(q.shape)
