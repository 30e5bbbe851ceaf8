"""The names that few kernels use: what each computes, what it refuses, and what it costs."""

import ml_dtypes
import numpy as np
import pytest

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, beta1, modern
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 48)).astype(np.float32)
COLUMN = np.abs(RNG.standard_normal((32, 1))).astype(np.float32)


def kernel_of(body, chip, dtype=np.float32, shape=None):
    """body(dst, *tiles) leaves its result in dst."""

    @modern.jit(platform_target=chip)
    def kernel(*given):
        tiles = [nl.load(g) for g in given]
        dst = nl.ndarray(shape or given[0].shape, dtype=dtype)
        body(dst, *tiles)
        out = nl.ndarray(dst.shape, dtype=dst.dtype, buffer=nl.shared_hbm)
        nl.store(out, dst)
        return out

    return kernel


def run(body, *arrays, chip="trn3", dtype=np.float32, shape=None):
    return neuron.simulate(kernel_of(body, chip, dtype, shape), *arrays)


def cost(body, name, *arrays, chip="trn3", dtype=np.float32, shape=None):
    """(engine, cycles) of the instruction of that name."""
    found = neuron.estimate(kernel_of(body, chip, dtype, shape), *arrays, chip=chip)
    ((engine, use),) = [(e, u) for e, u in found.engines.items() if name in u.by_name]
    return engine, use.by_name[name]


# --- activate2 and prelu -------------------------------------------------------------------------


def gelu_of(dst, a):
    nisa.activate2(dst, nl.tanh, a, 2.0, 0.5, nl.multiply, nl.add)


def test_activate2_scales_shifts_and_applies():
    assert np.allclose(run(gelu_of, X), np.tanh(2 * X + 0.5), atol=1e-6)
    assert cost(gelu_of, "activate2", X) == ("Scalar", 164)  # short


@pytest.mark.parametrize(
    ("stages", "want"),
    [
        ((nl.multiply, nl.subtract), lambda x, c: x * c - 0.5),
        ((nl.multiply, nl.bypass), lambda x, c: x * c),
        ((nl.add, nl.bypass), lambda x, c: x + c),
        ((nl.subtract, nl.bypass), lambda x, c: x - c),
        ((nl.bypass, nl.bypass), lambda x, c: x),
    ],
)
def test_activate2_s_stages(stages, want):
    def body(dst, a, column):
        nisa.activate2(dst, nl.copy, a, column, 0.5, *stages)

    assert np.allclose(run(body, X, COLUMN), want(X, COLUMN), atol=1e-6)


def test_activate2_turned_around_and_added_up():
    def body(dst, a):
        whole = nl.ndarray(a.shape, dtype=nl.float32)
        nisa.activate2(
            whole,
            nl.exp,
            a,
            1.0,
            0.0,
            nl.subtract,
            nl.bypass,
            reverse0=True,
            reduce_op=nl.add,
            reduce_res=dst,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )

    want = np.exp(1 - X).sum(1, keepdims=True)
    assert np.allclose(run(body, X, shape=(32, 1)), want, rtol=1e-5)


def test_prelu_s_slope():
    def body(dst, a, column):
        nisa.activate2(dst, nl.prelu, a, 0.0, 0.0, nl.bypass, nl.bypass, relu_param=column)

    assert np.allclose(run(body, X, COLUMN), np.where(X < 0, COLUMN * X, X))
    with pytest.raises(NeuronError, match=r"nl.prelu has a slope, which only nisa.activate2 takes"):
        run(lambda dst, a: nisa.activation(dst, nl.prelu, a), X)


@pytest.mark.parametrize(
    ("chip", "options", "says"),
    [
        ("trn2", {}, r"activate2 needs NeuronCore-v4 \(trn3\); trn2 has NeuronCore-v3"),
        ("trn3", {"op0": nl.add, "op1": nl.add}, "op0 and op1 are add and add; accepted: multiply"),
        ("trn3", {"op": nl.add}, "add takes 2 operands, here 1"),
        ("trn3", {"reduce_op": nl.multiply}, "reduce_op is nl.multiply; accepted: add, maximum"),
        ("trn3", {"imm0": "two"}, "imm0 is 'two'; accepted: a number"),
    ],
)
def test_activate2_refuses(chip, options, says):
    given = {"op": nl.exp, "imm0": 1.0, "imm1": 0.0, "op0": nl.multiply, "op1": nl.add, **options}
    with pytest.raises(NeuronError, match=says):
        run(lambda dst, a: nisa.activate2(dst, data=a, **given), X, chip=chip)


# --- random numbers ------------------------------------------------------------------------------


def seeded(number, draw, dtype=np.uint32):
    def body(dst, a):
        seed = nl.full((1, 1), number, dtype=nl.int32)
        nisa.set_rng_seed(seed)
        draw(dst)

    return run(body, X, dtype=dtype)


