"""What later cores have, and what several cores do together, held against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from nkiarrays import COLUMN, RNG, TRUTH, X
from nkikernels import full, run, stored

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, modern
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl


def test_range_select_of_v3():
    low, high = np.full((64, 1), 5, np.float32), COLUMN * 10 + 20

    def body(dst, a, lo, hi):
        nisa.range_select(dst, a, nl.greater_equal, nl.less, lo, hi)

    want = np.where((np.arange(48) >= low) & (np.arange(48) < high), X, np.finfo(np.float32).min)
    assert np.array_equal(run(body, X, low, high, chip="trn2"), want)
    with pytest.raises(NeuronError, match=r"range_select needs NeuronCore-v3 \(trn2\); inf2 has"):
        run(body, X, low, high)


@pytest.mark.parametrize("start", [0, 4, 12])
def test_products_of_scaled_float8_of_v4(start):
    x = RNG.standard_normal((64, 4 * 32)).astype(ml_dtypes.bfloat16)
    y = RNG.standard_normal((64, 4 * 16)).astype(ml_dtypes.bfloat16)

    def body(dst, a, b):
        sides = []
        for tile in (a, b):
            quads = nl.ndarray((64, tile.shape[1] // 4), dtype=nl.float8_e4m3fn_x4)
            scales = nl.ndarray(quads.shape, dtype=nl.uint8)[start:, :]
            nisa.quantize_mx(quads, tile, scales)
            sides.append((quads, scales))
        total = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(total, sides[0][0], sides[1][0], sides[0][1], sides[1][1])
        return total

    got = run(body, x, y, chip="trn3")
    want = np.einsum(
        "kmq,knq->mn",
        x.astype(np.float64).reshape(64, 32, 4),
        y.astype(np.float64).reshape(64, 16, 4),
    )
    # Three bits of a mantissa on either side: a term errs by an eighth of its size.
    size = np.einsum("kmq,knq->mn", *(abs(a.astype(float)).reshape(64, -1, 4) for a in (x, y)))
    assert (np.abs(got - want) <= size / 8).all()


@pytest.mark.parametrize("dtype", [nl.float4_e2m1fn_x4, nl.float8_e4m3fn_x4])
def test_products_of_packed_numbers_take_the_lowest_bits_first(dtype):
    """A row of numbers that differ: in which order they lie in an element shows in the product."""
    each = np.array([0.5, 1, 2, -6], np.float32)
    bits = {"float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 4, np.uint16)}.get(
        neuron.dtypes.name(dtype), (ml_dtypes.float8_e4m3fn, 8, np.uint32)
    )
    element, width, whole = bits
    codes = each.astype(element).view(np.uint8).astype(whole)
    a = np.full((32, 2), sum(code << whole(width * i) for i, code in enumerate(codes)), whole)
    one = int(np.array(1, element).view(np.uint8))
    picks = [one << (width * column) for column in range(4)]  # a number out of each element
    b = np.tile(np.array(picks, whole), (32, 1))
    scale = np.full((32, 4), 128, np.uint8)  # 2 each

    @modern.jit
    def kernel(a, b, scale):
        x = nl.ndarray((32, 2), dtype=dtype)
        y = nl.ndarray((32, 4), dtype=dtype)
        nisa.dma_copy(x, a.ap([[2, 32], [1, 2]], dtype=dtype))
        nisa.dma_copy(y, b.ap([[4, 32], [1, 4]], dtype=dtype))
        scales = nl.load(scale)
        total = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(total, x, y, scales[:, 0:2], scales)
        return stored(total)

    got = neuron.simulate(kernel, a, b, scale, params=neuron.InterpretParams(chip="trn3"))
    assert np.array_equal(got, np.tile(32 * 2 * 2 * each, (2, 1)))


def test_nonzero_with_count_of_v3():
    x = TRUTH[:17].astype(np.int32)

    def body(dst, a):
        places = full((17, 49), 0, dtype=nl.int32)
        nisa.nonzero_with_count(places, a, index_offset=3)
        return places

    got = run(body, x, chip="trn2")
    places = np.flatnonzero(x[16]) + 3
    assert got[16, : len(places)].tolist() == places.tolist() and got[16, -1] == len(places)
    assert not got[1].any()


def test_double_rows_of_float8_of_v3():
    x = RNG.integers(-2, 3, (64, 2, 8)).astype(ml_dtypes.float8_e5m2)
    y = RNG.integers(-2, 3, (64, 2, 12)).astype(ml_dtypes.float8_e5m2)

    def body(dst, a, b):
        total = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, a, b, perf_mode=nisa.matmul_perf_mode.double_row)
        return total

    want = np.einsum("kdm,kdn->mn", x.astype(float), y.astype(float))
    assert np.array_equal(run(body, x, y, chip="trn2"), want)


def test_a_grid_of_programs():
    @modern.jit
    def kernel(x):
        i, j = nl.program_id(0), nl.program_id(1)
        assert nl.num_programs((0, 1)) == (2, 3) and nl.program_ndim() == 2
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        part = x[i * 32 : (i + 1) * 32, j * 16 : (j + 1) * 16]
        tile = nl.multiply(nl.load(part), float(i + j))
        nl.store(out[i * 32 : (i + 1) * 32, j * 16 : (j + 1) * 16], tile)
        return out

    factor = np.repeat(np.repeat(np.add.outer(np.arange(2), np.arange(3)), 32, 0), 16, 1)
    factor = factor.astype(np.float32)
    for order in (None, 0):
        got = neuron.simulate(kernel[2, 3], X, params=InterpretParams(order=order))
        assert np.array_equal(got, X * factor)
    with pytest.raises(NeuronError, match=r"program_id\(1\): the grid has 1 dimensions"):
        neuron.simulate(kernel[2], X)


def test_programs_may_write_the_same_and_nothing_else():
    @modern.jit
    def kernel(x, factor):
        return stored(nl.add(nl.load(x), float(factor * nl.program_id(0))))

    assert np.array_equal(neuron.simulate(kernel[2], X, 0), X)
    with pytest.raises(NeuronError, match=r"dma_copy writes 3072 elements .* a second time"):
        neuron.simulate(kernel[2], X, 1)


def test_two_cores_exchange_tiles_and_meet():
    @modern.jit
    def kernel(x):
        me = nl.program_id(0)
        mine = nl.load(x[me * 32 : (me + 1) * 32, :])
        total = nl.zeros(mine.shape, mine.dtype)
        for tile in (mine, nl.add(mine, mine)):  # on one pipe: the second must not overtake
            theirs = nl.ndarray(mine.shape, mine.dtype)
            nisa.sendrecv(tile, theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
            total = nl.add(nl.add(total, total), theirs)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out[me * 32 : (me + 1) * 32, :], total)
        nisa.core_barrier(out, (0, 1))
        other = nl.load(out[(1 - me) * 32 : (2 - me) * 32, :])
        last = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(last[me * 32 : (me + 1) * 32, :], other)
        return last

    assert np.array_equal(neuron.simulate(kernel[2], X), 4 * X)
    with pytest.raises(NeuronError, match=r"there is one core; start the kernel with kernel\[2\]"):
        neuron.simulate(kernel, X)


def test_a_core_that_never_comes():
    @modern.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(out, (0, 1))
        return out

    with pytest.raises(NeuronError, match="waits for one that has ended and never comes"):
        neuron.simulate(kernel[2], X)
