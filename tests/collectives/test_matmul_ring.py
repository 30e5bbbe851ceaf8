"""Products on a ring: how rows are cut, what is refused, several axes, faults that rungs see."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from kernels import collectives, ladder, tpu
from kernels.collectives import matmul_ring, ring
from kernels.machines.pallas.exchange import Message, duration
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

SIZES = {"devices": 3, "rows": 20, "k": 16, "columns": 128}
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


@pytest.mark.parametrize(
    ("name", "x", "w", "words"),
    [
        (NAMES[1], (7, 8), (8, 4), r"x\.shape\[0\] is 7; accepted: a multiple of 2"),
        (NAMES[0], (8, 8), (9, 4), r"w\.shape\[0\] is 9; accepted: 8, as x\.shape\[1\]"),
        (NAMES[0], (8, 8), (8,), r"w\.shape is \(8,\); accepted: 2 dimensions"),
        (NAMES[0], (8, 0), (0, 4), r"x\.shape is \(8, 0\); accepted: dimensions"),
        (NAMES[0], (8, 1 << 20), (1 << 20, 4), r"w\.shape is .*1048576, 4.*VMEM of a v5e"),
        (NAMES[1], (8, 8), (8, 1 << 21), r"w\.shape is .*2097152.*VMEM of a v5e"),
    ],
)
def test_what_is_refused_before_anything_runs(name, x, w, words):
    operator = jax.vmap(lambda x, w: getattr(collectives, name)(x, w, "x"), axis_name="x")
    shapes = (jax.ShapeDtypeStruct((2, *shape), jnp.float32) for shape in (x, w))
    with pytest.raises(ValueError, match=words):
        jax.eval_shape(operator, *shapes)


def there_and_back(x, w, names):
    """Rows times columns of all devices, then times their transpose, added up; its gradients."""

    def local(x, w):
        hidden = collectives.all_gather_matmul(x, w, names)
        return collectives.matmul_reduce_scatter(hidden, w.T, names)

    specs = {"in_specs": (P(names), P(None, names)), "out_specs": P(names)}
    run = lambda x, w: jax.shard_map(local, **specs, check_vma=False)(x, w)
    result, back = jax.vjp(run, x, w)
    return result, *back(jnp.ones_like(result))


def test_several_axes_and_gradients_through_both():
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 12)))
    two_by_two = functools.partial(there_and_back, names=("x", "y"))
    run = tpu.simulate(two_by_two, x, w, mesh={"x": 2, "y": 2}, seed=2)
    ones = np.ones_like(x)
    wanted = x @ w @ w.T, ones @ w @ w.T, x.T @ ones @ w + ones.T @ x @ w
    assert run.races == ()
    assert all(np.allclose(*pair, rtol=1e-4, atol=1e-4) for pair in zip(run.result, wanted))


def planted(x, w, axis_name, *, interpret, fault):
    """all_gather_matmul in two steps: right, all zeros, a part that is another's, of another w."""
    whole = collectives.all_gather(x, axis_name, interpret=interpret)
    if fault == "part":
        whole = jnp.roll(whole, x.shape[0], 0)
    product = jnp.dot(whole, w.at[-1].set(0) if fault == "k" else w, precision="highest")
    return product * 0 if fault == "zeros" else product


@pytest.mark.parametrize("fault", ["", "zeros", "part", "k"])
def test_only_what_is_right_climbs(fault):
    function = PALLAS_TPU_MESH.spread(functools.partial(planted, fault=fault))
    subject = ladder.Subject(OPERATORS[NAMES[0]], "planted", PALLAS_TPU_MESH, function)
    [check] = ladder.climb(subject, "simulate", [Workload("three", SIZES)])
    assert check.status == (ladder.FAILED if fault else ladder.PASSED), check


def test_work_hides_messages_and_what_it_does_not_hide_is_waited_for():
    wait = lambda share: Message(share, ("arrived",))
    sent = lambda share, to: Message(share, ("sent", "arrived"), to, 10)
    assert duration([sent(0, 1), wait(0.5)], 100, 1, 2) == 100
    assert duration([sent(0, 1), wait(0)], 100, 1, 2) == 112
    assert duration([sent(0, 1), wait(0.1)], 100, 1, 2) == 102
    # One link serves one after another, two links both.
    assert duration([sent(0, 1), sent(0, 1), wait(0), wait(0)], 100, 1, 0) == 120
    assert duration([sent(0, 1), sent(0, 2), wait(0), wait(0)], 100, 1, 0) == 110