def test_rng_makes_bits_that_a_seed_repeats():
    one, same, other = (seeded(n, nisa.rng) for n in (7, 7, 8))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert len(np.unique(one)) == one.size and one.max() > 2**31
    assert seeded(7, nisa.rng, np.int8).min() < 0
    assert cost(lambda dst, a: nisa.rng(dst), "rng", X, dtype=np.uint32)[0] == "Vector"


def test_rand_repeats_with_its_seed():
    def body(dst, a):
        seed = nl.full((1, 1), 3, dtype=nl.int32)
        nl.random_seed(seed)
        nl.rand(a.shape, nl.float32)
        nl.random_seed(seed)
        nisa.tensor_copy(dst, nl.rand(a.shape, nl.float32))

    found = run(body, X, chip="inf2")
    assert np.array_equal(found, run(body, X, chip="inf2")) and 0 <= found.min() < found.max() < 1


def test_rand2_lies_between_its_bounds():
    found = run(lambda dst, a, c: nisa.rand2(dst, -1.0, c), X, COLUMN + 1)
    assert (found >= -1).all() and (found < COLUMN + 1).all() and found.std() > 0.3
    assert cost(lambda dst, a: nisa.rand2(dst, 0.0, 1.0), "rand2", X)[0] == "Vector"


def test_a_state_is_read_back_until_a_number_is_drawn():
    state = RNG.integers(1, 2**31, (32, 6)).astype(np.uint32)

    def body(dst, s, draws=False):
        nisa.rand_set_state(s)
        if draws:
            nisa.rng(nl.ndarray(s.shape, dtype=nl.uint32))
        nisa.rand_get_state(dst)

    assert np.array_equal(run(body, state, dtype=np.uint32), state)
    with pytest.raises(NeuronError, match="not simulated: rand_get_state of a state that"):
        run(lambda dst, s: body(dst, s, True), state, dtype=np.uint32)


@pytest.mark.parametrize(
    ("chip", "body", "says"),
    [
        ("trn3", lambda d, a: nisa.rng(d), "dst .* is float32; accepted: whole numbers"),
        ("inf2", lambda d, a: nisa.rng(d, nisa.gpsimd_engine), "rng on GpSimd needs NeuronCore-v3"),
        ("inf2", lambda d, a: nisa.rng(d, nisa.scalar_engine), "rng cannot run on engine.scalar"),
        ("trn2", lambda d, a: nisa.rand2(d, 0.0, 1.0), "rand2 needs NeuronCore-v4"),
        ("trn3", lambda d, a: nisa.rand2(d, 1.0, 0.0), "accepted: min < max"),
        ("inf2", lambda d, a: nisa.set_rng_seed(a), r"accepted: \[1, 1\] of 32 bits"),
        ("inf2", lambda d, a: nisa.rand_set_state(a), "rand_set_state needs NeuronCore-v3"),
        ("trn2", lambda d, a: nisa.rand_set_state(a, nisa.vector_engine), "needs NeuronCore-v4"),
        ("trn3", lambda d, a: nisa.rand_set_state(a), "accepted on GpSimd: uint32, 6 each"),
    ],
)
def test_random_numbers_refuse(chip, body, says):
    with pytest.raises(NeuronError, match=says):
        run(body, X, chip=chip)


# --- topk, dynamic copies, indirect columns ------------------------------------------------------


def top(k, n, source):
    @modern.jit(platform_target="trn3")
    def kernel(x):
        src = nl.load(x)
        values = nl.ndarray((x.shape[0], k), dtype=nl.bfloat16)
        places = nl.ndarray((x.shape[0], k), dtype=nl.uint32)
        nisa.topk(val_dst=values, idx_dst=places, src=src, n=n)
        outs = []
        for tile in (values, places):
            out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
            outs.append(out)
        return tuple(outs)

    return kernel, source


def test_topk_reads_its_16_partitions_as_a_snake():
    numbers = RNG.permutation(96).astype(np.float32).reshape(32, 3).astype(ml_dtypes.bfloat16)
    kernel, x = top(8, 42, numbers)
    values, places = neuron.simulate(kernel, x)
    for first in (0, 16):
        snake = numbers[first : first + 16].T.reshape(-1)[:42].astype(np.float32)
        best = np.argsort(snake)[-8:]
        for row in range(first, first + 16):
            assert np.array_equal(places[row], best)
            assert np.array_equal(values[row].astype(np.float32), snake[best])
    found = neuron.estimate(kernel, x, chip="trn3").engines["GpSimd"]
    assert found.by_name["topk"] == pytest.approx(max(64, 4 * 42 + 8), abs=101)


