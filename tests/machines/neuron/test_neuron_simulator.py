"""The simulated core computes what NumPy does, and refuses each planted fault, not its twin."""

import ml_dtypes
import numpy as np
import pytest
from close import assert_close
from hypothesis import given
from hypothesis import strategies as st

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
LAX = InterpretParams(limits=False)


def fetched(x):
    """An argument, in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile, shape=None):
    """A tile, as the kernel's output."""
    out = nl.ndarray(shape or tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out if shape is None else out[0 : tile.shape[0], 0 : tile.shape[1]], src=tile)
    return out


# --- arithmetic ----------------------------------------------------------------------------------

UNARY = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "square": np.square,
}
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


@given(
    rows=st.integers(1, 128),
    columns=st.integers(1, 97),
    name=st.sampled_from(BINARY),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)
def test_instructions_compute_what_numpy_does(rows, columns, name, dtype):
    @jit
    def kernel(x, y):
        a, b = fetched(x), fetched(y)
        c = nl.ndarray(x.shape, dtype=x.dtype)
        op, column = getattr(nl, name), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.tensor_copy(dst=column, src=b[:, 0:1])
        nisa.tensor_tensor(dst=c, data1=a, data2=b, op=op)
        nisa.tensor_scalar(
            dst=a, data=c, op0=op, operand0=0.5, reverse0=True, op1=nl.add, operand1=column
        )
        nisa.scalar_tensor_tensor(
            dst=b, data=a, op0=nl.multiply, operand0=2.0, op1=op, operand1=c, reverse1=True
        )
        return stored(c), stored(a), stored(b)

    rng = np.random.default_rng(rows * columns)
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, y = (rng.standard_normal((rows, columns)).astype(dtype) for _ in "xy")
    f, wide = getattr(np, name), np.float32
    c = f(x.astype(wide), y.astype(wide)).astype(dtype)
    a = (f(wide(0.5), c.astype(wide)) + y[:, 0:1].astype(wide)).astype(dtype)
    b = f(c.astype(wide), 2 * a.astype(wide)).astype(dtype)
    for params in (None, LAX, InterpretParams(order=3)):
        got = neuron.simulate(kernel, x, y, params=params)
        assert [g.dtype for g in got] == [dtype] * 3
        for mine, theirs in zip(got, (c, a, b), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("name", UNARY)
def test_activations(name):
    @jit
    def kernel(x):
        tile, bias = fetched(x), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.memset(dst=bias, value=0.25)
        nisa.activation(dst=tile, op=getattr(nl, name), data=tile, bias=bias, scale=2.0)
        return stored(tile)

    assert np.array_equal(neuron.simulate(kernel, X), UNARY[name](X * 2 + np.float32(0.25)))


@pytest.mark.parametrize("engine", ["Vector", "Scalar"])
def test_reciprocals_on_either_engine(engine):
    @jit
    def kernel(x):
        tile = fetched(x)
        if engine == "Scalar":
            nisa.activation(dst=tile, op=nl.reciprocal, data=tile)
        else:
            nisa.reciprocal(dst=tile, data=tile)
        return stored(tile)

    assert np.array_equal(neuron.simulate(kernel, X), 1 / X)


def test_the_tensor_engine_multiplies_into_psum():
    @jit
    def kernel(x, y):
        a, b = fetched(x), fetched(y)
        total = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=a, moving=b)
        nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=True)
        c = nl.ndarray(total.shape, dtype=nl.float32)
        nisa.tensor_copy(dst=c, src=total)
        return stored(c)

    y = X[:, :32] + 1
    wide = X.astype(np.float64), y.astype(np.float64)
    want, size = 2 * wide[0].T @ wide[1], 2 * abs(wide[0]).T @ abs(wide[1])
    assert_close(neuron.simulate(kernel, X, y), want, 2 * X.T @ y, size)


