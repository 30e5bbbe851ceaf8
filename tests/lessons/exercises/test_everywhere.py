"""The formulas behind the exercises of the last chapter, worked out by hand."""

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

from kernels.lessons.exercises import exercises, judges
from kernels.lessons.exercises.everywhere import PROGRAMS
from kernels.proof.ladder import Refused


def test_distances_by_hand():
    x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    assert exercises()["distances"].formula(x, y).tolist() == [[9, 16, 25], [16, 9, 0]]


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
    formula = exercises()["ahead"].formula
    theirs, band = np.array([1.2, 1.3, 0.5, 1.0, 1.25]), np.repeat([[-0.2], [0.25]], 5, 1)
    assert formula(np.ones(5), theirs, band).tolist() == [0, 1, -1, 0, 0]


@pytest.mark.parametrize("name", ["linear", "gradients", "batched"])
def test_product_flops_are_those_that_xla_counts(name):
    function, shapes, *_ = PROGRAMS[name]
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    counted = jax.jit(function).lower(*arrays).cost_analysis()["flops"]
    found = exercises()["product_flops"].formula(function, *arrays)
    assert found <= counted < 1.3 * found  # what is not a product is small
