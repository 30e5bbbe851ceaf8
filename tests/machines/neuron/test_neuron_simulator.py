"""The simulated core computes what NumPy does, and refuses each planted fault, not its twin."""

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nkikernels import fetched, in_psum, made, stored
from refused import refuses

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
LAX = InterpretParams(limits=False)


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


def test_an_index_on_chip_keeps_two_dimensions_and_in_hbm_does_not():
    @jit
    def kernel(x):
        tile = fetched(x)
        assert tile[0].shape == (1, 64) and tile[:, 3].shape == (128, 1)
        assert tile.reshape((128, 4, 16))[:, 1, :].shape == (128, 16)
        assert x[3].shape == (64,) and x[..., 5].shape == (128,)
        return stored(tile)

    neuron.simulate(kernel, X)


def does(body):
    """A kernel that runs body(x, tile of x, bad), and stores the tile."""

    def kernel(x, bad):
        tile = fetched(x)
        body(x, tile, bad)
        return stored(tile)

    return kernel


def gives(body):
    """A kernel that returns what body(x, tile of x, bad) does."""
    return lambda x, bad: body(x, fetched(x), bad)


def added(tile, other, **options):
    nisa.tensor_tensor(dst=tile, data1=tile, data2=other, **{"op": nl.add, **options})


def scaled(tile, operand=1.0):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=operand)


def copied(dst, src, **options):
    nisa.tensor_copy(dst=dst, src=src, **options)


def never_stored(x, tile, bad):
    out, end = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), 63 if bad else 64
    nisa.dma_copy(dst=out[:, 0:end], src=tile[:, 0:end])
    return out


def steered(x, tile, bad):
    places = nl.ndarray((128, 2), dtype=nl.int32)
    nisa.iota(places[0 : 64 if bad else 128, :], [[1, 2]], offset=0)
    nisa.dma_copy(tile, x.ap([[64, 128], [1, 64]], vector_offset=places[:, 0:1]))


def added_by_rows(x, tile, bad):
    """Sums in the rows that a tile names: in one place, where they meet."""
    rows, sums = nl.ndarray((128, 1), dtype=nl.int32), nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.iota(rows, [[1, 1]], offset=0, channel_multiplier=0 if bad else 1)
    nisa.dma_copy(sums, tile)
    place = sums.ap([[64, 128], [1, 64]], vector_offset=rows)
    nisa.dma_compute(place, [place, tile], nl.add)
    return sums


def no_elements(x, tile, bad):
    none = x[128:128, :]  # a view that no instruction takes
    if bad:
        nisa.dma_copy(tile[0:1, :], none)


def no_dst(x, tile, bad):
    nisa.reciprocal(**({} if bad else {"dst": tile}), data=tile)


def assignment(x, tile, bad):
    if bad:
        tile[0:64, :] = tile[64:128, :]


def looped(x, tile, bad):
    for row in tile if bad else ():
        nisa.memset(dst=row, value=0.0)


def product(m=64, n=32, k=128, memory=nl.psum, operands=nl.sbuf):
    a, b = made((128, m)), made((128, n), operands)
    nisa.memset(dst=a, value=1.0)
    nisa.memset(dst=b, value=1.0)
    nisa.nc_matmul(dst=made((min(m, 128), n), memory), stationary=a[0:k, :], moving=b)


def accumulated(prepare=lambda total, a, bad: None, accumulate=True):
    """A product that adds to what `prepare` leaves in PSUM."""

    def body(x, a, bad):
        c, total = made((64, 64)), made((64, 64), nl.psum)
        prepare(total, a, bad)
        nisa.nc_matmul(dst=total, stationary=a, moving=a, accumulate=accumulate if bad else None)
        copied(c, total)
        return stored(c)

    return body


def half(total, a, bad):
    part = total[:, 0:32] if bad else total
    nisa.nc_matmul(dst=part, stationary=a, moving=a[:, 0:32] if bad else a)


