"""What is read out of a traced pallas_call: what the interpreter then does, traffic, and work."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import chosen_rows, copy, shape

from kernels.machines.compat import Changed, jaxprs
from kernels.machines.pallas import calls, interprets
from kernels.machines.pallas.work import matmul_flops
from kernels.matmul import BlockSizes, matmul
from kernels.vector import iota

matrix = functools.partial(shape, dtype=jnp.float32)


def of_copy(x, out, grid, read, written, **options):
    """The call of a kernel that copies blocks of x."""
    options |= {"grid": grid, "in_specs": [read], "out_specs": written, "out_shape": matrix(*out)}
    (call,) = calls(pl.pallas_call(copy, **options), x)
    return call


def test_matmul_by_hand():
    block = BlockSizes(512, 1024, 512)
    (call,) = calls(functools.partial(matmul, block=block), matrix(1024, 1024), matrix(1024, 1024))
    assert (call.name, call.machine, call.grid) == ("matmul", "tpu", (2, 2, 1))
    assert call.semantics == ("parallel", "parallel", "arbitrary")
    x, y, z = call.operands
    assert [o.name for o in call.operands] == ["x", "y", "z"]
    assert [o.role for o in call.operands] == ["input", "input", "output"]
    assert [o.block for o in call.operands] == [(512, 1024), (1024, 512), (512, 512)]
    assert x.starts.tolist() == [[0, 0], [0, 0], [512, 0], [512, 0]]
    assert y.starts.tolist() == [[0, 0], [0, 512], [0, 0], [0, 512]]
    assert z.starts.tolist() == [[0, 0], [0, 512], [512, 0], [512, 512]]
    assert x.moved.tolist() == [True, False, True, False]
    assert [o.traffic >> 20 for o in call.operands] == [4, 8, 4] and call.problems() == []


def test_scalar_memory_and_a_gpu_kernel():
    (tpu,) = calls(lambda: iota(5))
    assert tpu.operands[0].memory == "smem" and tpu.grid == (5,)
    assert tpu.operands[0].traffic == 20
    (gpu,) = calls(lambda: iota(5, implementation="triton"))
    assert gpu.machine == "gpu" and gpu.operands[0].memory == "hbm"


def test_squeezed_and_element_dimensions():
    read = pl.BlockSpec((None, pl.Element(8), 128), lambda i: (i, 4, 0))
    written = pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))
    call = of_copy(matrix(3, 16, 128), (3, 8, 128), (3,), read, written)
    assert call.inputs[0].block == (1, 8, 128)
    assert call.inputs[0].starts.tolist() == [[0, 4, 0], [1, 4, 0], [2, 4, 0]]


def test_no_grid_and_whole_arrays():
    (call,) = calls(pl.pallas_call(copy, out_shape=matrix(8)), matrix(8))
    assert call.grid == () and call.programs.shape == (1, 0)
    assert not call.operands[0].blocked and call.operands[0].moved.tolist() == [True]
    assert call.name == "copy"


def test_every_call_is_found_through_jit_vmap_and_grad():
    def loss(x, y):
        return matmul(x, y, activation=jnp.tanh).sum()

    found = calls(jax.jit(jax.grad(loss, (0, 1))), matrix(16, 128), matrix(128, 128))
    assert len(found) == 4  # forward, the sums once more, dx, dy
    with pytest.raises(ValueError, match="without a pallas_call"):
        calls(jnp.sin, matrix(8, 8))


def shifted(index, grid=(4,)):
    read, written = pl.BlockSpec((8, 128), index), pl.BlockSpec((8, 128), lambda i: (i, 0))
    return of_copy(matrix(32, 128), (32, 128), grid, read, written)


@pytest.mark.parametrize(("by", "program", "start"), [(1, 3, 32), (-1, 0, -8)])
def test_an_index_outside_is_reported(by, program, start):
    says = f"input x: program ({program},) asks for the block that starts at {start}"
    assert shifted(lambda i: (i + by, 0)).problems()[0].startswith(says)


def test_an_output_block_without_a_program_is_reported():
    call = shifted(lambda i: (i, 0), grid=(3,))
    assert call.problems() == ["output o: 1 of its 4 blocks are written by no program"]
    empty = shifted(lambda i: (i, 0), grid=(0,))
    assert [operand.traffic for operand in empty.operands] == [0, 0]
    assert "4 of its 4 blocks" in empty.problems()[0]
    with pytest.raises(ValueError, match="at most 1048576 programs"):
        shifted(lambda i: (0, 0), grid=(1 << 21,))


@pytest.mark.parametrize(("aliases", "count"), [({0: 0}, 0), ({}, 1)])
def test_an_output_that_shares_an_input_s_memory_may_be_written_in_part(aliases, count):
    block, x = pl.BlockSpec((8, 128), lambda i: (2, 0)), matrix(32, 128)
    call = of_copy(x, (32, 128), (1,), block, block, input_output_aliases=aliases)
    assert len(call.problems()) == count


def test_starts_are_what_the_simulator_reads():
    """Each program copies its block out; the simulator's copy tells which block it was."""
    x = np.arange(32 * 256, dtype=np.float32).reshape(32, 256)

    def f(x, interpret=False):
        block = pl.BlockSpec((8, 128), lambda i, j: ((3 * j + i) % 4, 1 - i))
        row = pl.BlockSpec((8, 128), lambda i, j: (4 * i + j, 0))
        options = {"grid": (2, 4), "in_specs": [block], "out_specs": row, "interpret": interpret}
        return pl.pallas_call(copy, out_shape=matrix(8 * 8, 128), **options)(x)

    (call,) = calls(f, x)
    got = f(x, pltpu.InterpretParams())
    for step, (row, column) in enumerate(call.inputs[0].starts):
        assert np.array_equal(got[8 * step : 8 * step + 8], x[row : row + 8, column : column + 128])


PARAMS = pltpu.InterpretParams()


@pytest.mark.parametrize(
    ("asked", "backend", "answer"),
    [(None, "tpu", True), (None, "cpu", False), (False, "tpu", False), (PARAMS, "tpu", PARAMS)],
)
def test_interprets(asked, backend, answer):
    assert interprets(asked, backend) is answer


def blocked(m, k, n, *block):
    function = functools.partial(matmul, block=BlockSizes(*block), interpret=False)
    return function, shape(m, k), shape(k, n)


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
