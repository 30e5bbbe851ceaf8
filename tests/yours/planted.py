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


def changed(module, *pairs):
    """A copy of a module with parts of its text replaced."""
    source = inspect.getsource(module)
    for old, new in pairs:
        assert old in source, f"{module.__name__} has no {old!r} any more"
        source = source.replace(old, new)
    made = types.ModuleType(f"{module.__name__}_{len(sys.modules)}")
    made.__package__ = module.__package__
    sys.modules[made.__name__] = made
    exec(compile(source, module.__file__, "exec"), vars(made))
    return made


def multiplied(*pairs, **blocks):
    """JAX's blocked matmul with other text."""
    module, blocks = changed(matmul, *pairs), {"block_shape": (128, 128), "block_k": 128} | blocks
    return lambda x, y: module.matmul(x, y, **blocks)


def attended(*pairs, **options):
    """JAX's flash attention with other text."""
    module = changed(flash_attention, *pairs)
    return lambda q, k, v: module.flash_attention(q, k, v, sm_scale=128**-0.5, **options)


def long_factors(rng):
    draw = lambda *shape: right.normal(rng, *shape, dtype=jnp.bfloat16)
    return draw(128, 4096), draw(4096, 128)


RUN = """should_run = {}

  @pl.when(should_run)
  def run():
    lax.fori_loop(0, block_q_major // block_q, q_body"""
LESS = RUN.format(True), RUN.format("(q_seq_index != 1) | (kv_seq_index != 0)")
SUMS = "pltpu.VMEM((block_k_major, head_dim), jnp.{})"
causal = functools.partial(right.attention, causal=True)
unmasked = changed(right.megablox, ("mask[...], to_store,", "mask[...] | True, to_store,"))
unawaited = changed(paged_attention_kernel, (".wait()", ""))


def paged(q, k_pages, v_pages, lengths, page_indices):
    return unawaited.paged_attention(
        q, k_pages, v_pages, lengths, page_indices, pages_per_compute_block=2
    )


# Kernel → the rung that finds it first, the reference, its arguments, what is wrong, and the names
# of arguments with gradients: in float32, where rounding to bfloat16 is off by a thousandth.
FAULTS = {
    "matmul_without_init": ("interpret", jnp.dot, right.factors,
        multiplied(("pl.program_id(2) == 0", "pl.program_id(2) == 1"))),
    "matmul_overwriting_its_sum": ("interpret", jnp.dot, right.factors,
        multiplied(("acc_ref[...] = acc_ref[...] + jnp", "acc_ref[...] = jnp"))),
    "matmul_with_a_parallel_sum": ("simulate", jnp.dot, right.factors,
        multiplied(('"parallel", "arbitrary")', '"parallel", "parallel")'))),
    "matmul_of_the_next_block": ("interpret", jnp.dot, right.factors,
        multiplied(("lambda _, j, k: (k, j)", "lambda _, j, k: (k + 1, j)"))),
    "matmul_adding_up_in_bfloat16": ("interpret", jnp.dot, long_factors,
        multiplied(("acc_dtype = jnp.float32", "acc_dtype = x.dtype"))),
    "matmul_of_half_tiles": ("compile", jnp.dot, right.factors, multiplied(block_shape=(4, 128))),
    "flash_that_skips_the_diagonal": ("interpret", causal, right.heads,
        attended(("col_ids <= row_ids", "col_ids < row_ids"), causal=True)),
    "flash_without_its_correction": ("interpret", right.attention, right.heads,
        attended(("l_corr = alpha * l_prev", "l_corr = l_prev"))),
    "flash_with_a_gradient_unscaled": ("interpret", right.attention, right.heads,
        attended(("ds = ds * sm_scale", "ds = ds * 1.0")), "k"),
    "flash_rounding_its_probabilities": ("interpret", right.attention, right.heads,
        attended(("p.T.astype(do.dtype)", "p.T.astype(jnp.bfloat16).astype(do.dtype)")), "v"),
    "flash_rounding_what_comes_back": ("interpret", right.attention, right.heads,
        attended(("ds.T.astype(do.dtype)", "ds.T.astype(jnp.bfloat16).astype(do.dtype)")), "k"),
    "flash_adding_up_gradients_in_bfloat16": ("interpret", right.attention, right.heads,
        attended((SUMS.format("float32"), SUMS.format("bfloat16"))), "k", "v"),
    "flash_with_a_gradient_off_by_a_percent": ("interpret", right.attention, right.heads,
        attended(("ds = ds * sm_scale", "ds = ds * sm_scale * 1.01")), "q"),
    "flash_with_a_block_less_in_its_gradient": ("interpret", right.attention, right.heads,
        attended(LESS), "k", "v"),
    "gmm_over_the_edge_of_a_group": ("interpret", right.grouped, right.groups,
        lambda lhs, rhs, group_sizes: unmasked.gmm(lhs, rhs, group_sizes)),
    "paged_that_does_not_wait": ("simulate", right.paged_reference, right.pages, paged),
}  # fmt: skip
for name, (_, reference, arguments, function, *differentiable) in FAULTS.items():
    function.__name__ = name
    options = {"values": ("given",), "chips": ("v5e",), "differentiable": differentiable}
    kernels.proves(reference, arguments=arguments, **options)(function)
