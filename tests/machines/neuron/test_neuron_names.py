"""A small kernel for each name of the API, held against NumPy; views, copies by indices."""

import dataclasses
import json
import math
from pathlib import Path

import ml_dtypes
import nkiarrays as like
import numpy as np
import pytest
import scipy.special
from nkiarrays import COLUMN, RNG, WHOLE, X, Y, tiles
from nkikernels import full, holds, into, old, run, stored
from refused import refuses

from kernels import neuron
from kernels.machines.neuron import NeuronError, modern, vendor
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "abs": np.abs,
    "square": np.square,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "gelu": lambda x: like.half(x) * x * (1 + scipy.special.erf(x * x.dtype.type(math.sqrt(0.5)))),
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
    choice = {"pattern": [[-1, 48]], "channel_multiplier": 1, "cmp_op": nl.greater_equal}
    nisa.affine_select(dst, on_true_tile=a, on_false_value=-1.0, **choice)


def looped_by_a_register(dst, a):
    count, total = full((1, 1), 3, nl.int32), full((64, 48), 0)
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    for _ in nl.dynamic_range(register):
        nisa.tensor_tensor(total, total, a, nl.add)
    return total


def looped_by_functions(dst, a):
    total = nl.zeros((64, 48), dtype=nl.float32)
    nl.fori_loop(nisa.register_alloc(0), 2, lambda i: nisa.tensor_tensor(total, total, a, nl.add))
    return total


def transposed(engine, rows, buffer):
    def body(dst, a):
        part = a[0:rows, 0 : min(rows, 48)]
        result = nl.ndarray(part.shape[::-1], dtype=nl.float32, buffer=buffer)
        nisa.nc_transpose(result, part, engine=engine)
        return result

    return body


def replaced(x):
    x = x.copy()
    np.put_along_axis(x, np.argsort(-x, 1, kind="stable")[:, :8], -7, 1)
    return x


def absolute_sums(*arrays):
    """The magnitude of a sum of products."""
    return like.sums(np.abs(np.prod([np.abs(a) for a in arrays], 0)))


