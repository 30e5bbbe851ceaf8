"""What is read out of a traced pallas_call is what the interpreter then does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import copy, shape

from kernels.machines.pallas import calls, interprets
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
    assert [o.traffic >> 20 for o in call.operands] == [4, 8, 4]
    assert call.problems() == []


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


def test_a_function_without_a_kernel_is_refused():
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


@pytest.mark.parametrize(("aliases", "count"), [({0: 0}, 0), ({}, 1)])
def test_an_output_that_shares_an_input_s_memory_may_be_written_in_part(aliases, count):
    block, x = pl.BlockSpec((8, 128), lambda i: (2, 0)), matrix(32, 128)
    call = of_copy(x, (32, 128), (1,), block, block, input_output_aliases=aliases)
    assert len(call.problems()) == count


def test_a_grid_too_large_to_look_at_is_refused():
    with pytest.raises(ValueError, match="at most 1048576 programs"):
        shifted(lambda i: (0, 0), grid=(1 << 21,))


def test_starts_are_what_the_simulator_reads():
    """Each program copies its block out; the simulator's copy tells which block it was."""
    x = np.arange(32 * 256, dtype=np.float32).reshape(32, 256)

    def f(x, interpret=False):
        return pl.pallas_call(
            copy,
            out_shape=matrix(8 * 8, 128),
            grid=(2, 4),
            in_specs=[pl.BlockSpec((8, 128), lambda i, j: ((3 * j + i) % 4, 1 - i))],
            out_specs=pl.BlockSpec((8, 128), lambda i, j: (4 * i + j, 0)),
            interpret=interpret,
        )(x)

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
