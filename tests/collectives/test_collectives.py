"""Operators over several chips: what they refuse, how they cut, and what faults the rungs see."""

import functools
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from refused import refuses

from kernels import collectives, ladder, tpu
from kernels.collectives import matmul_ring, reference, ring, ring_attention, zigzag
from kernels.figures.store import read
from kernels.machines.pallas.exchange import Message, duration
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.catalog import OPERATORS

TORUS = OPERATORS["all_gather"].workloads["torus"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_gradients_on_a_torus(name):
    subject = ladder.Subject.of(OPERATORS[name], OPERATORS[name]["pallas"])
    [check] = ladder.climb(subject, "interpret", [TORUS])
    assert check.status == ladder.PASSED, check


test_what_a_gather_and_a_scatter_refuse = refuses(
    lambda name, shape, dtype, axis: jax.vmap(
        lambda x: getattr(collectives, name)(x, axis, implementation="xla"), axis_name="x"
    )(np.zeros((2, *shape), dtype)),
    ("reduce_scatter", (7, 8), "float32", "x", r"shape\[0\] is 7; accepted: a multiple of 2"),
    ("all_gather", (8, 8), "float32", "z", r"is 'z'; .* of the mesh, inside jax\.shard_map"),
    ("all_gather", (8,), "float32", "x", r"x\.shape is \(8,\); accepted: 2 dimensions"),
    ("all_gather", (8, 8), "int32", "x", r"x\.dtype is 'int32'; accepted: float32, bfloat16"),
    ("all_gather", (0, 8), "float32", "x", r"x\.shape is \(0, 8\); accepted: dimensions"),
)


def test_outside_of_a_mesh_a_gather_is_refused():
    with pytest.raises(ValueError, match=r"an axis of the mesh, inside jax\.shard_map"):
        collectives.all_gather(np.zeros((8, 8), np.float32), "x")


def test_uneven_parts_of_a_ring_and_how_it_goes():
    assert ring.make_ring("x", 4, ring.GATHER, 17, "float32").parts == ((1, 8, 9), (-1, 0, 8))
    assert ring.make_ring("x", 4, ring.GATHER, 17, "bfloat16").parts == ((1, 0, 17),)
    barriers = {ring.make_ring("x", 4, kind, 8, "float32").barrier for kind in (0, 1)}
    assert len(barriers) == 2


test_what_all_to_all_refuses = refuses(
    lambda shape, sizes, axis: jax.vmap(
        lambda x: collectives.all_to_all(x, sizes, axis), axis_name="x"
    )(np.zeros((2, *shape), np.float32)),
    ((2, 8, 4), np.zeros(2, np.int32), ("x",), r"axis_name is \('x',\); accepted: one axis"),
    ((3, 8, 4), np.zeros(2, np.int32), "x", r"x\.shape\[0\] is 3; accepted: 2"),
    ((2, 8, 4), np.zeros(3, np.int32), "x", r"sizes\.shape\[0\] is 3; accepted: 2"),
    ((2, 8, 4), np.zeros(2, np.float32), "x", r"sizes\.dtype is 'float32'; accepted: int32"),
    ((2, 8), np.zeros(2, np.int32), "x", r"x\.shape is \(2, 8\); accepted: 3 dimensions"),
)


NAMES = "all_gather_matmul", "matmul_reduce_scatter"


@pytest.mark.parametrize("kind", [ring.GATHER_MATMUL, ring.MATMUL_SCATTER])
def test_strips_cover_a_part_and_find_room(kind):
    rng = np.random.default_rng(0)
    for dtype in ("float32", "bfloat16"):
        for rows, k, columns in 2 ** rng.integers(0, 14, (20, 3)) + rng.integers(0, 5, (20, 3)):
            w = jax.ShapeDtypeStruct((int(k), int(columns)), dtype)
            strips = matmul_ring.make_strips("x", 4, kind, int(rows), w)
            assert rows <= strips.rows and columns <= strips.columns * strips.block.bn
            assert strips.per_lane > 1 and strips.block.fits(dtype, tpu.CHIPS["v5e"].vmem_bytes)
            assert strips.block.bm % (32 // w.dtype.itemsize) == strips.block.bn % 128 == 0


test_what_products_on_a_ring_refuse = refuses(
    lambda name, x, w: jax.eval_shape(
        jax.vmap(lambda x, w: getattr(collectives, name)(x, w, "x"), axis_name="x"),
        *(jax.ShapeDtypeStruct((2, *shape), jnp.float32) for shape in (x, w)),
    ),
    (NAMES[1], (7, 8), (8, 4), r"x\.shape\[0\] is 7; accepted: a multiple of 2"),
    (NAMES[0], (8, 8), (9, 4), r"w\.shape\[0\] is 9; accepted: 8, as x\.shape\[1\]"),
    (NAMES[0], (8, 8), (8,), r"w\.shape is \(8,\); accepted: 2 dimensions"),
    (NAMES[0], (8, 0), (0, 4), r"x\.shape is \(8, 0\); accepted: dimensions"),
    (NAMES[0], (8, 1 << 20), (1 << 20, 4), r"w\.shape is .*1048576, 4.*VMEM of a v5e"),
    (NAMES[1], (8, 8), (8, 1 << 21), r"w\.shape is .*2097152.*VMEM of a v5e"),
)


def there_and_back(x, w, names):
    """Rows times columns of all devices, then times their transpose, added up; its gradients."""

    def local(x, w):
        hidden = collectives.all_gather_matmul(x, w, names)
        return collectives.matmul_reduce_scatter(hidden, w.T, names)

    specs = {"in_specs": (P(names), P(None, names)), "out_specs": P(names)}
    run = lambda x, w: jax.shard_map(local, **specs, check_vma=False)(x, w)
    result, back = jax.vjp(run, x, w)
    return result, *back(jnp.ones_like(result))


@pytest.mark.slow
def test_several_axes_and_gradients_through_both():
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 12)))
    two_by_two = functools.partial(there_and_back, names=("x", "y"))
    run = tpu.simulate(two_by_two, x, w, mesh={"x": 2, "y": 2}, seed=2)
    ones = np.ones_like(x)
    wanted = x @ w @ w.T, ones @ w @ w.T, x.T @ ones @ w + ones.T @ x @ w
    assert run.races == ()
    assert all(np.allclose(*pair, rtol=1e-4, atol=1e-4) for pair in zip(run.result, wanted))


