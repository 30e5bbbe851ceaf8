"""all_to_all: what it refuses, what faults the rungs see, and experts over four chips."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from refused import refuses

from kernels import collectives, ladder, tpu
from kernels.experts import reference
from kernels.experts.routing import route, weights
from kernels.grouped_matmul import grouped_matmul
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.catalog import OPERATORS

TOP, EXPERTS = 2, 8


test_what_is_refused_before_anything_runs = refuses(
    lambda shape, sizes, axis: jax.vmap(
        lambda x: collectives.all_to_all(x, sizes, axis), axis_name="x"
    )(np.zeros((2, *shape), np.float32)),
    ((2, 8, 4), np.zeros(2, np.int32), ("x",), r"axis_name is \('x',\); accepted: one axis"),
    ((3, 8, 4), np.zeros(2, np.int32), "x", r"x\.shape\[0\] is 3; accepted: 2"),
    ((2, 8, 4), np.zeros(3, np.int32), "x", r"sizes\.shape\[0\] is 3; accepted: 2"),
    ((2, 8, 4), np.zeros(2, np.float32), "x", r"sizes\.dtype is 'float32'; accepted: int32"),
    ((2, 8), np.zeros(2, np.int32), "x", r"x\.shape is \(2, 8\); accepted: 3 dimensions"),
)


def planted(x, sizes, axis_name, *, interpret, fault):
    """Right, or what a fault leaves: blocks of other devices, rows too many, a lost last row."""
    if fault == "rows":
        sizes = jnp.minimum(sizes + 1, x.shape[1])
    y = collectives.all_to_all(x, sizes, axis_name, interpret=interpret)
    if fault == "last":
        come = lax.all_to_all(sizes, axis_name, 0, 0)
        y = y.at[:, come.max() - 1].set(0)
    return y[::-1] if fault == "order" else y


@pytest.mark.parametrize("fault", ["", "order", "rows", "last"])
def test_a_planted_fault_falls(fault):
    operator = OPERATORS["all_to_all"]
    function = PALLAS_TPU_MESH.spread(functools.partial(planted, fault=fault))
    subject = ladder.Subject(operator, "planted", PALLAS_TPU_MESH, function)
    [check] = ladder.climb(subject, "simulate", [operator.workloads["three"]])
    assert check.status == (ladder.FAILED if fault else ladder.PASSED), check


def experts(x, router, gate, up, down):
    """Each chip's tokens through the experts of all chips, which have EXPERTS / 4 each."""
    chips, here, (tokens, width) = lax.axis_size("x"), gate.shape[0], x.shape
    multiply = functools.partial(grouped_matmul, implementation="xla")
    logits, chosen = route(x, router, TOP)
    order = jnp.argsort(chosen.ravel(), stable=True)  # row → its token and which of its choices
    counts = (chosen.reshape(-1, 1) == jnp.arange(EXPERTS)).sum(0, dtype=jnp.int32)
    chip = chosen.ravel()[order] // here
    sizes = counts.reshape(chips, here).sum(1)
    place = jnp.arange(tokens * TOP) - (jnp.cumsum(sizes) - sizes)[chip]
    rows = jnp.zeros((chips, tokens * TOP, width)).at[chip, place].set(x[order // TOP])
    came = lax.all_to_all(counts.reshape(chips, here), "x", 0, 0)  # [from, expert here]
    rows = collectives.all_to_all(rows, sizes, "x")
    ends = jnp.cumsum(came, 1)[:, None]
    expert = (jnp.arange(tokens * TOP)[:, None] >= ends).sum(2).ravel()  # `here` of no row at all
    sort = jnp.argsort(expert, stable=True)
    mine, groups = rows.reshape(-1, width)[sort], came.sum(0)
    hidden = jax.nn.silu(multiply(mine, gate, groups)) * multiply(mine, up, groups)
    out = multiply(hidden, down, groups)[jnp.argsort(sort)].reshape(rows.shape)
    back = collectives.all_to_all(out, came.sum(1), "x")[chip, place][jnp.argsort(order)]
    return (weights(logits, chosen)[..., None] * back.reshape(tokens, TOP, width)).sum(1)


def over_chips(*arrays):
    specs = {"in_specs": (P("x"), P(), P("x"), P("x"), P("x")), "out_specs": P("x")}
    run = lambda *arrays: jax.shard_map(experts, **specs, check_vma=False)(*arrays)
    result, back = jax.vjp(run, *arrays)
    return result, *back(jnp.ones_like(result))


def test_experts_over_four_chips_are_those_of_one():
    rng = np.random.default_rng(0)
    shapes = (4 * 6, 16), (16, EXPERTS), (EXPERTS, 16, 24), (EXPERTS, 16, 24), (EXPERTS, 24, 16)
    arrays = [(rng.standard_normal(s) / s[-2] ** 0.5).astype(np.float32) for s in shapes]
    with jax.enable_x64(True):
        wide = [x.astype(np.float64) for x in arrays]
        exact, back = jax.vjp(functools.partial(reference.experts, top_k=TOP), *wide)
        wanted = [np.asarray(x) for x in (exact, *back(jnp.ones_like(exact)))]
    for seed in (1, 2):
        run = tpu.simulate(over_chips, *arrays, mesh={"x": 4}, seed=seed)
        assert run.races == ()
        for result, exact in zip(run.result, wanted, strict=True):
            assert np.abs(result - exact).max() < 1e-4 * np.abs(exact).max()