@pytest.mark.parametrize("accumulate", [None, "after the first"])
@pytest.mark.parametrize("params", [None, LAX])
def test_a_sum_of_products_in_psum(accumulate, params):
    """The first product overwrites, the others add: 0 + 1 + 2 times X by itself."""

    @jit
    def kernel(x):
        a, c = fetched(x), nl.ndarray((64, 64), dtype=nl.float32)
        total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        for turn in range(3):
            b = nl.ndarray(x.shape, dtype=x.dtype)
            nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=float(turn))
            adds = None if accumulate is None else turn > 0
            nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=adds)
        nisa.tensor_copy(dst=c, src=total)
        return stored(c)

    x = np.round(X)  # so that every sum is exact
    assert np.array_equal(neuron.simulate(kernel, x, params=params), 3 * x.T @ x)


def test_two_products_of_ones_into_one_tile():
    @jit
    def kernel(x):
        a, c = fetched(x), nl.ndarray((64, 64), dtype=nl.float32)
        total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=total, stationary=a, moving=a)
        nisa.tensor_copy(dst=c, src=total)
        return stored(c)

    assert (neuron.simulate(kernel, np.ones_like(X)) == 256).all()


def test_views_share_memory_and_strides_run_along_a_partition():
    @jit
    def kernel(x):
        tile = fetched(x)
        nisa.tensor_scalar(dst=tile[:, 1:64:4], data=tile[:, 1:64:4], op0=nl.add, operand0=1.0)
        cube = tile.reshape((128, 16, 4))
        nisa.tensor_scalar(dst=cube[:, :, 2], data=cube[:, :, 2], op0=nl.multiply, operand0=3.0)
        return stored(tile)

    want = X.copy()
    want[:, 1::4] += 1
    want[:, 2::4] *= 3
    assert np.array_equal(neuron.simulate(kernel, X), want)


def test_an_index_on_chip_keeps_two_dimensions_and_in_hbm_does_not():
    @jit
    def kernel(x):
        tile = fetched(x)
        assert tile[0].shape == (1, 64) and tile[:, 3].shape == (128, 1)
        assert tile.reshape((128, 4, 16))[:, 1, :].shape == (128, 16)
        assert x[3].shape == (64,) and x[..., 5].shape == (128,)
        return stored(tile)

    neuron.simulate(kernel, X)


def test_arguments_that_a_kernel_writes_to_are_updated():
    @jit
    def kernel(x, out):
        nisa.dma_copy(dst=out, src=fetched(x))

    out = np.zeros_like(X)
    assert neuron.simulate(kernel, X, out) is None and np.array_equal(out, X)


# --- what is refused -----------------------------------------------------------------------------


def partitions(x, bad):
    nl.ndarray((129 if bad else 128, 4), dtype=nl.float32)
    return stored(fetched(x))


def partition_stride(x, bad):
    tile = fetched(x)
    part = tile[0:64:2, :] if bad else tile[0:64, :]
    nisa.tensor_copy(dst=part, src=part)
    return stored(tile)


def start(x, bad, at=16, height=32):
    tile = fetched(x)
    first = at if bad else 0
    part = tile[first : first + height, :]
    nisa.tensor_scalar(dst=part, data=part, op0=nl.add, operand0=1.0)
    return stored(tile)


def start_after_reshape(x, bad):
    part = fetched(x).reshape((128, 8, 8))[16 if bad else 32 : 64, :, :]
    nisa.tensor_copy(dst=part, src=part)
    return stored(fetched(x))


def start_of_half(x, bad):
    return start(x, bad, at=32, height=64)


def start_of_most(x, bad):
    return start(x, bad, at=32, height=96)


def hbm_operand(x, bad):
    tile = fetched(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=x if bad else tile, op=nl.add)
    return stored(tile)


def operator(x, bad):
    tile = fetched(x)
    return stored(tile * 2 if bad else tile)