@pytest.mark.parametrize("count", [3, 5])
def test_sums_of_two_devices_leave_while_the_next_strips_are_multiplied(count, monkeypatch):
    def small(*arguments, make=matmul_ring.make_strips):
        strips = make(*arguments)
        block = replace(strips.block, bm=16, bn=128)
        return strips._replace(block=block, columns=3, late=1, per_lane=count)

    monkeypatch.setattr(matmul_ring, "make_strips", small)
    rng = np.random.default_rng(count)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((32 * count, 16), (16, 300)))
    local = lambda x, w: collectives.matmul_reduce_scatter(x, w, "x")
    specs = {"in_specs": (P(None, "x"), P("x")), "out_specs": P("x")}
    scatter = lambda x, w: jax.shard_map(local, **specs, check_vma=False)(x, w)
    run = tpu.simulate(scatter, x, w, mesh={"x": 2}, seed=count)
    assert run.races == () and np.allclose(run.result, x @ w, rtol=1e-4, atol=1e-4)


def test_the_ledger_has_what_is_recorded_for_two_devices():
    ours = [r for r in read("estimated.csv") if r.operator == NAMES[1] and r.sizes["devices"] == 2]
    ledger = Path(collectives.__file__).with_name("ledger.md").read_text("utf-8")
    assert [f"estimated at {1e3 * r.value:,.0f} µs there" in ledger for r in ours] == [True]


def test_work_hides_messages_and_what_it_does_not_hide_is_waited_for():
    wait = lambda share: Message(share, ("arrived",))
    sent = lambda share, to: Message(share, ("sent", "arrived"), to, 10)
    assert duration([sent(0, 1), wait(0.5)], 100, 1, 2) == 100
    assert duration([sent(0, 1), wait(0)], 100, 1, 2) == 112
    assert duration([sent(0, 1), wait(0.1)], 100, 1, 2) == 102
    # One link serves one after another, two links both.
    assert duration([sent(0, 1), sent(0, 1), wait(0), wait(0)], 100, 1, 0) == 120
    assert duration([sent(0, 1), sent(0, 2), wait(0), wait(0)], 100, 1, 0) == 110


