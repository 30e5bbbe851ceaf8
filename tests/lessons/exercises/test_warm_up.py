"""Puzzles: a wrong answer is refused, with what was wanted beside it; a right one written otherwise
passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from kernels import exercises

X = np.arange(12, dtype=np.float32).reshape(3, 4)
transposed = np.transpose


def by_columns(x_ref, o_ref):
    for column in range(4):
        o_ref[column, :] = x_ref[:, column]


def never_written(x_ref, o_ref):
    x_ref[...]


def known_by_heart(x_ref, o_ref):
    o_ref[...] = jax.lax.broadcasted_iota(jnp.float32, (4, 3), 1) * 4 + jax.lax.broadcasted_iota(
        jnp.float32, (4, 3), 0
    )


def of_another_shape(x_ref, o_ref):
    o_ref[...] = x_ref[...]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (never_written, "12 of 12 differ, first [0, 0]: wanted 0, got nan"),
        (known_by_heart, "wanted"),
        (of_another_shape, "Invalid shape"),
    ],
)
def test_a_wrong_answer_is_refused(answer, words):
    outcome = exercises.warm_up(answer, transposed, X)
    assert outcome.passed is False and words in str(outcome)


def test_right_answers_pass():
    assert exercises.warm_up(by_columns, transposed, X).passed
    double = lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2)
    block = pl.BlockSpec((1, 4), lambda i: (i, 0))
    for out_specs in (block, [block]):
        specs = {"grid": 3, "in_specs": [block], "out_specs": out_specs}
        assert exercises.warm_up(double, lambda x: x * 2, X, **specs).passed
    assert exercises.warm_up(lambda n: n + 1, lambda n: n + 1, 3, call=False).passed
    off_by_one = exercises.warm_up(lambda n: n, lambda n: n + 1, 3, call=False)
    assert "wanted 4, got 3" in off_by_one._repr_html_()
    of_two = exercises.warm_up(lambda x: (x, x), lambda x: x, X, call=False)
    assert "[(3, 4), (3, 4)]; accepted: [(3, 4)]" in str(of_two)


def test_what_is_no_function_is_refused():
    with pytest.raises(ValueError, match="formula is a int; accepted: a function"):
        exercises.warm_up(by_columns, 3, X)


def test_a_stub_is_not_wrong():
    def stub(x_ref, o_ref): ...

    assert exercises.warm_up(stub, transposed, X).passed is None