TURNED = np.concatenate([np.arange(31, -1, -1), np.arange(63, 31, -1)])
# name → what is run on tiles, the same in NumPy; for sums their terms' absolute values
INSTRUCTIONS = {
    "memset": (lambda dst, a: nisa.memset(dst, 3.5), lambda x: np.full_like(x, 3.5)),
    "tensor_copy": (lambda dst, a: nisa.tensor_copy(dst, a), lambda x: x),
    "tensor_scalar": (
        lambda dst, a: nisa.tensor_scalar(dst, a, nl.multiply, 2.0, False, nl.subtract, 1.0, True),
        lambda x: 1 - 2 * x),
    "tensor_scalar with tiles": (
        lambda dst, a, c: nisa.tensor_scalar(dst, a, nl.add, c, op1=nl.multiply, operand1=c),
        lambda x, c: (x + c) * c),
    "tensor_scalar of one operand": (
        lambda dst, positive: nisa.tensor_scalar(
            dst, positive, nl.add, 0.5, op1=nl.rsqrt, operand1=0.0
        ),
        lambda x: 1 / np.sqrt(x + like.half(x)),
    ),
    "scalar_tensor_tensor": (
        lambda dst, a, b: nisa.scalar_tensor_tensor(
            dst, a, nl.add, 1.0, nl.subtract, b, False, True
        ),
        lambda x, y: y - (x + 1),
    ),
    "tensor_reduce add": (
        lambda dst, a: into((64, 1), nl.float32, nisa.tensor_reduce, nl.add, a, 1), like.sums,
        absolute_sums),
    "tensor_reduce max, negated": (
        lambda dst, a: into((64, 1), nl.float32, nisa.tensor_reduce, nl.max, a, 1, negate=True),
        lambda x: -x.max(1, keepdims=True)),
    "tensor_scalar_reduce": (scalar_reduce, lambda x: (2 * x).max(1, keepdims=True)),
    "tensor_partition_reduce": (
        lambda dst, a: into((1, 48), nl.float32, nisa.tensor_partition_reduce, nl.add, a),
        lambda x: x.sum(0, keepdims=True), lambda x: np.abs(x).sum(0, keepdims=True)),
    "tensor_tensor_scan": (
        lambda dst, a, b: nisa.tensor_tensor_scan(dst, a, b, 0.0, nl.multiply, nl.add),
        like.scanned, like.magnitude_of_scan),
    "tensor_scalar_cumulative": (
        lambda dst, a: nisa.tensor_scalar_cumulative(dst, a, nl.multiply, nl.add, 2.0),
        lambda x: np.cumsum(2 * x, 1), lambda x: np.cumsum(2 * np.abs(x), 1)),
    "reciprocal": (lambda dst, a: nisa.reciprocal(dst, a), lambda x: 1 / x),
    "activation with tiles": (lambda dst, a, c: nisa.activation(dst, nl.exp, a, bias=c, scale=c),
        lambda x, c: np.exp(x * c + c)),
    "activation_reduce": (activation_with_sum, lambda x: like.sums(np.exp(x))),
    "activation accumulating": (activation_in_two_calls, lambda x: like.sums(np.exp(x))),
    "iota": (
        lambda dst, a: nisa.iota(dst, [[10, 6], [1, 8]], offset=5, channel_multiplier=100),
        lambda x: (
            5
            + 100 * np.arange(64)[:, None]
            + (10 * np.arange(6)[:, None] + np.arange(8)).reshape(1, -1)
        ),
    ),
    "affine_select": (selected, like.triangle),
    "select_reduce": (lambda dst, a, p: nisa.select_reduce(dst, p, a, -2.0),
        lambda x, p: np.where(p, x, -2)),
    "tensor_copy_predicated": (predicated, lambda x, y, p: np.where(p, x, y)),
    "nc_stream_shuffle": (
        lambda dst, a: nisa.nc_stream_shuffle(dst, a, [31 - i for i in range(32)]),
        lambda x: x[TURNED]),
    "nc_n_gather": (lambda dst, a, places: nisa.nc_n_gather(dst, a, places), like.taken),
    "max8": (lambda dst, a: into((64, 8), nl.float32, nisa.max8, a), like.largest_first),
    "nc_find_index8": (where_largest, lambda x: np.argsort(-x, 1, kind="stable")[:, :8]),
    "nc_match_replace8": (without_largest, replaced),
    "bn_stats and bn_aggr": (statistics, like.moments, lambda x: like.moments(np.abs(x)) + 1),
    "registers": (looped_by_a_register, lambda x: x + x + x),
    "fori_loop": (looped_by_functions, lambda x: x + x),
    "dropout of all": (lambda dst, a: nisa.dropout(dst, a, 1.0), np.zeros_like),
    "nc_transpose by Tensor": (transposed(None, 64, nl.psum), lambda x: x.T),
    "nc_transpose by Vector": (transposed(nisa.engine.vector, 32, nl.sbuf),
        lambda x: x[:32, :32].T),
    "dma_compute": (lambda dst, a, b: nisa.dma_compute(dst, [a, b], nl.add), lambda x, y: x + y),
    "sequence_bounds": (
        lambda dst, segments: into((1, 2, 6), nl.float32, nisa.sequence_bounds, segments),
        lambda x: np.array([[[0, 0, 2, 6, 4, 4], [2, 2, 3, -1, 6, 6]]])),
    "nl.sum": (lambda dst, a: nl.sum(a, axis=1), like.sums, absolute_sums),
    "nl.max": (lambda dst, a: nl.max(a, axis=1, keepdims=True), lambda x: x.max(1, keepdims=True)),
    "nl.min": (lambda dst, a: nl.min(a, axis=1), lambda x: x.min(1, keepdims=True)),
    "nl.broadcast_to": (lambda dst, a: nl.broadcast_to(a[0:1, :], (64, 48)),
        lambda x: np.tile(x[:1], (64, 1))),
    "nl.shared_identity_matrix": (lambda dst, a: nl.shared_identity_matrix(64, dtype=nl.float32),
        lambda x: np.eye(64)),
    "nl.shared_constant": (lambda dst, a: nl.load(nl.shared_constant(Y)), lambda x: Y),
}  # fmt: skip


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_and_functions(name):
    body, formula, *magnitude = INSTRUCTIONS[name]
    arrays = tiles(body)
    holds(
        run(body, *arrays, dtype=nl.float32),
        formula,
        *arrays,
        magnitude=next(iter(magnitude), None),
    )


def test_a_kernel_s_own_data_classes_need_no_annotations_and_not_all_fields():
    @dataclasses.dataclass
    class Section(nl.NKIObject):
        index = None
        start: int = 0

    one = Section(index=3, start=5)
    assert (one.index, one.start) == (3, 5) and Section(1).start == 1 and Section.index is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'end'"):
        Section(end=1)

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
        nisa.dma_copy(dst=out, src=out)  # a fence
        return out

    assert np.array_equal(neuron.simulate(kernel, X), X)
    assert np.array_equal(neuron.simulate(kernel, X, Y), X + Y)
    with pytest.raises(NeuronError, match=r"the truth of bias \[1, 1\]"):
        neuron.simulate(kernel, X, X[:1, :1])


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
    (lambda: nl.divide, "nki.language has no divide: write nisa.reciprocal"),
    (lambda: nl.mgrid, "nki.language has no mgrid: write a slice"),
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
    # Whoever asks politely gets no error.
    assert not hasattr(nisa, "sendrecv_compute") and not hasattr(bl, "all_reduce")