@pytest.mark.parametrize(("k", "n"), [(8, 4), (48, 42), (8, 65536)])
def test_topk_refuses(k, n):
    kernel, x = top(k, n, np.zeros((32, 3), ml_dtypes.bfloat16))
    with pytest.raises(NeuronError, match=r"topk: .*accepted: 8 ≤ n < 65536"):
        neuron.simulate(kernel, x)


def test_copies_from_and_to_where_a_number_says():
    def body(dst, a, at):
        offset = nisa.register_alloc()
        nisa.register_load(offset, at)
        picked = a.ap([[48, 32], [1, 16]], scalar_offset=offset, indirect_dim=1)
        nisa.tensor_copy_dynamic_src(dst, picked)

    at = np.array([[5]], np.int32)
    assert np.array_equal(run(body, X, at, shape=(32, 16), chip="inf2"), X[:, 5:21])

    def to(dst, a, at):
        nisa.memset(dst, 0.0)
        offset = nisa.register_alloc()
        nisa.register_load(offset, at)
        part = dst.ap([[48, 32], [1, 16]], scalar_offset=offset, indirect_dim=1)
        nisa.tensor_copy_dynamic_dst(part, a[:, 0:16])

    found = run(to, X, at, chip="inf2")
    assert np.array_equal(found[:, 5:21], X[:, :16]) and not found[:, :5].any()
    name = "tensor_copy_dynamic_src"
    assert cost(body, name, X, at, shape=(32, 16), chip="inf2") == ("Vector", 700)
    with pytest.raises(NeuronError, match=r"neither .* nor .* lies where a number in SBUF says"):
        run(lambda dst, a: nisa.tensor_copy_dynamic_src(dst, a), X, chip="inf2")


def test_copies_to_and_from_places_in_beta_1():
    @beta1.jit
    def kernel(x, places):
        a, at = bl.load(x), bl.load(places)
        p = bl.arange(32)[:, None]
        picked = bisa.tensor_copy_dynamic_src(a[p, at])
        back = bl.zeros((32, 48), dtype=x.dtype, buffer=bl.sbuf)
        bisa.tensor_copy_dynamic_dst(dst=back[p, at], src=picked)
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, back)
        return out

    places = np.array([RNG.permutation(48)[:16] for _ in range(32)], np.int32)
    want = np.zeros_like(X)
    np.put_along_axis(want, places, np.take_along_axis(X, places, 1), 1)
    assert np.array_equal(neuron.simulate(kernel, X, places), want)


def test_indirect_gathers_and_scatters_columns():
    index = RNG.permutation(48)[:32].reshape(1, 32)
    offsets = np.concatenate([index.reshape(2, 16).T, index[:, ::-1].reshape(2, 16).T])
    offsets = offsets.astype(np.uint32)  # [32, 2]: two groups of 16 partitions, 32 columns each

    def gather(dst, a, at):
        nisa.tensor_copy(dst, a.indirect(at))

    got = run(gather, X, offsets, shape=(32, 32))
    assert np.array_equal(got[:16], X[:16][:, index[0]])
    assert np.array_equal(got[16:], X[16:][:, index[0, ::-1]])

    def scatter(dst, a, at):
        nisa.memset(dst, 0.0)
        nisa.tensor_copy(dst.indirect(at, num_elem=20), a[:, 0:20])

    got = run(scatter, X, offsets)
    assert np.array_equal(got[:16][:, index[0, :20]], X[:16, :20])
    assert not got[:16][:, index[0, 20:]].any()


@pytest.mark.parametrize(
    ("chip", "body", "says"),
    [
        ("trn2", lambda d, a, i: a.indirect(i), r"indirect of .* needs NeuronCore-v4"),
        ("trn3", lambda d, a, i: a.indirect(i, num_elem=33), "num_elem is 33; .* has 32"),
        ("trn3", lambda d, a, i: a[0:16].indirect(i), "as many partitions, a multiple of 16"),
        ("trn3", lambda d, a, i: a[:, 0:20].indirect(i), "out of bounds: a partition has 20"),
        (
            "trn3",
            lambda d, a, i: nisa.nc_matmul(
                nl.ndarray((32, 48), dtype=nl.float32, buffer=nl.psum), a.indirect(i), a
            ),
            "not simulated: nc_matmul of .*, which .indirect made",
        ),
    ],
)
def test_indirect_refuses(chip, body, says):
    index = np.arange(15, 47).reshape(2, 16).T.repeat(2, 0).astype(np.uint32)
    with pytest.raises(NeuronError, match=says):
        run(body, X, index, chip=chip)


