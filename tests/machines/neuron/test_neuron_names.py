"""One small kernel for each name of the API, held against NumPy, in both generations."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from nkikernels import full, holds, old, run, stored

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
PLACES = RNG.integers(0, 48, (64, 48)).astype(np.uint32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def half(x):
    return np.asarray(0.5, x.dtype)


FUNCTIONS = {
    "abs": np.abs,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "gelu": lambda x: half(x) * x * (1 + scipy.special.erf(x * x.dtype.type(math.sqrt(0.5)))),
    "gelu_apprx_tanh": lambda x: (
        x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    ),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: (
        sigmoid(1.702 * x) + 1.702 * x * sigmoid(1.702 * x) * (1 - sigmoid(1.702 * x))
    ),
    "exp": np.exp,
    "copy": lambda x: x,
    "sin": np.sin,
    "reciprocal": lambda x: 1 / x,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_scalar_engine(name):
    x = np.abs(X) + np.float32(0.1) if name in ("log", "sqrt", "rsqrt") else np.clip(X, -3, 3)
    for result in (
        run(lambda dst, a: nisa.activation(dst, op=getattr(nl, name), data=a), x),
        run(lambda dst, a: getattr(nl, name)(a), x),
        old(lambda a: bisa.activation(getattr(bl, name), a), x),
        old(lambda a: getattr(bl, name)(a), x),
    ):
        holds(result, FUNCTIONS[name], x)


@pytest.mark.parametrize("name", ["floor", "negative"])
def test_functions_of_the_language_alone(name):
    want = getattr(np, name)(X)
    assert np.array_equal(run(lambda dst, a: getattr(nl, name)(a), X), want)
    assert np.array_equal(old(lambda a: getattr(bl, name)(a), X), want)


ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum", "logical_and")
COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal")


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS])
def test_operations_of_two_tiles(name):
    like, op, beta = getattr(np, name), getattr(nl, name), getattr(bl, name)
    for result, want in (
        (run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, op), X, Y), like(X, Y)),
        (run(lambda dst, a, b: op(a, b), X, Y), like(X, Y)),
        (run(lambda dst, a: op(a, 0.5), X), like(X, np.float32(0.5))),
        (run(lambda dst, a, c: op(a, c), X, COLUMN), like(X, COLUMN)),
        (old(lambda a, b: beta(a, b), X, Y), like(X, Y)),
        (old(lambda a, c: beta(a, c), X, COLUMN), like(X, COLUMN)),
    ):
        assert np.array_equal(result, want)


def test_operations_on_bits():
    y = BITS[::-1].copy()
    by_instruction = run(lambda dst, a, b: nisa.tensor_tensor(dst, a, b, nl.bitwise_and), BITS, y)
    assert (by_instruction == BITS & y).all()
    assert (old(lambda a, b: a & b, BITS, y) == BITS & y).all()


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
    assert (run(lambda dst, a: nisa.tensor_copy(dst, a), x, dtype=nl.float32) == x).all()


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
    assert not (got.view(np.uint32) & 0x1FFF).any()
    assert (got != X).any() and (np.abs(got - X) <= np.abs(X) * 2.0**-11).all()


# --- instructions --------------------------------------------------------------------------------


def reduced(op, axis=1, **options):
    return lambda dst, a: nisa.tensor_reduce(dst, op=op, data=a, axis=axis, **options)


def scanned(x, y):
    state, columns = np.zeros(len(x), x.dtype), []
    for i in range(x.shape[1]):
        state = x[:, i] * state + y[:, i]
        columns.append(state)
    return np.stack(columns, 1)


def into(shape, dtype, instruction, *arguments, **options):
    """What an instruction leaves in a tile of another shape than its source's."""
    tile = nl.ndarray(shape, dtype=dtype)
    instruction(tile, *arguments, **options)
    return tile


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
    return into((64, 2), nl.float32, nisa.bn_aggr, parts)