def never_written(x, bad):
    tile, half = fetched(x), nl.ndarray(x.shape, dtype=x.dtype)
    nisa.tensor_copy(dst=half[:, 0:63] if bad else half, src=tile[:, 0:63] if bad else tile)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=half, op=nl.add)
    return stored(tile)


def out_of_bounds(x, bad):
    tile = nl.ndarray((28, 64), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x[100 : 129 if bad else 128, :])
    return stored(tile)


def out_of_bounds_index(x, bad):
    tile = fetched(x)
    nisa.tensor_copy(dst=tile[:, 0], src=tile[:, 64 if bad else -1])
    return stored(tile)


def written_twice(x, bad):
    tile, out = fetched(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(
        dst=out[0:65, :] if bad else out[0:64, :], src=tile[0:65, :] if bad else tile[0:64, :]
    )
    nisa.dma_copy(dst=out[64:128, :], src=tile[64:128, :])
    return out


def never_stored(x, bad):
    tile, out = fetched(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[:, 0 : 63 if bad else 64], src=tile[:, 0 : 63 if bad else 64])
    return out


def sbuf_tile(x, bad):
    nl.ndarray((128, 48 * 1024 + bad), dtype=nl.float32)
    return stored(fetched(x))


def sbuf_live(x, bad):
    """Two tiles of half the memory, and x: too much only if both are live at once."""
    tile = fetched(x)
    a = nl.ndarray((128, 24 * 1024), dtype=nl.float32)
    b = nl.ndarray((128, 24 * 1024), dtype=nl.float32)
    nisa.memset(dst=a, value=0.0)
    if not bad:
        nisa.tensor_copy(dst=a[:, 0:1], src=a[:, 1:2])
    nisa.memset(dst=b, value=0.0)
    nisa.tensor_copy(dst=tile[:, 0:1], src=b[:, 0:1])
    if bad:
        nisa.tensor_copy(dst=tile[:, 0:1], src=a[:, 0:1])
    return stored(tile)


def psum_tile(x, bad):
    nl.ndarray((128, 4096 + bad), dtype=nl.float32, buffer=nl.psum)
    return stored(fetched(x))


def psum_banks(x, bad):
    """Eight small tiles fill the eight banks; a ninth has none."""
    tile, banks = fetched(x), []
    for _ in range(9 if bad else 8):
        bank = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=bank, src=tile[:, 0:1])
        banks.append(bank)
    for bank in banks:
        nisa.tensor_copy(dst=tile[:, 0:1], src=bank)
    return stored(tile)


def shapes(x, bad):
    tile = fetched(x)
    nisa.tensor_tensor(
        dst=tile[:, 0:32], data1=tile[:, 0:32], data2=tile[:, 0 : 1 if bad else 32], op=nl.add
    )
    return stored(tile)


def heights(x, bad):
    tile = fetched(x)
    nisa.tensor_copy(dst=tile[0:64, :], src=tile[64 : 96 if bad else 128, :])
    return stored(tile)


def column(x, bad):
    tile = fetched(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=tile[:, 0 : 2 if bad else 1])
    return stored(tile)


def copy_shapes(x, bad):
    tile = nl.ndarray((64 if bad else 128, 64), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    return stored(tile)


def division(x, bad):
    tile = fetched(x)
    op = nl.divide if bad else nl.multiply
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=op)
    return stored(tile)


def grids(x, bad):
    tile = fetched(x)
    return stored(tile[np.arange(128)[:, None], 0:64] if bad else tile[0:128, 0:64])


def masks(x, bad):
    tile = fetched(x)
    more = {"mask": 1} if bad else {}
    nisa.tensor_copy(dst=tile, src=tile, **more)
    return stored(tile)


def no_dst(x, bad):
    tile = fetched(x)
    if bad:
        nisa.reciprocal(data=tile)
    else:
        nisa.reciprocal(dst=tile, data=tile)
    return stored(tile)


def no_dst_in_a_helper(x, bad):
    no_dst(x, bad)
    return stored(fetched(x))


