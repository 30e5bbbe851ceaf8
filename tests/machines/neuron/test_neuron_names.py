"""One small kernel for each name of the API, held against NumPy, in both generations."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, beta1, modern, vendor
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 48)).astype(np.float32)
Y = RNG.standard_normal((64, 48)).astype(np.float32)
COLUMN = RNG.standard_normal((64, 1)).astype(np.float32)
WHOLE = RNG.integers(-1000, 1000, (64, 48)).astype(np.int32)
BITS = RNG.integers(0, 2**31, (64, 48)).astype(np.uint32)
TRUTH = RNG.integers(0, 2, (64, 48)).astype(np.uint8)


def run(body, *arrays, chip="inf2", dtype=None, shape=None):
    """body(dst, *tiles): what it leaves in dst, a tile of the first array's shape."""

    @modern.jit
    def kernel(*given):
        tiles = [nl.load(g) for g in given]
        first = arrays[0]
        dst = nl.ndarray(shape or first.shape, dtype=dtype or first.dtype)
        found = body(dst, *tiles)
        found = dst if found is None else found
        out = nl.ndarray(found.shape, dtype=found.dtype, buffer=nl.shared_hbm)
        if found.buffer == nl.psum:
            copied = nl.ndarray(found.shape, dtype=found.dtype)
            nisa.tensor_copy(copied, found)
            found = copied
        nl.store(out, found)
        return out

    return neuron.simulate(kernel, *arrays, params=InterpretParams(chip=chip))


def old(body, *arrays, chip="inf2"):
    """body(*tiles) of beta 1: the tile that it makes."""

    @beta1.jit
    def kernel(*given):
        found = body(*[bl.load(g) for g in given])
        out = bl.ndarray(found.shape, dtype=found.dtype, buffer=bl.shared_hbm)
        bl.store(out, found)
        return out

    return neuron.simulate(kernel, *arrays, params=InterpretParams(chip=chip))


def close(found, want, tolerance=1e-5):
    want = np.asarray(want)
    assert found.shape == want.shape
    np.testing.assert_allclose(
        found.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf)
FUNCTIONS = {
    "abs": np.abs,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_dx": lambda x: (
        (1 + erf(x / math.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    ),
    "gelu_apprx_tanh": lambda x: (
        x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    ),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: (
        sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x)))
    ),
    "tanh": np.tanh,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "sign": np.sign,
    "copy": lambda x: x,
    "sin": lambda x: np.sin(x),
    "reciprocal": lambda x: 1 / x,
}
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
LANGUAGE = {
    "cos": np.cos,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "negative": np.negative,
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *POSITIVE])
def test_functions_of_the_scalar_engine(name):
    x = np.abs(X) + np.float32(0.1) if name in POSITIVE else np.clip(X, -3, 3)
    want = (FUNCTIONS | POSITIVE)[name](x.astype(np.float64))
    close(run(lambda dst, a: nisa.activation(dst, op=getattr(nl, name), data=a), x), want)
    close(run(lambda dst, a: getattr(nl, name)(a), x), want)
    close(
        old(lambda a: bisa.activation(getattr(bl, name), a) if name != "mish" else bl.mish(a), x),
        want,
    )
    close(old(lambda a: getattr(bl, name)(a), x), want)


@pytest.mark.parametrize("name", LANGUAGE)
def test_functions_of_the_language_alone(name):
    close(run(lambda dst, a: getattr(nl, name)(a), X), LANGUAGE[name](X))
    close(old(lambda a: getattr(bl, name)(a), X), LANGUAGE[name](X))


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "abs_max": lambda x, y: np.where(np.abs(x) > np.abs(y), x, y),
    "abs_min": lambda x, y: np.where(np.abs(x) < np.abs(y), x, y),
}


@pytest.mark.parametrize("name", BINARY)
def test_operations_of_two_tiles(name):
    want = BINARY[name](X, Y)
    op = getattr(nl, name)
    close(run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, op), X, Y), want)
    close(run(lambda dst, a, b: op(a, b), X, Y), want)
    close(run(lambda dst, a: op(a, 0.5), X), BINARY[name](X, np.float32(0.5)))
    close(run(lambda dst, a, c: op(a, c), X, COLUMN), BINARY[name](X, COLUMN))
    close(old(lambda a, b: getattr(bl, name)(a, b), X, Y), want)
    close(old(lambda a, c: getattr(bl, name)(a, c), X, COLUMN), BINARY[name](X, COLUMN))


@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
)
def test_operations_on_bits(name):
    y = BITS % 7 if "shift" in name else BITS[::-1].copy()
    want = getattr(np, name)(BITS, y)
    assert (
        run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, getattr(nl, name)), BITS, y) == want
    ).all()
    assert (old(lambda a, b: getattr(bl, name)(a, b), BITS, y) == want).all()
    inverted = run(lambda dst, a: nl.invert(a), BITS)
    assert (inverted == ~BITS).all()


def test_powers_on_gpsimd():
    x = np.abs(X) + 1
    close(run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.power), x, Y), x**Y, 1e-4)