@pytest.mark.parametrize("devices", [1, 2, 7])
def test_zigzag_gives_each_device_as_many_pairs_and_leads_back(devices):
    tokens = np.arange(devices * 6)
    cut = zigzag(tokens, devices, axis=0)
    assert np.array_equal(zigzag(cut, devices, axis=0, back=True), tokens)
    seen = (cut + 1).reshape(devices, 6).sum(1)  # token i sees i + 1 keys
    assert len(set(seen)) == 1
    assert np.array_equal(zigzag(jnp.asarray(tokens), devices, axis=0), cut)


def test_uneven_parts_are_refused():
    with pytest.raises(ValueError, match=r"x\.shape\[2\] is 6; accepted: a multiple of 4"):
        zigzag(np.zeros((1, 1, 6, 8)), 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 3, "causal": True}, r"q\.shape\[2\] \(tokens\) is 3; accepted: an even number"),
        ({"d": 257}, r"q\.shape\[3\] \(head_dim\) is 257; accepted: at most 256"),
        ({"dtype": "int32"}, r"q\.dtype is 'int32'; accepted: float32, bfloat16"),
        ({"m": 5}, r"k\.shape is \(1, 1, 5, 8\); accepted: \(1, 1, 4, 8\), as q has it"),
        ({"causal": 2}, "causal is 2; accepted: False, True"),
        ({"scale": float("nan")}, "scale is nan; accepted: None or a finite number"),
        ({"block": 100}, "block is 100; accepted: None or a multiple of 128"),
        ({"axis_name": "z"}, "axis_name is 'z'; accepted: one axis of the mesh"),
        ({"axis_name": ("x",)}, r"axis_name is \('x',\); accepted: one axis of the mesh"),
        ({"implementation": "ring"}, "implementation is 'ring'; accepted: xla, gathered, pallas"),
    ],
)
def test_what_ring_attention_refuses(change, words):
    options = {"axis_name": "x", **change}
    n, d = options.pop("n", 4), options.pop("d", 8)
    m, dtype = options.pop("m", n), options.pop("dtype", "float32")
    q, k = (np.zeros((2, 1, 1, tokens, d), dtype) for tokens in (n, m))
    with pytest.raises(ValueError, match=words):
        jax.vmap(lambda q, k: ring_attention(q, k, k, **options), axis_name="x")(q, k)


@pytest.mark.slow
def test_a_ring_along_one_axis_of_two():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 1, 16, 16)).astype(np.float32) for _ in range(3))
    local, spec = functools.partial(ring_attention, axis_name="y", causal=True), P("x", None, "y")
    own = lambda *qkv: jax.shard_map(local, in_specs=spec, out_specs=spec, check_vma=False)(*qkv)
    runs = [tpu.simulate(own, q, k, v, mesh={"x": 2, "y": 2}, seed=seed) for seed in (1, 2)]
    parts = [x.reshape(2, 1, 2, 8, 16).transpose(2, 0, 1, 3, 4) for x in (q, k, v)]
    wanted = reference.ring_attention(*(x.astype(np.float64) for x in parts), causal=True)
    assert runs[0].races == runs[1].races == ()
    assert np.array_equal(runs[0].result, runs[1].result)
    result = runs[0].result.reshape(2, 1, 2, 8, 16).transpose(2, 0, 1, 3, 4)
    assert np.abs(result - wanted).max() < 1e-6 * np.abs(v).max()


def in_the_other_order(x, axis_name, *, interpret):
    return collectives.all_gather(x, axis_name[::-1], interpret=interpret)


def a_row_too_many(x, sizes, axis_name, *, interpret):
    more = jnp.minimum(sizes + 1, x.shape[1])
    return collectives.all_to_all(x, more, axis_name, interpret=interpret)


@pytest.mark.parametrize(
    ("name", "workload", "function"),
    [("all_gather", "torus", in_the_other_order), ("all_to_all", "three", a_row_too_many)],
)
def test_a_workload_tells_a_wrong_collective(name, workload, function):
    operator, spread = OPERATORS[name], PALLAS_TPU_MESH.spread(function)
    subject = ladder.Subject(operator, "planted", PALLAS_TPU_MESH, spread, tunable=True)
    [check] = ladder.climb(subject, "simulate", [operator.workloads[workload]])
    assert check.status == ladder.FAILED and "the reference" in check.message, check
