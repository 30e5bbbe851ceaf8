"""HBM traffic and work, against counts by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from pallas_samples import chosen_rows, shape

from kernels.machines.compat import Changed, jaxprs
from kernels.machines.pallas import calls
from kernels.machines.pallas.work import matmul_flops
from kernels.matmul import BlockSizes, matmul


def blocked(m, k, n, *block):
    function = functools.partial(matmul, block=BlockSizes(*block), interpret=False)
    return function, shape(m, k), shape(k, n)


def test_matmul_fetches_each_operand_as_often_as_the_grid_asks():
    function, *args = blocked(1024, 512, 768, 256, 128, 384)
    [call] = calls(function, *args)
    x, y, z = call.operands
    assert call.grid == (4, 2, 4)
    assert x.traffic == 2 * 1024 * 512 * 2  # twice: n / bn
    assert y.traffic == 4 * 512 * 768 * 2  # four times: m / bm
    assert z.traffic == 1024 * 768 * 2
    assert call.traffic == x.traffic + y.traffic + z.traffic
    assert matmul_flops(jaxprs.trace(function, *args)) == {"bfloat16": 2 * 1024 * 512 * 768}


def test_a_block_that_sticks_out_counts_what_there_is():
    [call] = calls(*blocked(1000, 512, 700, 256, 512, 384))
    assert call.operands[2].traffic == 1000 * 700 * 2


def test_buffers_are_double_where_blocks_change():
    [call] = calls(*blocked(1024, 512, 768, 256, 128, 768))
    held = dict(call.buffers())
    assert held["input x (2 buffers)"] == 2 * 256 * 128 * 2
    assert held["scratch[0]"] == 256 * 768 * 4


@pytest.mark.parametrize("reads", [True, False])
def test_prefetched_scalars(reads):
    args = shape(8, dtype=jnp.int32), shape(64, 128, dtype=jnp.float32)
    index = (lambda i, s: (s[i], 0)) if reads else (lambda i, s: (i, 0))
    [call] = calls(chosen_rows(index=index), *args)
    x, o = call.operands
    assert x.known is not reads
    assert x.traffic == 64 * 128 * 4  # a block each program, known or taken to be so
    assert o.traffic == 64 * 128 * 4


def guarded(condition):
    """A product of 128³ in each of 4×4 programs for which `condition` of its ids holds."""

    def body(x_ref, o_ref):
        @pl.when(condition(pl.program_id(0), pl.program_id(1)))
        def _():
            o_ref[...] = jnp.dot(x_ref[...], x_ref[...])

    block = pl.BlockSpec((128, 128), lambda i, j: (i, j))
    out = shape(512, 512, dtype=jnp.float32)
    call = pl.pallas_call(body, grid=(4, 4), in_specs=[block], out_specs=block, out_shape=out)
    return jaxprs.trace(call, out)


@pytest.mark.parametrize(
    ("condition", "programs"),
    [
        (lambda i, j: j * 2 <= i, 6),
        (lambda i, j: pl.multiple_of(i * 8, 8) < 8, 4),
        (lambda i, j: jnp.where(i > 1, j, 0) < 2, 12),
        (lambda i, j: (i == pl.num_programs(0) - 1) & (j % 2 == 0), 2),
        (lambda i, j: pl.cdiv(i + 1, 2) == 1, 8),
        (lambda i, j: jnp.clip(i, 0, 1) == 1, 12),
        (lambda i, j: jax.jit(lambda: pl.program_id(0) == 0)(), 4),
        # What a branch or a loop gives counts as data: any program may multiply.
        (lambda i, j: jax.lax.cond(i > 1, lambda: j < 1, lambda: j < 2), 16),
    ],
)
def test_flops_under_a_condition_on_program_ids(condition, programs):
    assert matmul_flops(guarded(condition)) == {"float32": programs * 2 * 128**3}


def test_a_condition_that_jax_no_longer_evaluates_is_said_aloud(monkeypatch):
    """What depends on it counts as data, and whoever counts is told so."""
    jaxpr = guarded(lambda i, j: j < i)

    def broken(*operands):
        raise TypeError("gone")

    monkeypatch.setattr(jax, "vmap", lambda function: broken)
    words = r"jax \S+: lt on scalars cannot be evaluated \(TypeError: gone"
    with pytest.warns(Changed, match=words):
        assert matmul_flops(jaxpr) == {"float32": 16 * 2 * 128**3}


def test_flops_of_loops_and_branches():
    def function(x, flag):
        x = jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0]
        return jax.lax.cond(flag, lambda x: x @ x, lambda x: x, x)

    args = shape(64, 64, dtype=jnp.float32), shape(dtype=jnp.bool_)
    assert matmul_flops(jaxprs.trace(function, *args)) == {"float32": 6 * 2 * 64**3}
