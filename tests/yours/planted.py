"""Faults planted in kernels that are shipped with JAX: each is to be found at the rung named."""

import dataclasses
import functools
import inspect
import sys
import types

import jax.numpy as jnp
import jax_kernels as right
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel,
    splash_attention_mask,
)

import kernels

# Kernel → the rung that finds it first.
FOUND_BY = {}


def changed(module, *pairs):
    """A copy of a module with parts of its text replaced."""
    source = inspect.getsource(module)
    for old, new in pairs:
        assert old in source, f"{module.__name__} has no {old!r} any more"
        source = source.replace(old, new)
    made = types.ModuleType(f"{module.__name__}_{len(FOUND_BY)}")
    made.__package__ = module.__package__
    sys.modules[made.__name__] = made
    exec(compile(source, module.__file__, "exec"), vars(made))
    return made


def fault(rung, reference, arguments, **options):
    """Prove a function that is wrong."""

    def mark(function):
        FOUND_BY[function.__name__] = rung
        given = {"values": ("given",), "chips": ("v5e",), **options}
        return kernels.proves(reference, arguments=arguments, **given)(function)

    return mark


# --- the blocked matmul ---------------------------------------------------------------------------

no_init = changed(matmul, ("pl.program_id(2) == 0", "pl.program_id(2) == 1"))
overwritten = changed(matmul, ("acc_ref[...] = acc_ref[...] + jnp", "acc_ref[...] = jnp"))
parallel = changed(matmul, ('"parallel", "arbitrary")', '"parallel", "parallel")'))
next_block = changed(matmul, ("lambda _, j, k: (k, j)", "lambda _, j, k: (k + 1, j)"))
narrow = changed(matmul, ("acc_dtype = jnp.float32", "acc_dtype = x.dtype"))


@fault("interpret", jnp.dot, right.factors)
def matmul_without_init(x, y):
    return no_init.matmul(x, y, block_shape=(128, 128), block_k=128)


@fault("interpret", jnp.dot, right.factors)
def matmul_overwriting_its_sum(x, y):
    return overwritten.matmul(x, y, block_shape=(128, 128), block_k=128)


@fault("simulate", jnp.dot, right.factors)
def matmul_with_a_parallel_sum(x, y):
    return parallel.matmul(x, y, block_shape=(128, 128), block_k=128)


@fault("interpret", jnp.dot, right.factors)
def matmul_of_the_next_block(x, y):
    return next_block.matmul(x, y, block_shape=(128, 128), block_k=128)


def long_factors(rng):
    draw = lambda *shape: right.normal(rng, *shape, dtype=jnp.bfloat16)
    return draw(128, 4096), draw(4096, 128)


@fault("interpret", jnp.dot, long_factors)
def matmul_adding_up_in_bfloat16(x, y):
    return narrow.matmul(x, y, block_shape=(128, 128), block_k=128)


@fault("compile", jnp.dot, right.factors)
def matmul_of_half_tiles(x, y):
    return matmul.matmul(x, y, block_shape=(4, 128), block_k=128)


# --- flash attention ------------------------------------------------------------------------------

strict = changed(flash_attention, ("col_ids <= row_ids", "col_ids < row_ids"))
uncorrected = changed(flash_attention, ("l_corr = alpha * l_prev", "l_corr = l_prev"))
unscaled = changed(flash_attention, ("ds = ds * sm_scale", "ds = ds * 1.0"))
causal = functools.partial(right.attention, causal=True)


@fault("interpret", causal, right.heads)
def flash_that_skips_the_diagonal(q, k, v):
    return strict.flash_attention(q, k, v, causal=True, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads)
def flash_without_its_correction(q, k, v):
    return uncorrected.flash_attention(q, k, v, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads, differentiable=("k",))
def flash_with_a_gradient_unscaled(q, k, v):
    return unscaled.flash_attention(q, k, v, sm_scale=128**-0.5)


# --- backward passes ------------------------------------------------------------------------------
#
# All in float32, where what is rounded to bfloat16 on the way is off by a thousandth of itself.

narrow_p = changed(
    flash_attention, ("p.T.astype(do.dtype)", "p.T.astype(jnp.bfloat16).astype(do.dtype)")
)
narrow_ds = changed(
    flash_attention, ("ds.T.astype(do.dtype)", "ds.T.astype(jnp.bfloat16).astype(do.dtype)")
)
narrow_sums = changed(
    flash_attention,
    (
        "pltpu.VMEM((block_k_major, head_dim), jnp.float32)",
        "pltpu.VMEM((block_k_major, head_dim), jnp.bfloat16)",
    ),
)
off_by_a_percent = changed(flash_attention, ("ds = ds * sm_scale", "ds = ds * sm_scale * 1.01"))
RUN = """should_run = {}

  @pl.when(should_run)
  def run():
    lax.fori_loop(0, block_q_major // block_q, q_body"""
one_block_less = changed(
    flash_attention, (RUN.format(True), RUN.format("(q_seq_index != 1) | (kv_seq_index != 0)"))
)
narrow_splash = changed(
    splash_attention_kernel,
    ("lax.dot(p.astype(do.dtype), do", "lax.dot(p.astype(jnp.bfloat16), do"),
)


@fault("interpret", right.attention, right.heads, differentiable=("v",))
def flash_rounding_its_probabilities(q, k, v):
    return narrow_p.flash_attention(q, k, v, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads, differentiable=("k",))
def flash_rounding_what_comes_back(q, k, v):
    return narrow_ds.flash_attention(q, k, v, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads, differentiable=("k", "v"))
def flash_adding_up_gradients_in_bfloat16(q, k, v):
    return narrow_sums.flash_attention(q, k, v, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads, differentiable=("q",))
def flash_with_a_gradient_off_by_a_percent(q, k, v):
    return off_by_a_percent.flash_attention(q, k, v, sm_scale=128**-0.5)


@fault("interpret", right.attention, right.heads, differentiable=("k", "v"))
def flash_with_a_block_less_in_its_gradient(q, k, v):
    return one_block_less.flash_attention(q, k, v, sm_scale=128**-0.5)


CAUSAL = functools.partial(right.sparse, right.CAUSAL)


@fault("interpret", CAUSAL, right.scaled, differentiable=("v",))
def splash_rounding_its_probabilities(q, k, v):
    masks = splash_attention_mask.MultiHeadMask([right.CAUSAL] * q.shape[0])
    make = narrow_splash.make_splash_mha_single_device
    sizes = narrow_splash.BlockSizes(**dataclasses.asdict(right.BLOCKS))
    return make(masks, block_sizes=sizes)(q, k, v)


# --- grouped matmul, paged attention --------------------------------------------------------------

unmasked = changed(right.megablox, ("mask[...], to_store,", "mask[...] | True, to_store,"))
unawaited = changed(paged_attention_kernel, (".wait()", ""))


@fault("interpret", right.grouped, right.groups)
def gmm_over_the_edge_of_a_group(lhs, rhs, group_sizes):
    return unmasked.gmm(lhs, rhs, group_sizes)


@fault("simulate", right.paged_reference, right.pages)
def paged_that_does_not_wait(q, k_pages, v_pages, lengths, page_indices):
    return unawaited.paged_attention(
        q, k_pages, v_pages, lengths, page_indices, pages_per_compute_block=2
    )