# --- rearrange -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "wanted", "sizes", "like"),
    [
        (
            ("p", ("h", "w")),
            ("p", "w", "h"),
            {"h": 4},
            lambda x: x.reshape(32, 4, 12).swapaxes(1, 2),
        ),
        (("p", ("h", "w")), ("p", "h", "w"), {"w": 6}, lambda x: x.reshape(32, 8, 6)),
        (("p", "f"), ("p", "f"), None, lambda x: x),
    ],
)
def test_rearrange(source, wanted, sizes, like):
    want = like(X)

    def body(dst, a):
        nisa.tensor_copy(dst, a.rearrange(source, wanted, sizes))

    assert np.array_equal(run(body, X, shape=want.shape, chip="inf2"), want)


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
        run(lambda dst, a: a.rearrange(source, wanted, sizes), X, chip="inf2")


# --- beta 1: loop_reduce, atomic_rmw -------------------------------------------------------------


def reducing(op, assigned=False, over=0):
    @beta1.jit
    def kernel(x):
        total = bl.ndarray((bl.par_dim(32), 48), dtype=bl.float32)
        for i in bl.affine_range(2):
            for j in bl.affine_range(3):
                a = bl.load(x[i, j])
                found = bl.loop_reduce(a, op=op, loop_indices=[(i, j)[o] for o in range(2 - over)])
                if assigned:
                    total[...] = found
        out = bl.ndarray((32, 48), dtype=bl.float32, buffer=bl.shared_hbm)
        bl.store(out, total if assigned else found)
        return out

    return kernel


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize(("op", "like"), [(np.add, np.sum), (np.maximum, np.max)])
def test_loop_reduce(op, like, assigned):
    x = RNG.standard_normal((2, 3, 32, 48)).astype(np.float32)
    with pytest.warns(UserWarning, match="loop_reduce begins with its first tile"):
        found = neuron.simulate(reducing(op, assigned), x)
    assert np.allclose(found, like(x, (0, 1)), atol=1e-5)


def test_loop_reduce_over_the_inner_loop_begins_anew_in_the_outer_one():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray((2, 32, 48), dtype=bl.float32, buffer=bl.shared_hbm)
        for i in bl.affine_range(2):
            for j in bl.affine_range(3):
                found = bl.loop_reduce(bl.load(x[i, j]), op=np.add, loop_indices=[j])
            bl.store(out[i], found)
        return out

    x = RNG.standard_normal((2, 3, 32, 48)).astype(np.float32)
    with pytest.warns(UserWarning, match="loop_reduce begins"):
        assert np.allclose(neuron.simulate(kernel, x), x.sum(1), atol=1e-5)


def test_loop_reduce_wants_the_index_of_a_loop():
    @beta1.jit
    def kernel(x):
        return bl.loop_reduce(bl.load(x), op=np.add, loop_indices=[0])

    with pytest.raises(NeuronError, match=r"loop_reduce over \[0\]; accepted: indices of"):
        neuron.simulate(kernel, X)


def test_atomic_rmw_adds_to_a_row_as_often_as_it_is_named():
    @beta1.jit
    def kernel(table, rows, value, op):
        at, v = bl.load(rows), bl.load(value)
        ix = bl.arange(48)[None, :]
        bl.atomic_rmw(table[at, ix], value=v, op=op)
        return table

    table = RNG.standard_normal((100, 48)).astype(np.float32)
    rows = RNG.integers(0, 20, (32, 1)).astype(np.int32)
    want = table.copy()
    np.add.at(want, rows[:, 0], X)
    assert np.allclose(neuron.simulate(kernel, table.copy(), rows, X, np.add), want, atol=1e-5)
    with pytest.raises(NeuronError, match=r"atomic_rmw: op is .*; accepted: np.add"):
        neuron.simulate(kernel, table.copy(), rows, X, np.multiply)
    with pytest.raises(NeuronError, match="out of bounds"):
        neuron.simulate(kernel, table.copy(), rows + 90, X, np.add)


def test_atomic_rmw_needs_places_that_a_tile_names():
    @beta1.jit
    def kernel(table, value):
        bl.atomic_rmw(table[0:32, 0:48], value=bl.load(value), op=np.add)
        return table

    with pytest.raises(NeuronError, match="accepted: a tensor in HBM at places that a tile"):
        neuron.simulate(kernel, np.zeros((100, 48), np.float32), X)


# --- what no one core can do ---------------------------------------------------------------------


@pytest.mark.parametrize("name", modern.collectives.NAMES)
def test_collectives_are_not_simulated(name):
    def kernel(x):
        group = modern.collectives.ReplicaGroup([[0, 1]])
        getattr(modern.collectives, name)([x], [x], group)

    with pytest.raises(NeuronError, match=rf"not simulated: nki.collectives.{name}, .*sendrecv"):
        neuron.simulate(modern.jit(kernel), X)


def test_the_core_is_of_the_first_revision():
    assert nisa.get_nc_sub_version() == 0
    params = InterpretParams(chip="trn2")
    assert neuron.simulate(kernel_of(nisa.tensor_copy, "trn2"), X, params=params) is not None
