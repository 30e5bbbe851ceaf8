"""Faults planted in kernels that are shipped with JAX: each is to be found at the rung named."""

import functools
import inspect
import sys
import types

import jax.numpy as jnp
import jax_kernels as right
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel

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


# --- grouped matmul, paged attention --------------------------------------------------------------

unmasked = changed(right.megablox, ("mask[...], to_store,", "mask[...] | True, to_store,"))
unawaited = changed(paged_attention_kernel, ("async_copy.wait()", "pass"))


@fault("interpret", right.grouped, right.groups)
def gmm_over_the_edge_of_a_group(lhs, rhs, group_sizes):
    return unmasked.gmm(lhs, rhs, group_sizes)


@fault("simulate", right.paged_reference, right.pages)
def paged_that_does_not_wait(q, k_pages, v_pages, lengths, page_indices):
    return unawaited.paged_attention(
        q, k_pages, v_pages, lengths, page_indices, pages_per_compute_block=2
    )