STORES = {
    "length": (lambda x, t, bad: t[0 : len(t) if bad else 128, :], r"len\(tile 1"),
    "looped": (looped, "a loop over tile 1"),
    "one dimension": (lambda x, t, bad: made((4,) if bad else (4, 1)), "has one dimension"),
    "no dimension": (lambda x, t, bad: made((4, 0 if bad else 1)),
        r"ndarray of shape \(4, 0\): dimensions are whole numbers of at least 1"),
    "copied pieces": (
        lambda x, t, bad: (t.reshape((128, 8, 8))[:, :, 0:4] if bad else t[:, 0:32]).reshape(
            (128, 32)
        ),
        "not the same elements in one piece",
    ),
    "many indices": (lambda x, t, bad: t[:, :, 0:1] if bad else t[:, 0:1],
        "is indexed in 3 dimensions, and has 2"),
    "wrong engine": (lambda x, t, bad: added(t, t, engine=getattr(nisa.engine, ENGINES[bad])),
        "tensor_tensor cannot run on engine.scalar; accepted: Vector, GpSimd"),
    "number operand": (lambda x, t, bad: added(t, 1.0 if bad else t),
        "tensor_tensor: data2 is a float; accepted: a tile"),
    "text operand": (lambda x, t, bad: scaled(t, "1" if bad else 1.0),
        "operand is '1'; accepted: a number"),
    "unary operation": (lambda x, t, bad: added(t, t, op=nl.square if bad else nl.add),
        "nl.square takes 1 operands, here 2"),
    "binary activation": (
        lambda x, t, bad: nisa.activation(dst=t, op=nl.add if bad else nl.square, data=t),
        "nl.add takes 2 operands, here 1"),
    "foreign operation": (lambda x, t, bad: added(t, t, op=np.add if bad else nl.add),
        "accepted: an operation of nki.language"),
    "product into SBUF": (lambda x, t, bad: product(memory=nl.sbuf if bad else nl.psum),
        "the Tensor engine writes PSUM only"),
    "product of PSUM": (lambda x, t, bad: product(operands=nl.psum if bad else nl.sbuf),
        "the Tensor engine reads SBUF only: tensor_copy it there first"),
    "product of sizes": (lambda x, t, bad: product(k=64 if bad else 128), "do not make dst"),
    # dst would fit, were it [129, 32]: no tile has so many partitions
    "product too long": (lambda x, t, bad: product(m=129 if bad else 128), "do not make dst"),
    "start after reshape": (
        lambda x, t, bad: copied(*[t.reshape((128, 8, 8))[16 if bad else 32 : 64]] * 2),
        "starts at partition 16; 48 partitions may start at 0, 64"),
    "start of half": (lambda x, t, bad: scaled(t[32:96, :] if bad else t[0:64, :]),
        "starts at partition 32; 64 partitions may start at 0, 64"),
    "start of most": (lambda x, t, bad: scaled(t[32:128, :] if bad else t[0:96, :]),
        "starts at partition 32; 96 partitions may start at 0"),
    "HBM operand": (lambda x, t, bad: added(t, x if bad else t),
        "tensor_tensor: x .* in private_hbm; an engine reaches SBUF and PSUM only"),
    "index out of bounds": (lambda x, t, bad: copied(t[:, 0], t[:, 64 if bad else -1]),
        "index 64 of tile 1 .* is out of bounds"),
    "SBUF tile": (lambda x, t, bad: made((128, 48 * 1024 + bad)),
        r"ndarray: a tile \[128, 49153\] .* which has 192 KiB"),
    "PSUM tile": (lambda x, t, bad: made((128, 4096 + bad), nl.psum), "which has 16 KiB"),
    "heights": (lambda x, t, bad: copied(t[0:64, :], t[64 : 96 if bad else 128, :]),
        "tensor_copy: .* differ"),
    "column": (lambda x, t, bad: scaled(t, t[:, 0 : 2 if bad else 1]), r"accepted: \[128, 1\]"),
    "copy of other shapes": (
        lambda x, t, bad: nisa.dma_copy(dst=made((64 if bad else 128, 64)), src=x),
        "dma_copy: src x .* and dst tile 2 .* differ in shape"),
    "division": (lambda x, t, bad: added(t, t, op=nl.divide if bad else nl.multiply),
        "nki.language has no divide: write nisa.reciprocal"),
    "grids": (lambda x, t, bad: t[np.arange(128)[:, None] if bad else slice(0, 128), 0:64],
        "is indexed with a ndarray; accepted: whole numbers, slices"),
    "masks": (lambda x, t, bad: nisa.tensor_copy(dst=t, src=t, **({"mask": 1} if bad else {})),
        "tensor_copy with mask=: masks are gone"),
    "no elements": (no_elements, r"src is x .*, which has no elements"),
    "steered": (steered, r"ap reads 64 elements of tile 2 .* never written"),
    "no dst": (no_dst, r"reciprocal without dst: .* \(test_neuron_simulator.py:\d+\)"),
    "assignment": (assignment, "assignment into tile 1"),
    "both in PSUM": (
        lambda x, t, bad: nisa.tensor_tensor(
            dst=t, data1=in_psum(t), data2=in_psum(t) if bad else t, op=nl.add
        ),
        "only one of the inputs may be in PSUM",
    ),
    "DMA of PSUM": (
        lambda x, t, bad: nisa.dma_copy(made(x.shape, nl.psum if bad else nl.sbuf), src=x),
        "a DMA does not reach PSUM"),
    "GpSimd on PSUM": (
        lambda x, t, bad: nisa.tensor_copy(
            made(x.shape, nl.psum), t, nisa.engine.gpsimd if bad else nisa.engine.vector
        ),
        "the GpSimd engine does not reach PSUM",
    ),
}  # fmt: skip
RETURNS = {
    "sum on nothing": (accumulated(), "no product has written 4096 of the 4096 elements of dst"),
    "sum on zeros": (accumulated(lambda total, a, bad: nisa.memset(dst=total, value=0.0)),
        "so there is nothing to add to; start with accumulate=False"),
    "sum on a half": (accumulated(half, accumulate=None),
        "no product has written 2048 of the 4096 elements"),
    "sum perhaps": (accumulated(accumulate="first"),
        "accumulate is 'first'; accepted: None, True and False"),
    "reshaped partitions": (lambda x, t, bad: stored(t.reshape((64, 128) if bad else (128, 64))),
        "the partitions cannot change"),
    "sums that meet": (added_by_rows, r"dma_compute: dst .* has a place twice"),
    "the tensor itself": (
        lambda x, t, bad: stored(nl.load((x[:, 0:32] if bad else x).base_tensor)),
        "not simulated: base_tensor of x"),
    "never stored": (never_stored,
        "128 of 8192 elements of the output tensor 1 .* were never written"),
    "not in HBM": (lambda x, t, bad: t if bad else stored(t),
        "accepted: a tensor with buffer=nl.shared_hbm"),
}  # fmt: skip
FAULTS = {
    name: (kernel(body), says)
    for kernel, table in ((does, STORES), (gives, RETURNS))
    for name, (body, says) in table.items()
}
ENGINES = {False: "gpsimd", True: "scalar"}
HBM_OPERAND = jit(FAULTS["HBM operand"][0])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused_and_its_twin_is_not(name):
    kernel, says = FAULTS[name]
    assert neuron.simulate(jit(kernel), X, False) is not None
    with pytest.raises(NeuronError, match=says) as caught:
        neuron.simulate(jit(kernel), X, True)
    assert "\n" not in str(caught.value)
    assert name == "not in HBM" or re.fullmatch(r"\w+\.py:\d+", caught.value.source)
    if name == "never stored":
        line = never_stored.__code__.co_firstlineno + 1  # which makes the output
        assert caught.value.source == f"test_neuron_simulator.py:{line}"