def assignment(x, bad):
    tile = fetched(x)
    if bad:
        tile[0:64, :] = tile[64:128, :]
    return stored(tile)


def both_in_psum(x, bad):
    tile = fetched(x)
    a, b = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.psum) for _ in "ab")
    nisa.tensor_copy(dst=a, src=tile)
    nisa.tensor_copy(dst=b, src=tile)
    nisa.tensor_tensor(dst=tile, data1=a, data2=b if bad else tile, op=nl.add)
    return stored(tile)


def dma_of_psum(x, bad):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.psum if bad else nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return stored(tile)


def gpsimd_on_psum(x, bad):
    tile, a = fetched(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.psum)
    nisa.tensor_copy(dst=a, src=tile, engine=nisa.engine.gpsimd if bad else nisa.engine.vector)
    return stored(tile)


def not_in_hbm(x, bad):
    tile = fetched(x)
    return tile if bad else stored(tile)


def length(x, bad):
    tile = fetched(x)
    return stored(tile[0 : len(tile) if bad else 128, :])


def looped(x, bad):
    tile = fetched(x)
    for row in tile if bad else ():
        nisa.memset(dst=row, value=0.0)
    return stored(tile)


def one_dimension(x, bad):
    nl.ndarray((4,) if bad else (4, 1), dtype=nl.float32)
    return stored(fetched(x))


def no_dimension(x, bad):
    nl.ndarray((4, 0 if bad else 1), dtype=nl.float32)
    return stored(fetched(x))


def reshaped_partitions(x, bad):
    return stored(fetched(x).reshape((64, 128) if bad else (128, 64)))


def copied_pieces(x, bad):
    tile = fetched(x).reshape((128, 8, 8))
    (tile[:, :, 0:4] if bad else tile[:, 0:4, :]).reshape((128, 32))
    return stored(fetched(x))


def many_indices(x, bad):
    tile = fetched(x)
    return stored(tile[:, :, 0:1] if bad else tile[:, 0:1])


def wrong_engine(x, bad):
    tile = fetched(x)
    engine = nisa.engine.scalar if bad else nisa.engine.gpsimd
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add, engine=engine)
    return stored(tile)


def number_operand(x, bad):
    tile = fetched(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=1.0 if bad else tile, op=nl.add)
    return stored(tile)


def text_operand(x, bad):
    tile = fetched(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0="1" if bad else 1.0)
    return stored(tile)


def unary_operation(x, bad):
    tile = fetched(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.relu if bad else nl.add)
    return stored(tile)


def binary_activation(x, bad):
    tile = fetched(x)
    nisa.activation(dst=tile, op=nl.add if bad else nl.relu, data=tile)
    return stored(tile)


def foreign_operation(x, bad):
    tile = fetched(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=np.add if bad else nl.add)
    return stored(tile)


def product(x, m=64, n=32, k=128, memory=nl.psum, operands=nl.sbuf, dtype=nl.float32):
    a, b = nl.ndarray((128, m), dtype=x.dtype), nl.ndarray((128, n), dtype=x.dtype, buffer=operands)
    nisa.memset(dst=a, value=1.0)
    nisa.memset(dst=b, value=1.0)
    total = nl.ndarray((min(m, 128), n), dtype=dtype, buffer=memory)
    nisa.nc_matmul(dst=total, stationary=a[0:k, :], moving=b)
    return stored(fetched(x))


def product_into_sbuf(x, bad):
    return product(x, memory=nl.sbuf if bad else nl.psum)


def product_of_psum(x, bad):
    return product(x, operands=nl.psum if bad else nl.sbuf)


def product_of_sizes(x, bad):
    return product(x, k=64 if bad else 128)


def product_too_wide(x, bad):
    return product(x, n=513 if bad else 512)


def product_too_long(x, bad):
    """dst would fit, were it [129, 32]: no tile has so many partitions."""
    return product(x, m=129 if bad else 128)


