"""Speed as a bar: what a miss and a medal are told, that counting counts; formulas by hand."""

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl
from refused import refuses
from solutions import TEXTS

from kernels.lessons.exercises import exercises, judges
from kernels.lessons.exercises.bars import Bar
from kernels.lessons.exercises.counted import counted
from kernels.lessons.exercises.everywhere import PROGRAMS
from kernels.machines.taichi import KernelSource
from kernels.proof.ladder import Refused


def bar(found, **options):
    return Bar("bundles", lambda tried: found, bar=100, ours=80, **options).judge(None)


@pytest.mark.parametrize(
    ("found", "says", "medal"),
    [
        (80, "80 bundles; the bar is 100: a medal, ours has 80", True),
        (81, "a medal", True),
        (90, "90 bundles; the bar is 100; 12% to the medal, ours has 80", False),
        (100, "25% to the medal", False),
    ],
)
def test_what_reaches_the_bar_is_told_how_far_the_medal_is(found, says, medal):
    told, earned = bar(found)
    assert says in told and earned is medal


@pytest.mark.parametrize(("found", "away"), [(101, "1%"), (100.4, "0.4%"), (250, "150%")])
def test_a_near_miss_is_told_how_near(found, away):
    with pytest.raises(Refused, match=f"the bar is 100, {away} away"):
        bar(found)


# In the first ones there is nothing to speed up yet; the others read, compare, or bring a kernel.
WITHOUT = ("hello_pallas", "grids_and_memory", "inside_a_kernel", "blockspec_matmul")
WITHOUT += ("trust_a_kernel", "xla_pipeline", "xla_on_a_gpu", "gpu_without_a_gpu", "everywhere")
WITHOUT += ("bring_your_own",)


def test_each_chapter_that_makes_something_fast_has_one_for_speed():
    for path in TEXTS:
        names = [n for n, e in exercises().items() if e.bar and f'check("{n}"' in path.read_text()]
        assert names or path.stem[3:] in WITHOUT, path.stem


def test_the_solution_of_a_speed_exercise_earns_the_medal():
    text = "\n".join(path.read_text() for path in TEXTS)
    for name, exercise in exercises().items():
        solution = text.rpartition(f'answer = exercises.check("{name}"')[2].partition("```")[0]
        assert ("\nassert answer.medal" in solution) == bool(exercise.bar and exercise.bar.ours)


def test_our_own_is_better_than_the_bar():
    for exercise in exercises().values():
        if (bar := exercise.bar) and bar.ours:
            assert bar.figure_of_ours() <= bar.bar, exercise.name


def test_there_are_at_least_85():
    assert len(exercises()) >= 85


COUNTED = """
@ti.kernel
def some(out: ti.types.ndarray(ndim=2), x: ti.types.ndarray(ndim=2), step: ti.i32):
    h = x.shape[0]
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        u = (row - step) // h
        out[row, col] = x[row % h, col] + u
    for row in range(out.shape[0]):
        out[row, 0] += out[row, 1]
"""


def test_counting():
    found = counted(KernelSource("some", COUNTED), np.zeros((4, 3)), np.ones((2, 3)), 1)
    assert (found.loads, found.stores, found.divisions) == (20, 16, 24)


test_what_cannot_be_counted = refuses(
    lambda *change: counted(
        KernelSource("some", COUNTED.replace(*change)), np.zeros((4, 3)), np.ones((2, 3)), 1
    ),
    ("row % h, col", "row, col", r"element \[2, 0\] is outside of \[2, 3\]"),
    ("ti.ndrange(", "ti.grouped(", "this cannot be counted: .*grouped"),
    ("out[row, 0] +=", "out[0, 0] +=", r"share element \[0, 0\] of out"),
    error=Refused,
)


def test_distances_by_hand():
    x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    assert exercises()["distances"].reference(x, y).tolist() == [[9, 16, 25], [16, 9, 0]]


@pytest.mark.parametrize(
    ("precision", "dtype", "rounds"),
    [
        (None, "float32", True),
        ("high", "float32", True),
        ("highest", "float32", False),
        (None, "bfloat16", False),
    ],
)
def test_a_product_of_float32_rounds_unless_its_precision_is_the_highest(precision, dtype, rounds):
    x = jax.ShapeDtypeStruct((8, 8), dtype)

    def product(x):
        return jax.numpy.dot(x, x, precision=precision, preferred_element_type=jax.numpy.float32)

    def kernel(x_ref, o_ref):
        o_ref[...] = product(x_ref[...])

    wide = jax.ShapeDtypeStruct((8, 8), "float32")
    for function in (product, pl.pallas_call(kernel, out_shape=wide)):
        if rounds:
            with pytest.raises(Refused, match="rounds its float32 factors"):
                judges.float32_products([(function, [x])])
        else:
            assert judges.float32_products([(function, [x])]) == "no factor is rounded"


def test_ahead_is_a_tie_where_the_band_reaches_one():
    formula = exercises()["ahead"].reference
    theirs, band = np.array([1.2, 1.3, 0.5, 1.0, 1.25]), np.repeat([[-0.2], [0.25]], 5, 1)
    assert formula(np.ones(5), theirs, band).tolist() == [0, 1, -1, 0, 0]


@pytest.mark.parametrize("name", ["linear", "gradients", "batched"])
def test_product_flops_are_those_that_xla_counts(name):
    function, shapes, *_ = PROGRAMS[name]
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    counted = jax.jit(function).lower(*arrays).cost_analysis()["flops"]
    found = exercises()["product_flops"].reference(function, *arrays)
    assert found <= counted < 1.3 * found  # what is not a product is small
