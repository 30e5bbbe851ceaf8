"""Whether iterations of a loop depend on each other: what is refused, and what is not."""

import numpy as np
import pytest
from nkikernels import fetched, full, stored

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


def told(kernel, says, *arguments):
    """The result of a run in the order written, which warns; in another one it is refused."""
    with pytest.raises(NeuronError, match=says):
        neuron.simulate(kernel, X, *arguments, params=InterpretParams(order=2))
    with pytest.warns(UserWarning, match=says):
        return neuron.simulate(kernel, X, *arguments)


def test_a_number_that_is_replaced_by_itself_depends_on_no_order():
    @jit
    def kernel(x, add):
        tile = nl.ndarray((128, 64), dtype=x.dtype)
        nisa.dma_copy(tile[0:1, :], x[0:1, :])
        for i in nl.affine_range(4):
            part = tile[32 * i : 32 * i + 32, :]
            nisa.nc_stream_shuffle(part, tile[0:1, :], [0] * 32)
            if add:
                nisa.tensor_scalar(part, part, nl.add, 1.0)
        return stored(tile)

    assert (neuron.simulate(kernel, X, False) == X[0]).all()
    assert told(kernel, r"reads what iteration \d wrote", True) is not None


@pytest.mark.parametrize("x", [X, np.ones_like(X)])
@pytest.mark.parametrize(("width", "order"), [(16, None), (16, 0), (8, None), (8, 0), (8, 3)])
def test_a_scratch_tile_may_be_filled_in_parts_and_with_what_it_holds(x, width, order, recwarn):
    @jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        scratch, doubled = (nl.ndarray((128, 16), dtype=x.dtype) for _ in range(2))
        for i in nl.affine_range(4):
            for first in range(0, 16, width):
                part = x[:, 16 * i + first : 16 * i + first + width]
                nisa.dma_copy(scratch[:, first : first + width], part)
            nisa.tensor_scalar(doubled, scratch, nl.multiply, 2.0)
            nl.store(out[:, 16 * i : 16 * i + 16], doubled)
        return out

    result = neuron.simulate(kernel, x, params=InterpretParams(order=order))
    assert np.array_equal(result, 2 * x.astype(np.float64)) and not recwarn.list


def test_a_buffer_that_an_iteration_fills_by_a_pattern_is_its_own():
    @jit
    def kernel(x, columns):
        buffers = [nl.ndarray((128, 2, 8), dtype=x.dtype) for _ in range(2)]
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            tile = buffers[i % 2]
            nisa.dma_copy(
                tile.ap([[16, 128], [8, 2], [1, columns]]),
                x.ap([[64, 128], [8, 2], [1, columns]], offset=16 * i),
            )
            nl.store(out[:, 16 * i : 16 * i + 16], tile.reshape((128, 16)))
        return out

    assert np.array_equal(neuron.simulate(kernel, X, 8), X)
    with pytest.raises(NeuronError, match="never written"):
        neuron.simulate(kernel, X, 7)


@pytest.mark.parametrize(("width", "apart"), [(1, True), (2, False)])
def test_iterations_may_write_between_each_other_s_elements(width, apart):
    @jit
    def kernel(x):
        tile, woven = nl.load(x[:, 0:16]), nl.zeros((128, 65), dtype=x.dtype)
        for i in nl.affine_range(4):
            for more in range(width):
                dst = woven.ap([[65, 128], [4, 16]], offset=i + more)
                nisa.tensor_scalar(dst, tile, nl.multiply, 1.0 + i)
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, woven[:, 0:64])
        return out

    if apart:
        assert np.array_equal(neuron.simulate(kernel, X)[:, 1::4], 2 * X[:, :16])
        return
    told(kernel, "both wrote")