def accumulated(x, bad, prepare, accumulate=True):
    """A product that adds to what `prepare` leaves in PSUM."""
    a, c = fetched(x), nl.ndarray((64, 64), dtype=nl.float32)
    total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    prepare(total, a, bad)
    nisa.nc_matmul(dst=total, stationary=a, moving=a, accumulate=accumulate if bad else None)
    nisa.tensor_copy(dst=c, src=total)
    return stored(c)


def sum_on_nothing(x, bad):
    return accumulated(x, bad, prepare=lambda total, a, bad: None)


def sum_on_zeros(x, bad):
    return accumulated(x, bad, prepare=lambda total, a, bad: nisa.memset(dst=total, value=0.0))


def sum_on_a_half(x, bad):
    def half(total, a, bad):
        part = total[:, 0:32] if bad else total
        nisa.nc_matmul(dst=part, stationary=a, moving=a[:, 0:32] if bad else a)

    return accumulated(x, bad, prepare=half, accumulate=None)


def sum_perhaps(x, bad):
    return accumulated(x, bad, prepare=lambda total, a, bad: None, accumulate="first")


FAULTS = [
    (sum_on_nothing, "no product has written 4096 of the 4096 elements of dst"),
    (sum_on_zeros, "so there is nothing to add to; start with accumulate=False"),
    (sum_on_a_half, "no product has written 2048 of the 4096 elements"),
    (sum_perhaps, "accumulate is 'first'; accepted: None, True and False"),
    (length, r"len\(tile 1"),
    (looped, "a loop over tile 1"),
    (one_dimension, "has one dimension"),
    (no_dimension, r"ndarray of shape \(4, 0\): dimensions are whole numbers of at least 1"),
    (reshaped_partitions, "the partitions cannot change"),
    (copied_pieces, "not the same elements in one piece"),
    (many_indices, "is indexed in 3 dimensions, and has 2"),
    (wrong_engine, "tensor_tensor cannot run on engine.scalar; accepted: Vector, GpSimd"),
    (number_operand, "tensor_tensor: data2 is a float; accepted: a tile"),
    (text_operand, "operand is '1'; accepted: a number"),
    (unary_operation, "nl.relu takes 1 operands, here 2"),
    (binary_activation, "nl.add takes 2 operands, here 1"),
    (foreign_operation, "accepted: an operation of nki.language"),
    (product_into_sbuf, "the Tensor engine writes PSUM only"),
    (product_of_psum, "the Tensor engine reads SBUF only"),
    (product_of_sizes, "do not make dst"),
    (product_too_wide, "at most 128 stationary and 512 moving"),
    (product_too_long, "do not make dst"),
    (partitions, "has 129 partitions; there are 128"),
    (partition_stride, "step 2 along the partitions"),
    (start, "starts at partition 16; 32 partitions may start at 0, 32, 64, 96"),
    (start_after_reshape, "starts at partition 16; 48 partitions may start at 0, 64"),
    (start_of_half, "starts at partition 32; 64 partitions may start at 0, 64"),
    (start_of_most, "starts at partition 32; 96 partitions may start at 0"),
    (hbm_operand, "tensor_tensor: x .* in shared_hbm; an engine reaches SBUF and PSUM only"),
    (operator, r"the operator \* on tile 1"),
    (never_written, "tensor_tensor reads 128 elements of tile 2 .* that were never written"),
    (out_of_bounds, "slice 100:129 of x .* is out of bounds: dimension 0 has 128"),
    (out_of_bounds_index, "index 64 of tile 1 .* is out of bounds"),
    (written_twice, "dma_copy writes 64 elements of tensor 1 .* a second time"),
    (never_stored, "128 of 8192 elements of the output tensor 1 .* were never written"),
    (sbuf_tile, r"ndarray: a tile \[128, 49153\] .* which has 192 KiB"),
    (sbuf_live, "memset: 3 live tiles take 192.2 KiB .* which has 192 KiB"),
    (psum_tile, "which has 16 KiB"),
    (psum_banks, "tensor_copy: 9 live tiles take 18.0 KiB .* of PSUM, which has 16 KiB"),
    (shapes, "nothing is broadcast"),
    (heights, "tensor_copy: .* differ"),
    (column, r"accepted: \[128, 1\]"),
    (copy_shapes, "dma_copy: src x .* and dst tile 1 .* differ in shape"),
    (division, "nki.language has no divide: multiply by nisa.reciprocal"),
    (grids, "is indexed with a ndarray; accepted: whole numbers, slices"),
    (masks, "tensor_copy with mask=: masks are gone"),
    (no_dst, "reciprocal without dst"),
    (no_dst_in_a_helper, r"reciprocal without dst: .* \(test_neuron_simulator.py:\d+\)"),
    (assignment, "assignment into tile 1"),
    (both_in_psum, "only one of the inputs may be in PSUM"),
    (dma_of_psum, "a DMA does not reach PSUM"),
    (gpsimd_on_psum, "the GpSimd engine does not reach PSUM"),
    (not_in_hbm, "accepted: a tensor with buffer=nl.shared_hbm"),
]