def test_what_numpy_cannot_do_is_refused_without_limits_too():
    def kernel(x):
        tile = fetched(x)
        nisa.tensor_copy(dst=tile[:, 0:3], src=tile[:, 0:5])
        return stored(tile)

    with pytest.raises(NeuronError, match=r"a result of shape \[128, 5\] does not fit into dst"):
        neuron.simulate(jit(kernel), X, params=LAX)


def test_fresh_memory_is_zero_without_limits():
    got = neuron.simulate(jit(FAULTS["never stored"][0]), X, True, params=LAX)
    assert not got[:, 63].any() and np.array_equal(got[:, :63], X[:, :63])


def test_nan_is_a_number_like_another():
    """Whether an element was written is kept apart from what it holds."""
    x = X.copy()
    x[3, 5] = np.nan
    assert np.array_equal(neuron.simulate(HBM_OPERAND, x, False), x + x, equal_nan=True)


def test_our_own_mistakes_are_not_blamed_on_the_kernel(monkeypatch):
    monkeypatch.setattr(neuron.simulator.NeuronMachine, "copy", lambda self, name, dst: None)
    with pytest.raises(TypeError, match="positional"):
        neuron.simulate(HBM_OPERAND, X, False)


def test_the_machine_is_free_again_after_an_error():
    with pytest.raises(NeuronError):
        neuron.simulate(HBM_OPERAND, X, True)
    with pytest.raises(NeuronError, match="outside a kernel"):
        nl.ndarray((1, 1), dtype=nl.float32)


test_arguments_are_checked = refuses(
    lambda call: call(),
    (lambda: InterpretParams(limits=1), "limits is 1; accepted: True or False"),
    (lambda: InterpretParams(order=-1), "order is -1; accepted: None or a whole number"),
    (lambda: neuron.simulate(HBM_OPERAND, X, False, params=True), "params is True"),
    (lambda: neuron.simulate(HBM_OPERAND, X.astype(float), False), "x is float64"),
    (lambda: neuron.run(HBM_OPERAND, X, False, interpret="yes"), "interpret is 'yes'"),
)


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
