"""all_gather and reduce_scatter: what they refuse, a torus, and what faults the rungs see."""

import functools

import jax
import numpy as np
import pytest

from kernels import collectives, ladder
from kernels.collectives import ring
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

THREE = Workload("three", {"devices": 3, "rows": 8, "columns": 128})
TORUS = OPERATORS["all_gather"].workloads["torus"]


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_gradients_on_a_torus(name):
    subject = ladder.Subject.of(OPERATORS[name], OPERATORS[name]["pallas"])
    [check] = ladder.climb(subject, "interpret", [TORUS])
    assert check.status == ladder.PASSED, check


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "axis", "words"),
    [
        ("reduce_scatter", (7, 8), "float32", "x", r"shape\[0\] is 7; accepted: a multiple of 2"),
        ("all_gather", (8, 8), "float32", "z", "axis_name is 'z'; accepted: an axis of the mesh"),
        ("all_gather", (8,), "float32", "x", r"x\.shape is \(8,\); accepted: 2 dimensions"),
        ("all_gather", (8, 8), "int32", "x", r"x\.dtype is 'int32'; accepted: float32, bfloat16"),
        ("all_gather", (0, 8), "float32", "x", r"x\.shape is \(0, 8\); accepted: dimensions"),
    ],
)
def test_what_is_refused_before_anything_runs(name, shape, dtype, axis, words):
    x = np.zeros((2, *shape), dtype)
    operator = getattr(collectives, name)
    with pytest.raises(ValueError, match=words):
        jax.vmap(lambda x: operator(x, axis, implementation="xla"), axis_name="x")(x)
    if axis == "z":
        with pytest.raises(ValueError, match=r"an axis of the mesh, inside jax\.shard_map"):
            operator(x[0], "x")


def test_uneven_parts_of_a_ring_and_how_it_goes():
    assert ring.make_ring("x", 4, ring.GATHER, 17, "float32").parts == ((1, 8, 9), (-1, 0, 8))
    assert ring.make_ring("x", 4, ring.GATHER, 17, "bfloat16").parts == ((1, 0, 17),)
    barriers = {ring.make_ring("x", 4, kind, 8, "float32").barrier for kind in (0, 1)}
    assert len(barriers) == 2


def forgetful(x, axis_name, *, interpret, lost):
    """A gather that loses nothing, everything, a row, or the order of the axes of a torus."""
    names = axis_name[:: -1 if lost == "order" else 1]
    whole = collectives.all_gather(x, names, interpret=interpret)
    return whole * 0 if lost == "all" else whole.at[-1].set(x[-1]) if lost == "one" else whole


@pytest.mark.parametrize("lost", ["", "all", "one", "order"])
@pytest.mark.parametrize("workload", [THREE, TORUS], ids=lambda w: w.name)
def test_a_planted_fault_falls(lost, workload):
    function = PALLAS_TPU_MESH.spread(functools.partial(forgetful, lost=lost))
    operator = OPERATORS["all_gather"]
    subject = ladder.Subject(operator, "planted", PALLAS_TPU_MESH, function, tunable=True)
    [check] = ladder.climb(subject, "simulate", [workload])
    falls = lost if workload is TORUS else lost.replace("order", "")
    assert check.status == (ladder.FAILED if falls else ladder.PASSED), check
