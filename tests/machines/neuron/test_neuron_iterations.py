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
    with pytest.raises(NeuronError, match="reads what iteration 0 wrote"):
        neuron.simulate(kernel, X, True)


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
    with pytest.raises(NeuronError, match=r"reads what iteration 0 wrote|never written"):
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
    with pytest.raises(NeuronError, match="both wrote"):
        neuron.simulate(kernel, X)


def carried(kind, loop):
    """A loop whose iterations hand something on, or do not."""

    def kernel(x):
        a, b = nl.load(x), nl.zeros(x.shape, dtype=x.dtype)
        total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        scratch, parts = nl.ndarray(x.shape, dtype=x.dtype), []
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
            elif kind == "a scratch tile":
                nisa.tensor_scalar(scratch, a, nl.add, float(i))
                nisa.tensor_copy(b[:, 16 * i : 16 * i + 16], scratch[:, 0:16])
            elif kind == "written anew":
                nisa.tensor_scalar(b, a, nl.add, float(i))
            elif kind == "two operations":
                nisa.tensor_tensor(b, b, a, nl.add if i % 2 else nl.multiply)
        if kind == "written anew":
            nisa.memset(b, 0.0)
        return stored(parts[0] if parts else b)

    return jit(kernel)


FREE = ("a sum", "a sum in PSUM", "a list", "a tile of its own", "its own part")
FREE += ("a scratch tile", "written anew")
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
        ("a tile carried over", rf"iteration 1 {LOOP}\d+ reads .* which iteration 0 made"),
    ],
)
def test_iterations_that_depend_on_each_other(kind, says):
    with pytest.raises(NeuronError, match=says):
        neuron.simulate(carried(kind, nl.affine_range), X)
    assert neuron.simulate(carried(kind, nl.sequential_range), X) is not None


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
    assert orders(5, None) == [0, 1, 2, 3, 4]
    assert orders(5, 0) == [4, 3, 2, 1, 0]
    for seed in range(1, 20):
        assert orders(2, seed) == [1, 0]
        assert orders(7, seed) == orders(7, seed) != list(range(7))
        assert sorted(orders(7, seed)) == list(range(7))
    assert orders(1, 3) == [0] and orders(0, 3) == []


def test_a_result_that_depends_on_the_order_changes():
    def kernel(x, loop):
        tile = fetched(x)
        for i in (nl.affine_range if loop else nl.sequential_range)(3):
            nisa.tensor_scalar(
                dst=tile, data=tile, op0=nl.add, operand0=float(i), op1=nl.multiply, operand1=2.0
            )
        return stored(tile)

    def run(loop, order):
        params = InterpretParams(limits=False, order=order)
        return neuron.simulate(jit(kernel), X, loop, params=params)

    with pytest.raises(NeuronError, match="reads what iteration 0 wrote into tile 1"):
        neuron.simulate(jit(kernel), X, True)
    assert np.array_equal(run(True, None), run(False, None))
    assert not np.array_equal(run(True, 0), run(False, 0))
    assert np.array_equal(run(False, None), run(False, 0))