def test_whole_numbers_of_32_bits_are_exact_on_gpsimd_and_wrap():
    x, y = WHOLE * 2_000_003, WHOLE[::-1] * 1_000_003
    got = run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add), x, y.copy())
    assert (got == x + y).all()
    by_vector = run(
        lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.add, engine=nisa.engine.vector),
        x,
        y.copy(),
    )
    assert (by_vector != x + y).any()  # by way of float32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_copies_of_whole_numbers(dtype):
    x = (WHOLE % 100).astype(dtype)
    assert (run(lambda dst, a: nisa.tensor_copy(dst, a), x) == x).all()
    close(run(lambda dst, a: nisa.tensor_copy(dst, a), x, dtype=nl.float32), x)


def test_floats_become_whole_numbers_by_rounding_and_saturate():
    x = np.array([[0.5, 1.5, -2.5, 2.4, 300.0, -300.0]], np.float32)
    got = run(lambda dst, a: nisa.tensor_copy(dst, a), x, dtype=nl.int8)
    assert got.tolist() == [[0, 2, -2, 2, 127, -128]]


@pytest.mark.parametrize(
    "name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"]
)
def test_narrow_floats(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    got = run(lambda dst, a: nisa.tensor_copy(dst, a), X, dtype=getattr(nl, name))
    assert got.dtype == dtype and (got == X.astype(dtype)).all()


def test_tfloat32_keeps_ten_bits():
    def body(dst, a):
        short = nl.ndarray(a.shape, dtype=nl.tfloat32)
        nisa.tensor_copy(short, a)
        nisa.tensor_copy(dst, short)

    got = run(body, X)
    assert (got != X).any() and np.allclose(got, X, rtol=2**-11, atol=0)


# --- instructions --------------------------------------------------------------------------------


def reduced(op, axis=1, **options):
    return lambda dst, a: nisa.tensor_reduce(dst, op=op, data=a, axis=axis, **options)


def psum_of(a):
    tile = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.tensor_copy(tile, a)
    return tile


def scanned(x, y, start=0.0):
    state, found = np.full(len(x), start), []
    for i in range(x.shape[1]):
        state = x[:, i] * state + y[:, i]
        found.append(state)
    return np.stack(found, 1)


def activation_with_sum(dst, a):
    total = nl.ndarray((64, 1), dtype=nl.float32)
    nisa.activation_reduce(dst, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=total)
    return total


def activation_in_two_calls(dst, a):
    total = nl.ndarray((64, 1), dtype=nl.float32)
    left, right = a[:, 0:20], a[:, 20:48]
    reset, go_on = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
    nisa.activation(dst[:, 0:20], op=nl.exp, data=left, reduce_op=nl.add, reduce_cmd=reset)
    nisa.activation(
        dst[:, 20:48], op=nl.exp, data=right, reduce_op=nl.add, reduce_cmd=go_on, reduce_res=total
    )
    return total


def statistics(dst, a):
    parts = nl.ndarray((64, 12), dtype=nl.float32)
    nisa.bn_stats(parts[:, 0:6], a[:, 0:17])
    nisa.bn_stats(parts[:, 6:12], a[:, 17:48])
    found = nl.ndarray((64, 2), dtype=nl.float32)
    nisa.bn_aggr(found, parts)
    return found


def predicated(dst, a, b, p):
    nisa.tensor_copy(dst, b)
    nisa.tensor_copy_predicated(dst, a, p)


def shuffled(dst, a):
    nisa.nc_stream_shuffle(dst, a, [31 - i for i in range(32)])


def largest(dst, a):
    found = nl.ndarray((64, 8), dtype=nl.float32)
    nisa.max8(found, a)
    return found


def where_largest(dst, a):
    top, places = nl.ndarray((64, 8), dtype=nl.float32), nl.ndarray((64, 8), dtype=nl.uint32)
    nisa.max8(top, a)
    nisa.nc_find_index8(places, a, top)
    return places


def without_largest(dst, a):
    top = nl.ndarray((64, 8), dtype=nl.float32)
    nisa.max8(top, a)
    nisa.nc_match_replace8(dst, a, top, -7.0)


def partition_sum(dst, a):
    found = nl.ndarray((1, 48), dtype=nl.float32)
    nisa.tensor_partition_reduce(found, nl.add, a)
    return found


def scalar_reduce(dst, a):
    highest = nl.ndarray((64, 1), dtype=nl.float32)
    nisa.tensor_scalar_reduce(dst, a, nl.multiply, 2.0, nl.max, highest)
    return highest


def gathered(dst, a, places):
    nisa.nc_n_gather(dst, a, places)


def selected(dst, a):
    """The lower triangle of a, -1 above it."""
    nisa.affine_select(
        dst,
        pattern=[[-1, 48]],
        channel_multiplier=1,
        on_true_tile=a,
        on_false_value=-1.0,
        cmp_op=nl.greater_equal,
    )


def looped_by_a_register(dst, a):
    count, total = nl.full((1, 1), 3, dtype=nl.int32), nl.zeros((64, 48), dtype=nl.float32)
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    for _ in nl.dynamic_range(register):
        nisa.tensor_tensor(total, total, a, nl.add)
    return total


def looped_by_functions(dst, a):
    total = nl.zeros((64, 48), dtype=nl.float32)
    register = nisa.register_alloc(2)

    def body(left):
        nisa.tensor_tensor(total, total, a, nl.add)
        nisa.register_move(left, left.number() - 1)
        return left

    nl.while_loop(register, body)
    nl.fori_loop(0, 2, lambda i: nisa.tensor_tensor(total, total, a, nl.add))
    return total


TURNED = np.concatenate([np.arange(31, -1, -1), np.arange(63, 31, -1)])
ORDER = np.argsort(-X, 1, kind="stable")
PLACES = RNG.integers(0, 48, (64, 48)).astype(np.uint32)
TRI = np.where(np.arange(64)[:, None] >= np.arange(48), X, -1)
REPLACED = X.copy()
np.put_along_axis(REPLACED, ORDER[:, :8], -7, 1)
INSTRUCTIONS = {
    "memset": (lambda dst, a: nisa.memset(dst, 3.5), (X,), np.full_like(X, 3.5)),
    "tensor_copy": (lambda dst, a: nisa.tensor_copy(dst, a), (X,), X),
    "tensor_scalar": (
        lambda dst, a: nisa.tensor_scalar(dst, a, nl.multiply, 2.0, False, nl.subtract, 1.0, True),
        (X,),
        1 - 2 * X,
    ),
    "tensor_scalar with tiles": (
        lambda dst, a, c: nisa.tensor_scalar(dst, a, nl.add, c, op1=nl.multiply, operand1=c),
        (X, COLUMN),
        (X + COLUMN) * COLUMN,
    ),
    "tensor_scalar of one operand": (
        lambda dst, a: nisa.tensor_scalar(dst, a, nl.add, 0.5, op1=nl.rsqrt, operand1=0.0),
        (np.abs(X),),
        1 / np.sqrt(np.abs(X) + 0.5),
    ),
    "scalar_tensor_tensor": (
        lambda dst, a, b: nisa.scalar_tensor_tensor(
            dst, a, nl.add, 1.0, nl.subtract, b, False, True
        ),
        (X, Y),
        Y - (X + 1),
    ),
    "tensor_reduce add": (reduced(nl.add), (X,), X.sum(1, keepdims=True), (64, 1)),
    "tensor_reduce max, negated": (
        reduced(nl.maximum, negate=True),
        (X,),
        -X.max(1, keepdims=True),
        (64, 1),
    ),
    "tensor_reduce nl.max": (reduced(nl.max), (X,), X.max(1, keepdims=True), (64, 1)),
    "tensor_scalar_reduce": (scalar_reduce, (X,), (2 * X).max(1, keepdims=True)),
    "tensor_partition_reduce": (partition_sum, (X,), X.sum(0, keepdims=True)),
    "tensor_tensor_scan": (
        lambda dst, a, b: nisa.tensor_tensor_scan(dst, a, b, 0.0, nl.multiply, nl.add),
        (X, Y),
        scanned(X, Y),
    ),
    "tensor_scalar_cumulative": (
        lambda dst, a: nisa.tensor_scalar_cumulative(dst, a, nl.multiply, nl.add, 2.0),
        (X,),
        np.cumsum(2 * X, 1),
    ),
    "reciprocal": (lambda dst, a: nisa.reciprocal(dst, a), (X,), 1 / X),
    "activation with tiles": (
        lambda dst, a, c: nisa.activation(dst, nl.tanh, a, bias=c, scale=c),
        (X, COLUMN),
        np.tanh(X * COLUMN + COLUMN),
    ),
    "activation_reduce": (activation_with_sum, (X,), np.exp(X).sum(1, keepdims=True)),
    "activation accumulating": (activation_in_two_calls, (X,), np.exp(X).sum(1, keepdims=True)),
    "iota": (
        lambda dst, a: nisa.iota(dst, [[10, 6], [1, 8]], offset=5, channel_multiplier=100),
        (X,),
        5
        + 100 * np.arange(64)[:, None]
        + (10 * np.arange(6)[:, None] + np.arange(8)).reshape(1, -1),
    ),
    "affine_select": (selected, (X,), TRI),
    "select_reduce": (
        lambda dst, a, p: nisa.select_reduce(dst, p, a, -2.0),
        (X, TRUTH),
        np.where(TRUTH, X, -2),
    ),
    "tensor_copy_predicated": (predicated, (X, Y, TRUTH), np.where(TRUTH, X, Y)),
    "nc_stream_shuffle": (shuffled, (X,), X[TURNED]),
    "nc_n_gather": (gathered, (X, PLACES), np.take_along_axis(X, PLACES.astype(int), 1)),
    "max8": (largest, (X,), -np.sort(-X, 1)[:, :8]),
    "nc_find_index8": (where_largest, (X,), ORDER[:, :8]),
    "nc_match_replace8": (without_largest, (X,), REPLACED),
    "bn_stats and bn_aggr": (statistics, (X,), np.stack([X.mean(1), X.var(1)], 1)),
    "registers": (looped_by_a_register, (X,), 3 * X),
    "fori_loop and while_loop": (looped_by_functions, (X,), 4 * X),
    "dropout of all": (lambda dst, a: nisa.dropout(dst, a, 1.0), (X,), 0 * X),
    "nc_transpose by Tensor": (
        lambda dst, a: (
            nisa.nc_transpose(nl.ndarray((48, 64), nl.float32, nl.psum), a) or nl.transpose(a)
        ),
        (X,),
        X.T,
    ),
    "nc_transpose by Vector": (
        lambda dst, a: nisa.nc_transpose(dst, a[0:32, 0:32], engine=nisa.engine.vector),
        (X,),
        X[:32, :32].T,
        (32, 32),
    ),
    "nl.matmul": (
        lambda dst, a, b: nl.matmul(a, b, transpose_x=True),
        (X, Y),
        X.T @ Y,
    ),
    "nl.sum": (lambda dst, a: nl.sum(a, axis=1), (X,), X.sum(1, keepdims=True)),
    "nl.max": (lambda dst, a: nl.max(a, axis=1, keepdims=True), (X,), X.max(1, keepdims=True)),
    "nl.min": (lambda dst, a: nl.min(a, axis=1), (X,), X.min(1, keepdims=True)),
    "nl.prod": (lambda dst, a: nl.prod(a, axis=1), (X / X,), np.ones((64, 1))),
    "nl.mean": (lambda dst, a: nl.mean(a, axis=1), (X,), X.mean(1, keepdims=True)),
    "nl.var": (lambda dst, a: nl.var(a, axis=1), (X,), X.var(1, keepdims=True)),
    "nl.all": (lambda dst, a: nl.all(a, axis=1), (X * 0 + 1,), np.ones((64, 1))),
    "nl.softmax": (
        lambda dst, a: nl.softmax(a, axis=1),
        (X,),
        np.exp(X) / np.exp(X).sum(1, keepdims=True),
    ),
    "nl.rms_norm": (
        lambda dst, a, b: nl.rms_norm(a, b, axis=1, n=48),
        (X, Y),
        X * Y / np.sqrt((X * X).mean(1, keepdims=True) + 1e-6),
    ),
    "nl.where": (
        lambda dst, a, b, c: nl.where(c, a, b),
        (X, Y, TRUTH.astype(np.float32)),
        np.where(TRUTH, X, Y),
    ),
    "nl.broadcast_to": (
        lambda dst, a: nl.broadcast_to(a[0:1, :], (64, 48)),
        (X,),
        np.tile(X[:1], (64, 1)),
    ),
    "nl.expand_dims": (lambda dst, a: nl.expand_dims(a, 1), (X,), X[:, None]),
    "nl.gather_flattened": (
        lambda dst, a, p: nl.gather_flattened(a, p),
        (X, PLACES),
        np.take_along_axis(X, PLACES.astype(int), 1),
    ),
    "nl.full, ones, zeros_like": (
        lambda dst, a: nl.add(
            nl.full((64, 48), 2.0, nl.float32),
            nl.add(nl.ones((64, 48), nl.float32), nl.zeros_like(a)),
        ),
        (X,),
        np.full_like(X, 3),
    ),
    "nl.shared_identity_matrix": (
        lambda dst, a: nl.shared_identity_matrix(64, dtype=nl.float32),
        (X,),
        np.eye(64),
    ),
    "nl.shared_constant": (lambda dst, a: nl.load(nl.shared_constant(Y)), (X,), Y),
    "sequence_bounds": (
        lambda dst, a: nisa.sequence_bounds(dst, a),
        (np.array([[1, 1, 2, 0, 3, 3]], np.float32),),
        np.array([[[0, 0, 2, 6, 4, 4], [2, 2, 3, -1, 6, 6]]]),
        (1, 2, 6),
    ),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_and_functions(name):
    body, arrays, want, *shape = INSTRUCTIONS[name]
    dtype = nl.float32
    close(run(body, *arrays, dtype=dtype, shape=shape[0] if shape else None), want, 2e-5)


def test_transposes_by_dma():
    x = RNG.standard_normal((6, 5, 4)).astype(ml_dtypes.bfloat16)

    @modern.jit
    def kernel(x):
        flat = x.reshape((30, 4))
        two, three = nl.ndarray((4, 30), nl.bfloat16), nl.ndarray((4, 5, 6), nl.bfloat16)
        nisa.dma_transpose(two, flat)
        nisa.dma_transpose(three, x, axes=(2, 1, 0))
        out = [nl.ndarray(t.shape, t.dtype, nl.shared_hbm) for t in (two, three)]
        for to, tile in zip(out, (two, three)):
            nl.store(to, tile)
        return tuple(out)

    two, three = neuron.simulate(kernel, x)
    assert (two == x.reshape(30, 4).T).all() and (three == x.transpose(2, 1, 0)).all()


def test_dma_computes_sums():
    close(run(lambda dst, a, b: nisa.dma_compute(dst, [a, b], nl.add), X, Y), X + Y)


def test_local_gather():
    index = np.tile(RNG.integers(0, 24, (16, 4)).astype(np.uint16) * 2, (4, 1))

    def body(dst, a, i):
        found = nl.ndarray((64, 128), dtype=nl.float32)
        nisa.local_gather(found, a, i, num_elem_per_idx=2)
        return found

    order = index[:16].T.reshape(-1).astype(int)
    want = X[:, np.stack([order, order + 1], 1).reshape(-1)]
    close(run(body, X, index), want)


def test_indirect_rows():
    rows = RNG.permutation(64)[:32].astype(np.int32).reshape(32, 1)

    @modern.jit
    def kernel(x, rows):
        index = nl.load(rows)
        some = nl.ndarray((32, 48), dtype=nl.float32)
        nisa.dma_copy(some, x.ap(pattern=[[48, 32], [1, 48]], vector_offset=index, indirect_dim=0))
        same = nl.ndarray((32, 48), dtype=nl.float32)
        nisa.dma_copy(same, x.vector_select(0, index))
        one = nl.ndarray((1, 48), dtype=nl.float32)
        nisa.dma_copy(one, x.select(0, index[0:1, 0:1]))
        out = nl.ndarray((65, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0:32, :], some)
        nl.store(out[32:64, :], same)
        nl.store(out[64:65, :], one)
        return out

    got, want = neuron.simulate(kernel, X, rows), X[rows[:, 0]]
    assert np.array_equal(got, np.concatenate([want, want, want[:1]]))
    rows[3] = 64
    with pytest.raises(NeuronError, match=r"1 of 32 offsets .* are out of bounds; oob_mode.skip"):
        neuron.simulate(kernel, X, rows)


def test_rows_out_of_bounds_are_skipped():
    rows = np.array([[1], [70], [3]], np.int32)

    @modern.jit
    def kernel(x, rows):
        index, some = nl.load(rows), nl.full((3, 48), -1.0, nl.float32)
        source = x.ap([[48, 3], [1, 48]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(some, source, oob_mode=nisa.oob_mode.skip)
        out = nl.ndarray((3, 48), nl.float32, nl.shared_hbm)
        nl.store(out, some)
        return out

    assert np.array_equal(neuron.simulate(kernel, X, rows), np.stack([X[1], np.full(48, -1), X[3]]))


VIEWS = {
    "negative index": (lambda t: t[:, -3:-1], X[:, -3:-1]),
    "nl.ds": (lambda t: t[:, nl.ds(4, 8)], X[:, 4:12]),
    "slice": (lambda t: t.slice(1, 2, 10, 2), X[:, 2:10:2]),
    "select": (lambda t: t.reshape((64, 6, 8)).select(1, 2), X.reshape(64, 6, 8)[:, 2]),
    "permute": (
        lambda t: t.reshape((64, 6, 8)).permute((0, 2, 1)),
        X.reshape(64, 6, 8).transpose(0, 2, 1),
    ),
    "reshape_dim": (lambda t: t.reshape_dim(1, (6, -1)), X.reshape(64, 6, 8)),
    "flatten_dims": (lambda t: t.reshape((64, 2, 3, 8)).flatten_dims(1, 2), X.reshape(64, 6, 8)),
    "expand_dim": (lambda t: t.expand_dim(1), X[:, None]),
    "squeeze_dim": (lambda t: t.expand_dim(1).squeeze_dim(1), X),
    "broadcast": (lambda t: t.expand_dim(1).broadcast(1, 3), np.repeat(X[:, None], 3, 1)),
    "ap": (lambda t: t.ap([[48, 64], [2, 5], [1, 2]], offset=3), X[:, 3:13].reshape(64, 5, 2)),
    "view": (lambda t: t.view(nl.int32).view(nl.float32), X),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    view, want = VIEWS[name]

    def body(dst, a):
        part = view(a)
        found = nl.ndarray(part.shape, dtype=nl.float32)
        nisa.tensor_copy(found, part)
        return found

    assert np.array_equal(run(body, X), want)


def test_what_a_view_says_of_itself():
    @modern.jit
    def kernel(x):
        t = nl.load(x)
        assert t.get_pattern() == [[48, 64], [1, 48]] and t.strides == (48, 1)
        assert t.is_contiguous() and not t[:, 0:8:2].is_contiguous() and not t.is_indirect()
        assert t[:, 5:].offset == 5 and t.name and t.dtype == nl.float32
        assert nl.is_sbuf(t.buffer) and nl.is_on_chip(t.buffer) and nl.is_hbm(x.buffer)
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.program_ndim() == 0 and nl.num_programs() == 1 and nl.program_id() == 0
        out = nl.ndarray(x.shape, x.dtype, nl.hbm)
        nl.store(out, t)
        return out

    assert np.array_equal(neuron.simulate(kernel, X), X)


# --- of later cores ------------------------------------------------------------------------------


def test_range_select_of_v3():
    low, high = np.full((64, 1), 5, np.float32), COLUMN * 10 + 20

    def body(dst, a, lo, hi):
        nisa.range_select(dst, a, nl.greater_equal, nl.less, lo, hi)

    want = np.where((np.arange(48) >= low) & (np.arange(48) < high), X, np.finfo(np.float32).min)
    assert np.array_equal(run(body, X, low, high, chip="trn2"), want)
    with pytest.raises(NeuronError, match=r"range_select needs NeuronCore-v3 \(trn2\); inf2 has"):
        run(body, X, low, high)


def test_exponential_of_v4():
    def body(dst, a, c):
        total = nl.ndarray((64, 1), dtype=nl.float32)
        reset = nisa.reduce_cmd.reset_reduce
        nisa.exponential(dst, a, max_value=c, reduce_res=total, reduce_cmd=reset)
        return total

    close(run(body, X, COLUMN, chip="trn3"), np.exp(X - COLUMN).sum(1, keepdims=True), 1e-4)
    with pytest.raises(NeuronError, match="exponential needs NeuronCore-v4"):
        run(body, X, COLUMN, chip="trn2")


def test_products_of_scaled_float8_of_v4():
    x = RNG.standard_normal((64, 4 * 32)).astype(ml_dtypes.bfloat16)
    y = RNG.standard_normal((64, 4 * 16)).astype(ml_dtypes.bfloat16)

    def body(dst, a, b):
        sides = []
        for tile in (a, b):
            quads = nl.ndarray((64, tile.shape[1] // 4), dtype=nl.float8_e4m3fn_x4)
            scales = nl.ndarray(quads.shape, dtype=nl.uint8)
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
    assert got.shape == (32, 16) and np.abs(got - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize("dtype", [nl.float4_e2m1fn_x4, nl.float8_e4m3fn_x4])
def test_products_of_packed_numbers_take_the_lowest_bits_first(dtype):
    """A row of numbers that differ: in which order they lie in an element shows in the product."""
    each = np.array([0.5, 1, 2, -6], np.float32)
    bits = {"float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 4, np.uint16)}.get(
        neuron.dtypes.name(dtype), (ml_dtypes.float8_e4m3fn, 8, np.uint32)
    )
    element, width, whole = bits
    codes = each.astype(element).view(np.uint8).astype(whole)
    packed = sum(code << whole(width * i) for i, code in enumerate(codes))
    a = np.full((32, 2), packed, whole)
    b = np.zeros((32, 4), whole)
    one = int(np.array(1, element).view(np.uint8))
    for column in range(4):
        b[:, column] = one << (width * column)  # picks a number out of each element
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
        tile = nl.ndarray((2, 4), dtype=nl.float32)
        nisa.tensor_copy(tile, total)
        out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    got = neuron.simulate(kernel, a, b, scale, params=neuron.InterpretParams(chip="trn3"))
    assert np.array_equal(got, np.tile(32 * 2 * 2 * each, (2, 1)))


def test_nonzero_with_count_of_v3():
    x = TRUTH[:17].astype(np.int32)

    def body(dst, a):
        found = nl.full((17, 49), 0, dtype=nl.int32)
        nisa.nonzero_with_count(found, a, index_offset=3)
        return found

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


# --- the launch grid -----------------------------------------------------------------------------


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
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, nl.add(nl.load(x), float(factor * nl.program_id(0))))
        return out

    assert np.array_equal(neuron.simulate(kernel[2], X, 0), X)
    with pytest.raises(NeuronError, match=r"store writes 3072 elements .* a second time"):
        neuron.simulate(kernel[2], X, 1)


def test_two_cores_exchange_tiles_and_meet():
    @modern.jit
    def kernel(x):
        me = nl.program_id(0)
        mine = nl.load(x[me * 32 : (me + 1) * 32, :])
        theirs = nl.ndarray(mine.shape, mine.dtype)
        nisa.sendrecv(mine, theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        both = nl.add(mine, theirs)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out[me * 32 : (me + 1) * 32, :], both)
        nisa.core_barrier(out, (0, 1))
        other = nl.load(out[(1 - me) * 32 : (2 - me) * 32, :])
        last = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(last[me * 32 : (me + 1) * 32, :], other)
        return last

    both = X[:32] + X[32:]
    assert np.array_equal(neuron.simulate(kernel[2], X), np.concatenate([both, both]))
    with pytest.raises(NeuronError, match=r"there is one core; start the kernel with kernel\[2\]"):
        neuron.simulate(kernel, X)


def test_cores_exchange_one_tile_after_the_other():
    @modern.jit
    def kernel(x):
        me = nl.program_id(0)
        mine = nl.load(x[me * 32 : (me + 1) * 32, :])
        twice = nl.add(mine, mine)
        total = nl.zeros(mine.shape, mine.dtype)
        for tile in (mine, twice):  # on one pipe: the second must not overtake the first
            theirs = nl.ndarray(mine.shape, mine.dtype)
            nisa.sendrecv(tile, theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
            total = nl.add(nl.add(total, total), theirs)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out[me * 32 : (me + 1) * 32, :], total)
        return out

    got = neuron.simulate(kernel[2], X)
    assert np.array_equal(got, 4 * np.concatenate([X[32:], X[:32]]))


def test_a_core_that_never_comes():
    @modern.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(out, (0, 1))
        return out

    with pytest.raises(NeuronError, match="waits for one that has ended and never comes"):
        neuron.simulate(kernel[2], X)


def test_a_grid_of_beta_1():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        i = bl.program_id(0) * 16 + bl.arange(16)[:, None]
        j = bl.program_id(1) * 24 + bl.arange(24)[None, :]
        bl.store(out[i, j], bl.load(x[i, j]) * 2.0)
        return out

    assert np.array_equal(kernel[bl.spmd_dim(bl.nc(2), 2), 2](X), 2 * X)
    assert np.array_equal(kernel[bl.nc(2) * 2, 2](X), 2 * X)


# --- beta 1 --------------------------------------------------------------------------------------


def masked_sum(a):
    i_f = bl.arange(48)[None, :]
    return bisa.tensor_reduce(np.add, a, axis=[1], mask=i_f < 20)


def by_mesh(a):
    found, i = bl.ndarray((64, 24), dtype=a.dtype), bl.mgrid[0:64, 0:24]
    found[i.p, i.x] = a[i.p, 2 * i.x]
    return found


def by_blocks(a):
    blocks = bl.ndarray((3, bl.par_dim(64), 16), dtype=a.dtype)
    for block in bl.affine_range(3):
        blocks[block] = bisa.activation(bl.exp, a[:, bl.ds(16 * block, 16)])
    return blocks[2]


def summed_in_psum(a, b):
    total = bl.zeros((48, 48), dtype=bl.float32, buffer=bl.psum)
    for _ in bl.affine_range(2):
        total += bisa.nc_matmul(a, b)
    return bl.copy(total)


def reduced_beside(a):
    total = bl.ndarray((64, 1), dtype=bl.float32)
    bisa.activation_reduce(np.exp, a, reduce_op=np.add, reduce_res=total)
    return total


OLD = {
    "tensor_tensor": (lambda a, b: bisa.tensor_tensor(a, b, np.multiply), (X, Y), X * Y),
    "tensor_scalar": (
        lambda a: bisa.tensor_scalar(a, np.add, 1.0, op1=bl.multiply, operand1=3.0),
        (X,),
        (X + 1) * 3,
    ),
    "scalar_tensor_tensor": (
        lambda a, b: bisa.scalar_tensor_tensor(
            data=a, op0=np.add, operand0=1.0, op1=np.multiply, operand1=b
        ),
        (X, Y),
        (X + 1) * Y,
    ),
    "tensor_reduce": (
        lambda a: bisa.tensor_reduce(np.max, a, axis=[1]),
        (X,),
        X.max(1, keepdims=True),
    ),
    "tensor_reduce with mask": (masked_sum, (X,), X[:, :20].sum(1, keepdims=True)),
    "reciprocal": (lambda a: bisa.reciprocal(a), (X,), 1 / X),
    "activation": (
        lambda a, c: bisa.activation(np.exp, a, bias=c, scale=0.5),
        (X, COLUMN),
        np.exp(X / 2 + COLUMN),
    ),
    "activation_reduce": (reduced_beside, (X,), np.exp(X).sum(1, keepdims=True)),
    "tensor_tensor_scan": (
        lambda a, b: bisa.tensor_tensor_scan(a, b, 0.0, np.multiply, np.add),
        (X, Y),
        scanned(X, Y),
    ),
    "nc_matmul into a sum": (summed_in_psum, (X, Y), 2 * X.T @ Y),
    "nc_transpose": (lambda a: bl.copy(bisa.nc_transpose(a)), (X,), X.T),
    "nl.transpose": (lambda a: bl.copy(bl.transpose(a)), (X,), X.T),
    "nl.matmul": (lambda a, b: bl.copy(bl.matmul(a, b, transpose_x=True)), (X, Y), X.T @ Y),
    "iota": (
        lambda a: bisa.iota(2 * bl.arange(64)[:, None] + bl.arange(48)[None, :], dtype=bl.int32),
        (X,),
        2 * np.arange(64)[:, None] + np.arange(48),
    ),
    "affine_select": (
        lambda a: bisa.affine_select(bl.arange(64)[:, None] >= bl.arange(48)[None, :], a, -1.0),
        (X,),
        TRI,
    ),
    "memset": (lambda a: bisa.memset((64, 3), 2.0, bl.float32), (X,), np.full((64, 3), 2.0)),
    "mgrid": (by_mesh, (X,), X[:, ::2]),
    "par_dim": (by_blocks, (X,), np.exp(X[:, 32:])),
    "ds": (lambda a: bl.copy(a[:, bl.ds(4, 8)]), (X,), X[:, 4:12]),
    "broadcast_to": (
        lambda a: bl.broadcast_to(a[0:1, :], shape=(64, 48)),
        (X,),
        np.tile(X[:1], (64, 1)),
    ),
    "nl.softmax": (
        lambda a: bl.softmax(a, axis=1),
        (X,),
        np.exp(X) / np.exp(X).sum(1, keepdims=True),
    ),
    "nl.rms_norm": (
        lambda a, b: bl.rms_norm(a, b, axis=1, n=48),
        (X, Y),
        X * Y / np.sqrt((X * X).mean(1, keepdims=True) + 1e-6),
    ),
    "nl.mean and var": (
        lambda a: bl.add(bl.mean(a, axis=1), bl.var(a, axis=1)),
        (X,),
        X.mean(1, keepdims=True) + X.var(1, keepdims=True),
    ),
    "nl.where": (lambda a, b: bl.where(bl.less(a, b), a, b), (X, Y), np.minimum(X, Y)),
    "nl.static_cast": (lambda a: bl.static_cast(a, bl.int32), (WHOLE.astype(np.float32),), WHOLE),
    "max8": (lambda a: bisa.max8(src=a), (X,), -np.sort(-X, 1)[:, :8]),
    "bn_stats": (
        lambda a: bisa.bn_aggr(bisa.bn_stats(a)),
        (X,),
        np.stack([X.mean(1), X.var(1)], 1),
    ),
    "tensor_partition_reduce": (
        lambda a: bisa.tensor_partition_reduce(np.add, a),
        (X,),
        X.sum(0, keepdims=True),
    ),
    "operators": (
        lambda a, b: (a - b) * 2.0 / (a * a + 1) ** 2 + -a,
        (X, Y),
        (X - Y) * 2 / (X * X + 1) ** 2 - X,
    ),
    "shared_constant": (lambda a: bl.load(bl.shared_constant(Y)), (X,), Y),
    "shared_identity_matrix": (
        lambda a: bl.shared_identity_matrix(8, dtype=bl.float32),
        (X,),
        np.eye(8),
    ),
    "expand_dims": (lambda a: bl.copy(bl.expand_dims(a, 1)), (X,), X[:, None]),
}


@pytest.mark.parametrize("name", OLD)
def test_beta_1(name):
    body, arrays, want = OLD[name]
    close(old(body, *arrays), want, 2e-4)


def test_transposed_loads_and_masks_of_beta_1():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray((48, 64), dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, bl.load_transpose2d(x))
        return out

    assert np.array_equal(kernel(X), X.T)


def test_annotations_and_allocators_of_beta_1_say_nothing():
    from kernels.machines.neuron import typing as nt
    from kernels.machines.neuron.beta1 import compiler as ncc

    @ncc.skip_middle_end_transformations
    @beta1.jit(platform_target="trn2")
    def kernel(x: nt.tensor):
        tile: nt.tensor[64, 48] = bl.ndarray(
            (bl.par_dim(64), 48), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0)
        )
        assert bisa.get_nc_version() == bisa.nc_version.gen3
        tile[...] = bl.load(x)
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, tile)
        return out

    assert np.array_equal(kernel(X), X)


def test_a_kernel_s_own_data_classes_take_fields_without_annotations():
    @dataclasses.dataclass
    class Section(nl.NKIObject):
        index = None
        start: int = 0

    one = Section(index=3, start=5)
    assert (one.index, one.start) == (3, 5) and Section(1).start == 1 and Section.index is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'end'"):
        Section(end=1)


def test_a_field_that_nobody_gives_is_not_there():
    @dataclasses.dataclass
    class Sizes(nl.NKIObject):
        rows: int
        columns: int
        left: int = 0

    sizes = Sizes(rows=3)
    assert (sizes.rows, sizes.left) == (3, 0) and not hasattr(sizes, "columns")
    assert Sizes(1, 2) == Sizes(rows=1, columns=2)


def test_a_tensor_in_hbm_is_there():
    @modern.jit
    def kernel(x, bias=None):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = nl.load(x)
        if bias:
            tile = nl.add(tile, nl.load(bias))
        nl.store(out, tile)
        return out

    assert np.array_equal(neuron.simulate(kernel, X), X)
    assert np.array_equal(neuron.simulate(kernel, X, Y), X + Y)
    with pytest.raises(NeuronError, match=r"the truth of bias \[1, 1\]"):
        neuron.simulate(kernel, X, X[:1, :1])


def test_a_tensor_may_be_copied_onto_itself_as_a_fence():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        nisa.dma_copy(dst=out, src=out)
        return out

    assert np.array_equal(neuron.simulate(modern.jit(kernel), X), X)


# --- what is not there ---------------------------------------------------------------------------

ABSENT = [
    (lambda: nisa.sendrecv_compute, r"not simulated: nki.isa.sendrecv_compute; .*activation"),
    (lambda: nisa.NkiInstruction, "not simulated: nki.isa.NkiInstruction; simulated are"),
    (lambda: nl.MemoryRegion, "not simulated: nki.language.MemoryRegion; simulated are"),
    (lambda: nisa.tensor_copi, "the nearest are tensor_copy"),
    (lambda: nl.divide, "nki.language has no divide: multiply by nisa.reciprocal"),
    (lambda: nl.mgrid, "nki.language has no mgrid: slice the tile"),
    (lambda: bisa.builtin_custom_op, "not simulated: neuronxcc.nki.isa.builtin_custom_op"),
    (lambda: bl.all_reduce, "not simulated: neuronxcc.nki.language.all_reduce; simulated are"),
    (lambda: modern.collectives.scatter, "not simulated: nki.collectives.scatter; simulated are"),
    (lambda: modern.baremetal, "not simulated: nki.baremetal; simulated are"),
    (lambda: run(lambda dst, a: a.T, X), "not simulated: a tile.T"),
]


@pytest.mark.parametrize(("call", "says"), ABSENT)
def test_what_is_missing_is_named(call, says):
    with pytest.raises(NeuronError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


IMPORTS = {
    "from nki.isa import sendrecv_compute": "nki.isa.sendrecv_compute; simulated are",
    "from nki.collectives import scatter": "nki.collectives.scatter; simulated are ReplicaGroup",
    "from neuronxcc.nki.isa import builtin_custom_op": "neuronxcc.nki.isa.builtin_custom_op",
    "import nki.simulator": "nki.simulator; simulated are .*nki.isa",
    "from nki import simulator": "nki.simulator; the nearest are simulate",
    "import neuronxcc.nki.kernels.attention": "neuronxcc.nki.kernels; simulated are",
    "from neuronxcc.starfish import penguin": "neuronxcc.starfish; simulated are",
}


@pytest.mark.skipif(bool(vendor.find("nki") or vendor.find("neuronxcc")), reason="it is installed")
@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_of_what_is_missing_names_it(line):
    with neuron.install(), pytest.raises(ImportError, match=f"^not simulated: {IMPORTS[line]}"):
        exec(line)


def test_whoever_asks_politely_gets_no_error():
    assert not hasattr(nisa, "sendrecv_compute") and not hasattr(bl, "all_reduce")