DATA = Path(__file__).with_name("data")
IMPORTS = json.loads((DATA / "imports.json").read_text())  # line → what its error says


@pytest.mark.skipif(bool(vendor.find("nki") or vendor.find("neuronxcc")), reason="it is installed")
@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_of_what_is_missing_names_it(line):
    with neuron.install(), pytest.raises(ImportError, match=f"^not simulated: {IMPORTS[line]}"):
        exec(line)


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
    assert np.array_equal(run(body, X, index), X[:, np.stack([order, order + 1], 1).reshape(-1)])


def test_indirect_rows():
    rows = RNG.permutation(64)[:32].astype(np.int32).reshape(32, 1)

    @modern.jit
    def kernel(x, rows, mode=nisa.oob_mode.error):
        index, some = nl.load(rows), full((32, 48), -1.0)
        source = x.ap(pattern=[[48, 32], [1, 48]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(some, source, oob_mode=mode)
        one = nl.ndarray((1, 48), dtype=nl.float32)
        nisa.dma_copy(one, x.select(0, index[0:1, 0:1]))
        out = nl.ndarray((33, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0:32, :], some)
        nl.store(out[32:33, :], one)
        return out

    got, want = neuron.simulate(kernel, X, rows), X[rows[:, 0]]
    assert np.array_equal(got, np.concatenate([want, want[:1]]))
    rows[3] = 64
    with pytest.raises(NeuronError, match=r"1 of 32 offsets .* are out of bounds; oob_mode.skip"):
        neuron.simulate(kernel, X, rows)
    want[3] = -1  # is skipped
    assert np.array_equal(neuron.simulate(kernel, X, rows, nisa.oob_mode.skip)[:32], want)


VIEWS = {
    "negative index": (lambda t: t[:, -3:-1], X[:, -3:-1]),
    "nl.ds": (lambda t: t[:, nl.ds(4, 8)], X[:, 4:12]),
    "slice": (lambda t: t.slice(1, 2, 10, 2), X[:, 2:10:2]),
    "select": (lambda t: t.reshape((64, 6, 8)).select(1, 2), X.reshape(64, 6, 8)[:, 2]),
    "permute": (lambda t: t.reshape((64, 6, 8)).permute((0, 2, 1)),
        X.reshape(64, 6, 8).transpose(0, 2, 1)),
    "reshape_dim": (lambda t: t.reshape_dim(1, (6, -1)), X.reshape(64, 6, 8)),
    "flatten_dims": (lambda t: t.reshape((64, 2, 3, 8)).flatten_dims(1, 2), X.reshape(64, 6, 8)),
    "expand_dim": (lambda t: t.expand_dim(1), X[:, None]),
    "squeeze_dim": (lambda t: t.expand_dim(1).squeeze_dim(1), X),
    "broadcast": (lambda t: t.expand_dim(1).broadcast(1, 3), np.repeat(X[:, None], 3, 1)),
    "ap": (lambda t: t.ap([[48, 64], [2, 5], [1, 2]], offset=3), X[:, 3:13].reshape(64, 5, 2)),
    "view": (lambda t: t.view(nl.int32).view(nl.float32), X),
    "rearrange": (lambda t: t.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 6}),
        X.reshape(64, 6, 8).swapaxes(1, 2)),
    "rearrange, split": (lambda t: t.rearrange(("p", ("h", "w")), ("p", "h", "w"), {"w": 8}),
        X.reshape(64, 6, 8)),
    "rearrange, as it was": (lambda t: t.rearrange(("p", "f"), ("p", "f")), X),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    view, want = VIEWS[name]

    def body(dst, a):
        part = view(a)
        return into(part.shape, nl.float32, nisa.tensor_copy, part)

    assert np.array_equal(run(body, X), want)


test_rearrange_refuses = refuses(
    lambda source, wanted, sizes: run(lambda dst, a: a.rearrange(source, wanted, sizes), X),
    (("p", ("h", "w")), ("p", "w", "h"), None, "needs all sizes but one"),
    (("p", ("h", "w")), ("p", "w", "h"), {"h": 5}, "needs all sizes but one, and they fit"),
    (("p", "f"), ("p", "g"), None, "each dimension once on either side"),
    (("p", "f"), ("f", "p"), None, "the partitions stay first"),
    error=NeuronError,
)


def test_what_a_view_says_of_itself():
    @modern.jit
    def kernel(x):
        t = nl.load(x)
        assert t.strides == (48, 1) and t[:, 5:].offset == 5 and t.name and t.dtype == nl.float32
        assert t.buffer == nl.sbuf and x.buffer == nl.hbm
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.program_ndim() == 0 and nl.num_programs() == 1 and nl.program_id() == 0
        return stored(t)

    assert np.array_equal(neuron.simulate(kernel, X), X)