def predicated(dst, a, b, p):
    nisa.tensor_copy(dst, b)
    nisa.tensor_copy_predicated(dst, a, p)


def where_largest(dst, a):
    top = into((64, 8), nl.float32, nisa.max8, a)
    return into((64, 8), nl.uint32, nisa.nc_find_index8, a, top)


def without_largest(dst, a):
    nisa.nc_match_replace8(dst, a, into((64, 8), nl.float32, nisa.max8, a), -7.0)


def scalar_reduce(dst, a):
    highest = nl.ndarray((64, 1), dtype=nl.float32)
    nisa.tensor_scalar_reduce(dst, a, nl.multiply, 2.0, nl.max, highest)
    return highest


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
    count, total = full((1, 1), 3, nl.int32), full((64, 48), 0)
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    for _ in nl.dynamic_range(register):
        nisa.tensor_tensor(total, total, a, nl.add)
    nisa.register_store(count, register)
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


def transposed(engine, rows, buffer):
    def body(dst, a):
        part = a[0:rows, 0 : min(rows, 48)]
        result = nl.ndarray(part.shape[::-1], dtype=nl.float32, buffer=buffer)
        nisa.nc_transpose(result, part, engine=engine)
        return result

    return body


def largest_first(x):
    return -np.sort(-x, 1)[:, :8]


def replaced(x):
    x = x.copy()
    np.put_along_axis(x, np.argsort(-x, 1, kind="stable")[:, :8], -7, 1)
    return x


def triangle(x):
    return np.where(np.arange(64)[:, None] >= np.arange(48), x, -1)


def sums(x):
    return x.sum(1, keepdims=True)


def absolute_sums(*arrays):
    """The magnitude of a sum of products."""
    return sums(np.abs(np.prod([np.abs(a) for a in arrays], 0)))


def magnitude_of_scan(x, y):
    return scanned(np.abs(x), np.abs(y))


def moments(x):
    return np.stack([x.mean(1), x.var(1)], 1)


def taken(x, places):
    return np.take_along_axis(x, places.astype(int), 1)