def carried(kind, loop):
    """A loop whose iterations hand something on, or do not."""

    def kernel(x):
        a, b = nl.load(x), nl.zeros(x.shape, dtype=x.dtype)
        total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        parts = []
        for i in loop(4):
            if kind == "a sum":
                nisa.tensor_tensor(b, b, a, nl.add)
            elif kind == "a sum in PSUM":
                nisa.nc_matmul(total, a, a)
            elif kind == "a tile of its own":
                c = full(x.shape, float(i), dtype=x.dtype)
                nisa.tensor_tensor(c, c, a, nl.add)
            elif kind == "begun anew each time":
                nisa.memset(b, float(i))
                nisa.tensor_tensor(b, b, a, nl.add)
            elif kind == "its own part":
                part = b[:, 16 * i : 16 * i + 16]
                nisa.tensor_scalar(part, part, nl.add, 1.0, op1=nl.multiply, operand1=2.0)
            elif kind == "a list":
                parts.append(nl.load(x))
            elif kind == "the part beside":
                if i:
                    nisa.tensor_copy(a[:, 16 * i : 16 * i + 16], a[:, 16 * i - 16 : 16 * i])
            elif kind == "what the last one left":
                nisa.tensor_scalar(b, b, nl.add, 1.0, op1=nl.multiply, operand1=2.0)
            elif kind == "the last one wins":
                nisa.tensor_scalar(b, a, nl.add, float(i))
            elif kind == "the last one wins, in part":
                nisa.tensor_scalar(b[:, 8 * i : 8 * i + 16], a[:, 0:16], nl.add, float(i))
            elif kind == "a tile carried over":
                c = nl.load(x)
                if parts:
                    nisa.tensor_tensor(c, c, parts[-1], nl.add)
                parts.append(c)
            elif kind == "written anew":
                nisa.tensor_scalar(b, a, nl.add, float(i))
            elif kind == "two operations":
                nisa.tensor_tensor(b, b, a, nl.add if i % 2 else nl.multiply)
        if kind == "written anew":
            nisa.memset(b, 0.0)
        return stored(parts[0] if parts else b)

    return jit(kernel)


FREE = ("a sum", "a sum in PSUM", "a list", "a tile of its own", "its own part", "written anew")
BOUND = ("the part beside", "what the last one left", "two operations")
LAST = ("the last one wins", "the last one wins, in part", "begun anew each time")
LOOP = "of the nl.affine_range at test_neuron_iterations.py:"
READS = rf"iteration \d {LOOP}\d+ reads what iteration \d"
# Which is last is open, so whoever reads it later is refused.
WROTE = rf"reads .* which iterations \d and \d {LOOP}\d+ both wrote"


@pytest.mark.parametrize("kind", FREE)
def test_iterations_that_do_not_depend_on_each_other(kind):
    assert neuron.simulate(carried(kind, nl.affine_range), X) is not None


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        *((kind, READS) for kind in BOUND),
        *((kind, WROTE) for kind in LAST),
        ("a tile carried over", rf"iteration \d {LOOP}\d+ reads .* which iteration \d made"),
    ],
)
def test_iterations_that_depend_on_each_other(kind, says):
    result = told(carried(kind, nl.affine_range), says)
    assert np.array_equal(result, neuron.simulate(carried(kind, nl.sequential_range), X))
    lax = InterpretParams(limits=False, order=0)
    other = neuron.simulate(carried(kind, nl.affine_range), X, params=lax)
    assert says != WROTE or not np.array_equal(result, other)


def orders(count, order):
    seen = []

    @jit
    def kernel(x):
        for i in nl.affine_range(count):
            seen.append(i)
        return stored(fetched(x))

    neuron.simulate(kernel, X, params=InterpretParams(order=order))
    return seen


def test_independent_iterations_run_in_the_order_asked_for():
    assert orders(5, None) == [0, 1, 2, 3, 4] and orders(5, 0) == [4, 3, 2, 1, 0]
    for seed in range(1, 20):
        assert orders(2, seed) == [1, 0] and orders(7, seed) == orders(7, seed) != list(range(7))
        assert sorted(orders(7, seed)) == list(range(7))
    assert orders(1, 3) == [0] and orders(0, 3) == []