@pytest.mark.parametrize(("kernel", "says"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_a_fault_is_refused_and_its_twin_is_not(kernel, says):
    assert neuron.simulate(jit(kernel), X, False) is not None
    with pytest.raises(NeuronError, match=says) as caught:
        neuron.simulate(jit(kernel), X, True)
    assert "\n" not in str(caught.value)


def test_the_message_names_the_kernel_s_line():
    with pytest.raises(NeuronError, match=r"\(test_neuron_simulator.py:\d+\)$"):
        neuron.simulate(jit(hbm_operand), X, True)


LIMITS = [partitions, partition_stride, start, hbm_operand, operator, written_twice, sbuf_tile]


@pytest.mark.parametrize("kernel", [*LIMITS, psum_banks, shapes])
def test_without_limits_only_numpy_s_needs_count(kernel):
    with pytest.raises(NeuronError):
        neuron.simulate(jit(kernel), X, True)
    try:
        got = neuron.simulate(jit(kernel), X, True, params=LAX)
    except NeuronError as error:
        pytest.fail(f"refused without limits: {error}")
    assert got.shape[1] == 64


def test_what_numpy_cannot_do_is_refused_without_limits_too():
    def kernel(x):
        tile = fetched(x)
        nisa.tensor_copy(dst=tile[:, 0:3], src=tile[:, 0:5])
        return stored(tile)

    with pytest.raises(NeuronError, match=r"a result of shape \[128, 5\] does not fit into dst"):
        neuron.simulate(jit(kernel), X, params=LAX)


def test_fresh_memory_is_zero_without_limits():
    got = neuron.simulate(jit(never_stored), X, True, params=LAX)
    assert not got[:, 63].any() and np.array_equal(got[:, :63], X[:, :63])


def test_nan_is_a_number_like_another():
    """Whether an element was written is kept apart from what it holds."""
    x = X.copy()
    x[3, 5] = np.nan
    assert np.array_equal(neuron.simulate(jit(hbm_operand), x, False), x + x, equal_nan=True)


def test_our_own_mistakes_are_not_blamed_on_the_kernel(monkeypatch):
    monkeypatch.setattr(neuron.simulator.NeuronMachine, "copy", lambda self, name, dst: None)
    with pytest.raises(TypeError, match="positional"):
        neuron.simulate(jit(hbm_operand), X, False)


def test_an_instruction_outside_a_kernel_is_refused():
    with pytest.raises(NeuronError, match="outside a kernel"):
        nl.ndarray((1, 1), dtype=nl.float32)


def test_the_machine_is_free_again_after_an_error():
    with pytest.raises(NeuronError):
        neuron.simulate(jit(hbm_operand), X, True)
    with pytest.raises(NeuronError, match="outside a kernel"):
        nl.ndarray((1, 1), dtype=nl.float32)


# --- order ---------------------------------------------------------------------------------------


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


# --- beta 1 --------------------------------------------------------------------------------------


def beta(kernel, *arguments, **options):
    from kernels.machines.neuron.beta1 import jit as beta_jit

    return neuron.simulate(beta_jit(kernel), *arguments, **options)


@given(rows=st.integers(1, 260), columns=st.integers(1, 40))
def test_beta_1_grids_masks_and_operators(rows, columns):
    def kernel(x, y):
        out = bl.ndarray((rows, columns), dtype=x.dtype, buffer=bl.shared_hbm)
        i_f, i_2 = bl.arange(columns)[None, :], bl.arange(2 * columns)[None, :]
        for part in bl.affine_range((rows + 127) // 128):
            i_p = bl.arange(128)[:, None]
            inside = part * 128 + i_p < rows
            a = bl.load(x[part * 128 + i_p, i_2], mask=inside)
            b = bl.load(y[part * 128 + i_p, i_f], mask=inside)
            c = 2.0 * a[i_p, 2 * i_f] - bl.maximum(a[i_p, 2 * i_f + 1], 0.0) / (b * b + 1)
            bl.store(out[part * 128 + i_p, i_f], c, mask=inside)
        return out

    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 2 * columns)).astype(np.float32)
    y = rng.standard_normal((rows, columns)).astype(np.float32)
    want = 2 * x[:, ::2] - np.maximum(x[:, 1::2], 0) / (y * y + 1)
    for params in (None, LAX, InterpretParams(order=1)):
        assert np.array_equal(beta(kernel, x, y, params=params), want)


def beta_no_mask(x, bad):
    out = bl.ndarray((100, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    i_p, i_f = bl.arange(128)[:, None], bl.arange(64)[None, :]
    tile = bl.load(x[i_p, i_f], mask=i_p < 100)
    bl.store(out[i_p, i_f], tile, mask=None if bad else i_p < 100)
    return out


def beta_masked_garbage(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    i_p, i_f = bl.arange(128)[:, None], bl.arange(64)[None, :]
    tile = bl.load(x[i_p, i_f], mask=i_p < (100 if bad else 128))
    bl.store(out[i_p, i_f], tile + 1.0)
    return out


def beta_partitions(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.ndarray((129 if bad else 128, 1), dtype=x.dtype)
    tile[...] = 0.0
    bl.store(out, bl.load(x))
    return out


def beta_hbm_operand(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out, tile + (x if bad else tile))
    return out


def beta_stride(x, bad):
    out = bl.ndarray((64, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    i_p, i_f = bl.arange(64)[:, None], bl.arange(64)[None, :]
    tile = bl.load(x)
    bl.store(out, tile[(2 if bad else 1) * i_p, i_f] + 1.0)
    return out


def beta_fresh(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.ndarray(x.shape, dtype=x.dtype)
    if not bad:
        tile[...] = bl.load(x)
    bl.store(out, tile + 1.0)
    return out


def beta_twice(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out[0:64, :], tile[0:64, :])
    bl.store(out[0:64, :] if bad else out[64:128, :], tile[64:128, :])
    return out


def beta_mixed_index(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    i_p, i_f = bl.arange(128)[:, None], bl.arange(64)[None, :]
    bl.store(out, bl.load(x[i_p, 0:64] if bad else x[i_p, i_f]))
    return out


def beta_heights(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    total = tile[0:64, :] + tile[64 : 66 if bad else 128, :]
    bl.store(out[0:64, :], total)
    bl.store(out[64:128, :], total)
    return out


def beta_widths(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out, tile + tile[:, 0 : 2 if bad else 1])
    return out


def beta_load_of_a_tile(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out, bl.load(tile) if bad else tile)
    return out


def beta_store_into_a_tile(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile, other = bl.load(x), bl.load(x)
    if bad:
        bl.store(other, tile)
    bl.store(out, other)
    return out


def beta_store_shapes(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out, tile[:, 0:32] if bad else tile)
    return out


def beta_start(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    i_p, i_f = bl.arange(32)[:, None], bl.arange(64)[None, :]
    for part in range(4):
        shift = 16 if bad and part == 0 else 32 * part
        bl.store(out[32 * part + i_p, i_f], tile[shift + i_p, i_f] * 2.0)
    return out


def beta_too_many_rows(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    i_p, i_f = bl.arange(129 if bad else 128)[:, None], bl.arange(64)[None, :]
    bl.store(out, tile[i_p, i_f] + 1.0)
    return out


def beta_numbers(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    bl.store(out, tile + (bl.add(1.0, 2.0) if bad else 3.0))
    return out


def beta_text(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    bl.store(out, bl.load(x) + ("1" if bad else 1.0))
    return out


BETA_FAULTS = [
    (beta_mixed_index, "one a slice; accepted: for each a grid of nl.arange"),
    (beta_heights, "differ in partitions"),
    (beta_widths, "cannot be broadcast to each other"),
    (beta_load_of_a_tile, "load: src tile 1 .*; accepted: a tensor in HBM"),
    (beta_store_into_a_tile, "store: dst tile 2 .*; accepted: a tensor in HBM"),
    (beta_store_shapes, "store: .* differ in shape"),
    (beta_start, "starts at partition 16"),
    (beta_too_many_rows, "has 129 partitions"),
    (beta_numbers, "add of 1.0 and 2.0: at least one operand is a tile"),
    (beta_text, "an operand is a str; accepted: tiles and numbers"),
    (beta_no_mask, "store: .* out of bounds|takes .* that a mask had left out"),
    (beta_masked_garbage, "store takes 1792 elements .* that a mask had left out"),
    (beta_partitions, "has 129 partitions"),
    (beta_hbm_operand, "nl.load it first"),
    (beta_stride, "takes partitions with a step"),
    (beta_fresh, "add reads 8192 elements .* that were never written"),
    (beta_twice, "store writes 4096 elements .* a second time"),
]


@pytest.mark.parametrize(("kernel", "says"), BETA_FAULTS, ids=[f[0].__name__ for f in BETA_FAULTS])
def test_a_fault_in_beta_1_is_refused_and_its_twin_is_not(kernel, says):
    assert beta(kernel, X, False) is not None
    with pytest.raises(NeuronError, match=says):
        beta(kernel, X, True)


def test_simulate_kernel_writes_into_its_arguments():
    from kernels.machines.neuron import beta1

    def kernel(x, out):
        bl.store(out, bl.load(x) * 2.0)

    out = np.empty_like(X)
    beta1.simulate_kernel(beta1.jit(kernel), X, out)
    assert np.array_equal(out, 2 * X)


# --- the call ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: InterpretParams(limits=1), "limits is 1; accepted: True or False"),
        (lambda: InterpretParams(order=-1), "order is -1; accepted: None or a whole number"),
        (lambda: neuron.simulate(jit(hbm_operand), X, False, params=True), "params is True"),
        (lambda: neuron.simulate(jit(hbm_operand), X.astype(float), False), "x is float64"),
        (lambda: neuron.run(jit(hbm_operand), X, False, interpret="yes"), "interpret is 'yes'"),
    ],
)
def test_arguments_are_checked(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_what_is_no_kernel_is_refused():
    with pytest.raises(NeuronError, match=r"kernel is a int; accepted: a function with @nki.jit"):
        neuron.simulate(3, X)


def test_a_kernel_calls_another():
    @jit
    def inner(tile):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    @jit
    def outer(x):
        tile = fetched(x)
        inner(tile)
        return stored(tile)

    assert np.array_equal(outer(X), X + 1)