TURNED = np.concatenate([np.arange(31, -1, -1), np.arange(63, 31, -1)])
SEGMENTS = np.array([[1, 1, 2, 0, 3, 3]], np.float32)
# name → what is run on tiles, the arrays, the same in NumPy; for sums their terms' absolute values
INSTRUCTIONS = {
    "memset": (lambda dst, a: nisa.memset(dst, 3.5), (X,), lambda x: np.full_like(x, 3.5)),
    "tensor_copy": (lambda dst, a: nisa.tensor_copy(dst, a), (X,), lambda x: x),
    "tensor_scalar": (
        lambda dst, a: nisa.tensor_scalar(dst, a, nl.multiply, 2.0, False, nl.subtract, 1.0, True),
        (X,),
        lambda x: 1 - 2 * x,
    ),
    "tensor_scalar with tiles": (
        lambda dst, a, c: nisa.tensor_scalar(dst, a, nl.add, c, op1=nl.multiply, operand1=c),
        (X, COLUMN),
        lambda x, c: (x + c) * c,
    ),
    "tensor_scalar of one operand": (
        lambda dst, a: nisa.tensor_scalar(dst, a, nl.add, 0.5, op1=nl.rsqrt, operand1=0.0),
        (np.abs(X),),
        lambda x: 1 / np.sqrt(x + half(x)),
    ),
    "scalar_tensor_tensor": (
        lambda dst, a, b: nisa.scalar_tensor_tensor(
            dst, a, nl.add, 1.0, nl.subtract, b, False, True
        ),
        (X, Y),
        lambda x, y: y - (x + 1),
    ),
    "tensor_reduce add": (
        lambda dst, a: into((64, 1), nl.float32, nisa.tensor_reduce, nl.add, a, 1),
        (X,),
        sums,
        absolute_sums,
    ),
    "tensor_reduce max, negated": (
        lambda dst, a: into((64, 1), nl.float32, nisa.tensor_reduce, nl.max, a, 1, negate=True),
        (X,),
        lambda x: -x.max(1, keepdims=True),
    ),
    "tensor_scalar_reduce": (scalar_reduce, (X,), lambda x: (2 * x).max(1, keepdims=True)),
    "tensor_partition_reduce": (
        lambda dst, a: into((1, 48), nl.float32, nisa.tensor_partition_reduce, nl.add, a),
        (X,),
        lambda x: x.sum(0, keepdims=True),
        lambda x: np.abs(x).sum(0, keepdims=True),
    ),
    "tensor_tensor_scan": (
        lambda dst, a, b: nisa.tensor_tensor_scan(dst, a, b, 0.0, nl.multiply, nl.add),
        (X, Y),
        scanned,
        magnitude_of_scan,
    ),
    "tensor_scalar_cumulative": (
        lambda dst, a: nisa.tensor_scalar_cumulative(dst, a, nl.multiply, nl.add, 2.0),
        (X,),
        lambda x: np.cumsum(2 * x, 1),
        lambda x: np.cumsum(2 * np.abs(x), 1),
    ),
    "reciprocal": (lambda dst, a: nisa.reciprocal(dst, a), (X,), lambda x: 1 / x),
    "activation with tiles": (
        lambda dst, a, c: nisa.activation(dst, nl.exp, a, bias=c, scale=c),
        (X, COLUMN),
        lambda x, c: np.exp(x * c + c),
    ),
    "activation_reduce": (activation_with_sum, (X,), lambda x: sums(np.exp(x))),
    "activation accumulating": (activation_in_two_calls, (X,), lambda x: sums(np.exp(x))),
    "iota": (
        lambda dst, a: nisa.iota(dst, [[10, 6], [1, 8]], offset=5, channel_multiplier=100),
        (X,),
        lambda x: (
            5
            + 100 * np.arange(64)[:, None]
            + (10 * np.arange(6)[:, None] + np.arange(8)).reshape(1, -1)
        ),
    ),
    "affine_select": (selected, (X,), triangle),
    "select_reduce": (
        lambda dst, a, p: nisa.select_reduce(dst, p, a, -2.0),
        (X, TRUTH),
        lambda x, p: np.where(p, x, -2),
    ),
    "tensor_copy_predicated": (predicated, (X, Y, TRUTH), lambda x, y, p: np.where(p, x, y)),
    "nc_stream_shuffle": (
        lambda dst, a: nisa.nc_stream_shuffle(dst, a, [31 - i for i in range(32)]),
        (X,),
        lambda x: x[TURNED],
    ),
    "nc_n_gather": (lambda dst, a, p: nisa.nc_n_gather(dst, a, p), (X, PLACES), taken),
    "max8": (lambda dst, a: into((64, 8), nl.float32, nisa.max8, a), (X,), largest_first),
    "nc_find_index8": (
        where_largest,
        (X,),
        lambda x: np.argsort(-x, 1, kind="stable")[:, :8],
    ),
    "nc_match_replace8": (without_largest, (X,), replaced),
    "bn_stats and bn_aggr": (statistics, (X,), moments, lambda x: moments(np.abs(x)) + 1),
    "registers": (looped_by_a_register, (X,), lambda x: x + x + x),
    "fori_loop and while_loop": (looped_by_functions, (X,), lambda x: 4 * x),
    "dropout of all": (lambda dst, a: nisa.dropout(dst, a, 1.0), (X,), np.zeros_like),
    "nc_transpose by Tensor": (transposed(None, 64, nl.psum), (X,), lambda x: x.T),
    "nc_transpose by Vector": (
        transposed(nisa.engine.vector, 32, nl.sbuf),
        (X,),
        lambda x: x[:32, :32].T,
    ),
    "dma_compute": (
        lambda dst, a, b: nisa.dma_compute(dst, [a, b], nl.add),
        (X, Y),
        lambda x, y: x + y,
    ),
    "sequence_bounds": (
        lambda dst, a: into((1, 2, 6), nl.float32, nisa.sequence_bounds, a),
        (SEGMENTS,),
        lambda x: np.array([[[0, 0, 2, 6, 4, 4], [2, 2, 3, -1, 6, 6]]]),
    ),
    "nl.sum": (lambda dst, a: nl.sum(a, axis=1), (X,), sums, absolute_sums),
    "nl.max": (
        lambda dst, a: nl.max(a, axis=1, keepdims=True),
        (X,),
        lambda x: x.max(1, keepdims=True),
    ),
    "nl.min": (lambda dst, a: nl.min(a, axis=1), (X,), lambda x: x.min(1, keepdims=True)),
    "nl.broadcast_to": (
        lambda dst, a: nl.broadcast_to(a[0:1, :], (64, 48)),
        (X,),
        lambda x: np.tile(x[:1], (64, 1)),
    ),
    "nl.shared_identity_matrix": (
        lambda dst, a: nl.shared_identity_matrix(64, dtype=nl.float32),
        (X,),
        lambda x: np.eye(64),
    ),
    "nl.shared_constant": (lambda dst, a: nl.load(nl.shared_constant(Y)), (X,), lambda x: Y),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_and_functions(name):
    body, arrays, formula, *magnitude = INSTRUCTIONS[name]
    result = run(body, *arrays, dtype=nl.float32)
    holds(result, formula, *arrays, magnitude=magnitude[0] if magnitude else None)


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


def test_local_gather():
    index = np.tile(RNG.integers(0, 24, (16, 4)).astype(np.uint16) * 2, (4, 1))

    def body(dst, a, i):
        return into((64, 128), nl.float32, nisa.local_gather, a, i, num_elem_per_idx=2)

    order = index[:16].T.reshape(-1).astype(int)
    want = X[:, np.stack([order, order + 1], 1).reshape(-1)]
    assert np.array_equal(run(body, X, index), want)


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
        index, some = nl.load(rows), full((3, 48), -1.0)
        source = x.ap([[48, 3], [1, 48]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(some, source, oob_mode=nisa.oob_mode.skip)
        return stored(some)

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
    "rearrange": (
        lambda t: t.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 6}),
        X.reshape(64, 6, 8).swapaxes(1, 2),
    ),
    "rearrange, split": (
        lambda t: t.rearrange(("p", ("h", "w")), ("p", "h", "w"), {"w": 8}),
        X.reshape(64, 6, 8),
    ),
    "rearrange, as it was": (lambda t: t.rearrange(("p", "f"), ("p", "f")), X),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    view, want = VIEWS[name]

    def body(dst, a):
        part = view(a)
        return into(part.shape, nl.float32, nisa.tensor_copy, part)

    assert np.array_equal(run(body, X), want)


@pytest.mark.parametrize(
    ("source", "wanted", "sizes", "says"),
    [
        (("p", ("h", "w")), ("p", "w", "h"), None, "needs all sizes but one"),
        (("p", ("h", "w")), ("p", "w", "h"), {"h": 5}, "needs all sizes but one, and they fit"),
        (("p", "f"), ("p", "g"), None, "each dimension once on either side"),
        (("p", "f"), ("f", "p"), None, "the partitions stay first"),
    ],
)
def test_rearrange_refuses(source, wanted, sizes, says):
    with pytest.raises(NeuronError, match=says):
        run(lambda dst, a: a.rearrange(source, wanted, sizes), X)


def test_what_a_view_says_of_itself():
    @modern.jit
    def kernel(x):
        t = nl.load(x)
        assert t.strides == (48, 1) and t[:, 5:].offset == 5 and t.name and t.dtype == nl.float32
        assert t.buffer == nl.sbuf and x.buffer == nl.shared_hbm
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.program_ndim() == 0 and nl.num_programs() == 1 and nl.program_id() == 0
        return stored(t)

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
        return stored(nl.add(nl.load(x), float(factor * nl.program_id(0))))

    assert np.array_equal(neuron.simulate(kernel[2], X, 0), X)
    with pytest.raises(NeuronError, match=r"dma_copy writes 3072 elements .* a second time"):
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
    part, i = bl.ndarray((64, 24), dtype=a.dtype), bl.mgrid[0:64, 0:24]
    part[i.p, i.x] = a[i.p, 2 * i.x]
    return part


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


def all_of_a_kind(a):
    return bl.add(
        bl.full(a.shape, 2.0, bl.float32),
        bl.add(bl.ones(a.shape, bl.float32), bl.add(bl.zeros_like(a), bl.zeros(a.shape, a.dtype))),
    )


def products(x, y):
    return x.T @ y


def magnitude_of_products(x, y):
    return np.abs(x).T @ np.abs(y)


def norm(x, y):
    return x * y / np.sqrt((x * x).mean(1, keepdims=True) + x.dtype.type(1e-6))


def cumulated(a):
    tile = bl.ndarray(a.shape, dtype=bl.float32)
    bisa.tensor_scalar_cumulative(dst=tile, src=a, op0=np.multiply, op1=np.add, imm0=2.0)
    return tile


OLD = {
    "tensor_tensor": (
        lambda a, b: bisa.tensor_tensor(a, b, np.multiply),
        (X, Y),
        lambda x, y: x * y,
    ),
    "tensor_scalar": (
        lambda a: bisa.tensor_scalar(a, np.add, 1.0, op1=bl.multiply, operand1=3.0),
        (X,),
        lambda x: (x + 1) * 3,
    ),
    "scalar_tensor_tensor": (
        lambda a, b: bisa.scalar_tensor_tensor(
            data=a, op0=np.add, operand0=1.0, op1=np.multiply, operand1=b
        ),
        (X, Y),
        lambda x, y: (x + 1) * y,
    ),
    "tensor_reduce": (
        lambda a: bisa.tensor_reduce(np.max, a, axis=[1]),
        (X,),
        lambda x: x.max(1, keepdims=True),
    ),
    "tensor_reduce with mask": (
        masked_sum,
        (X,),
        lambda x: sums(x[:, :20]),
        lambda x: sums(np.abs(x[:, :20])),
    ),
    "tensor_scalar_cumulative": (
        cumulated,
        (X,),
        lambda x: np.cumsum(2 * x, 1),
        lambda x: np.cumsum(2 * np.abs(x), 1),
    ),
    "reciprocal": (lambda a: bisa.reciprocal(a), (X,), lambda x: 1 / x),
    "activation": (
        lambda a, c: bisa.activation(np.exp, a, bias=c, scale=0.5),
        (X, COLUMN),
        lambda x, c: np.exp(x / 2 + c),
    ),
    "activation_reduce": (reduced_beside, (X,), lambda x: sums(np.exp(x))),
    "tensor_tensor_scan": (
        lambda a, b: bisa.tensor_tensor_scan(a, b, 0.0, np.multiply, np.add),
        (X, Y),
        scanned,
        magnitude_of_scan,
    ),
    "nc_matmul into a sum": (
        summed_in_psum,
        (X, Y),
        lambda x, y: 2 * products(x, y),
        lambda x, y: 2 * magnitude_of_products(x, y),
    ),
    "nc_transpose": (lambda a: bl.copy(bisa.nc_transpose(a)), (X,), np.transpose),
    "nl.transpose": (lambda a: bl.copy(bl.transpose(a)), (X,), np.transpose),
    "nl.matmul": (
        lambda a, b: bl.copy(bl.matmul(a, b, transpose_x=True)),
        (X, Y),
        products,
        magnitude_of_products,
    ),
    "iota": (
        lambda a: bisa.iota(2 * bl.arange(64)[:, None] + bl.arange(48)[None, :], dtype=bl.int32),
        (X,),
        lambda x: 2 * np.arange(64)[:, None] + np.arange(48),
    ),
    "affine_select": (
        lambda a: bisa.affine_select(bl.arange(64)[:, None] >= bl.arange(48)[None, :], a, -1.0),
        (X,),
        triangle,
    ),
    "memset": (
        lambda a: bisa.memset((64, 3), 2.0, bl.float32),
        (X,),
        lambda x: np.full((64, 3), 2.0),
    ),
    "mgrid": (by_mesh, (X,), lambda x: x[:, ::2]),
    "par_dim": (by_blocks, (X,), lambda x: np.exp(x[:, 32:])),
    "ds": (lambda a: bl.copy(a[:, bl.ds(4, 8)]), (X,), lambda x: x[:, 4:12]),
    "broadcast_to": (
        lambda a: bl.broadcast_to(a[0:1, :], shape=(64, 48)),
        (X,),
        lambda x: np.tile(x[:1], (64, 1)),
    ),
    "full, ones, zeros, zeros_like": (all_of_a_kind, (X,), lambda x: np.full_like(x, 3)),
    "gather_flattened": (lambda a, p: bl.gather_flattened(a, p), (X, PLACES), taken),
    "nl.rms_norm": (lambda a, b: bl.rms_norm(a, b, axis=1, n=48), (X, Y), norm),
    "nl.mean": (
        lambda a: bl.mean(a, axis=1),
        (X,),
        lambda x: x.mean(1, keepdims=True),
        lambda x: np.abs(x).mean(1, keepdims=True),
    ),
    "nl.where": (lambda a, b: bl.where(bl.less(a, b), a, b), (X, Y), np.minimum),
    "nl.static_cast": (
        lambda a: bl.static_cast(a, bl.int32),
        (WHOLE.astype(np.float32),),
        lambda x: WHOLE,
    ),
    "max8": (lambda a: bisa.max8(src=a), (X,), largest_first),
    "bn_stats": (
        lambda a: bisa.bn_aggr(bisa.bn_stats(a)),
        (X,),
        moments,
        lambda x: moments(np.abs(x)) + 1,
    ),
    "tensor_partition_reduce": (
        lambda a: bisa.tensor_partition_reduce(np.add, a),
        (X,),
        lambda x: x.sum(0, keepdims=True),
        lambda x: np.abs(x).sum(0, keepdims=True),
    ),
    "operators": (
        lambda a, b: (a - b) * 2.0 / (a * a + 1) + -a,
        (X, Y),
        lambda x, y: (x - y) * 2 / (x * x + 1) - x,
        lambda x, y: (np.abs(x) + np.abs(y)) * 2 / (x * x + 1) + np.abs(x),
    ),
    "shared_constant": (lambda a: bl.load(bl.shared_constant(Y)), (X,), lambda x: Y),
    "shared_identity_matrix": (
        lambda a: bl.shared_identity_matrix(8, dtype=bl.float32),
        (X,),
        lambda x: np.eye(8),
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_beta_1(name):
    body, arrays, formula, *magnitude = OLD[name]
    holds(old(body, *arrays), formula, *arrays, magnitude=magnitude[0] if magnitude else None)


def test_transposed_loads_and_masks_of_beta_1():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray((48, 64), dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, bl.load_transpose2d(x))
        return out

    assert np.array_equal(kernel(X), X.T)


def test_random_numbers_repeat_with_their_seed():
    def body(a):
        bl.random_seed(3)
        bl.rand(a.shape, bl.float32)
        bl.random_seed(3)
        return bl.rand(a.shape, bl.float32)

    drawn = old(body, X)
    assert np.array_equal(drawn, old(body, X)) and 0 <= drawn.min() < drawn.max() < 1


def reducing(op, assigned=False, over=0):
    @beta1.jit
    def kernel(x):
        total = bl.ndarray((bl.par_dim(64), 48), dtype=bl.float32)
        for i in bl.affine_range(2):
            for j in bl.affine_range(3):
                a = bl.load(x[i, j])
                part = bl.loop_reduce(a, op=op, loop_indices=[(i, j)[o] for o in range(2 - over)])
                if assigned:
                    total[...] = part
        out = bl.ndarray((64, 48), dtype=bl.float32, buffer=bl.shared_hbm)
        bl.store(out, total if assigned else part)
        return out

    return kernel


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize(("op", "like"), [(np.add, np.sum), (np.maximum, np.max)])
def test_loop_reduce(op, like, assigned):
    x = RNG.standard_normal((2, 3, 64, 48)).astype(np.float32)
    with pytest.warns(UserWarning, match="loop_reduce begins with its first tile"):
        result = neuron.simulate(reducing(op, assigned), x)
    holds(result, lambda x: like(x, (0, 1)), x, magnitude=lambda x: np.abs(x).sum((0, 1)))


def test_loop_reduce_over_the_inner_loop_begins_anew_in_the_outer_one():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray((2, 64, 48), dtype=bl.float32, buffer=bl.shared_hbm)
        for i in bl.affine_range(2):
            for j in bl.affine_range(3):
                part = bl.loop_reduce(bl.load(x[i, j]), op=np.add, loop_indices=[j])
            bl.store(out[i], part)
        return out

    x = RNG.standard_normal((2, 3, 64, 48)).astype(np.float32)
    with pytest.warns(UserWarning, match="loop_reduce begins"):
        result = neuron.simulate(kernel, x)
    holds(result, lambda x: x.sum(1), x, magnitude=lambda x: np.abs(x).sum(1))


def test_loop_reduce_wants_the_index_of_a_loop():
    @beta1.jit
    def kernel(x):
        return bl.loop_reduce(bl.load(x), op=np.add, loop_indices=[0])

    with pytest.raises(NeuronError, match=r"loop_reduce over \[0\]; accepted: indices of"):
        neuron.simulate(kernel, X)


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


@pytest.mark.parametrize("name", modern.collectives.NAMES)
def test_collectives_are_not_simulated(name):
    def kernel(x):
        group = modern.collectives.ReplicaGroup([[0, 1]])
        getattr(modern.collectives, name)([x], [x], group)

    with pytest.raises(NeuronError, match=rf"not simulated: nki.collectives.{name}, .*sendrecv"):
        neuron.simulate(modern.jit(kernel), X)


ABSENT = [
    (lambda: nisa.sendrecv_compute, r"not simulated: nki.isa.sendrecv_compute; .*activation"),
    (lambda: nisa.activate2, "not simulated: nki.isa.activate2; the nearest are activation"),
    (lambda: nisa.NkiInstruction, "not simulated: nki.isa.NkiInstruction; simulated are"),
    (lambda: nl.MemoryRegion, "not simulated: nki.language.MemoryRegion; simulated are"),
    (lambda: nl.softmax, "not simulated: nki.language.softmax; .*simulated are"),
    (lambda: nisa.tensor_copi, "the nearest are tensor_copy"),
    (lambda: nl.divide, "nki.language has no divide: multiply by nisa.reciprocal"),
    (lambda: nl.mgrid, "nki.language has no mgrid: slice the tile"),
    (lambda: bisa.builtin_custom_op, "not simulated: neuronxcc.nki.isa.builtin_custom_op"),
    (lambda: bl.all_reduce, "not simulated: neuronxcc.nki.language.all_reduce; .*simulated are"),
    (lambda: modern.collectives.scatter, "not simulated: nki.collectives.scatter; .*simulated are"),
    (lambda: modern.baremetal, "not simulated: nki.baremetal; simulated are"),
    (lambda: run(lambda dst, a: a.T, X), "not simulated: a tile.T"),
]


@pytest.mark.parametrize(("call", "says"), ABSENT)
def test_what_is_missing_is_named(call, says):
    with pytest.raises(NeuronError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


IMPORTS = {
    "from nki.isa import sendrecv_compute": "nki.isa.sendrecv_compute; .*simulated are",
    "from nki.collectives import scatter": "nki.collectives.scatter; .*simulated are ReplicaGroup",
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
