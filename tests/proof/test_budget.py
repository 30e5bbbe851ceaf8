"""The error budget passes what it should and refuses what it should."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.proof.budget import compare, ulp
from kernels.proof.judge import _terms

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)
REFERENCE = RNG.standard_normal((7, 5))
PLAIN = REFERENCE.astype(np.float32)


def judge(result, reference=REFERENCE, plain=PLAIN, **more):
    return compare(result, reference, plain, **more)


def test_the_plainest_implementation_passes_and_uses_at_most_half():
    verdict = judge(PLAIN)
    assert verdict.passed and verdict.used <= 0.5


def test_one_wrong_element_and_a_wrong_shape_fail_and_are_named():
    assert "shape" in judge(PLAIN.T).message
    wrong = PLAIN.copy()
    wrong[2, 3] += 1e-5
    verdict = judge(wrong)
    assert not verdict.passed and "element [2, 3]" in verdict.message


def test_all_zeros_fail_with_their_own_words_but_where_zero_or_nothing_is_right():
    assert judge(np.zeros_like(PLAIN)).message == "every element is zero"
    ints = np.arange(5, dtype=np.int32)
    assert compare(np.zeros_like(ints), ints, ints).message == "every element is zero"
    zeros = np.zeros((3, 3))
    assert compare(zeros.astype(np.float32), zeros, zeros.astype(np.float32)).passed
    assert compare(np.zeros(1, np.int32), np.zeros(1, np.int32), None).passed
    small = np.full((3, 3), 2.0**-160)  # too small for the dtype
    assert compare(zeros.astype(np.float32), small, zeros.astype(np.float32), small).passed
    for dtype in (np.float32, np.int32):
        nothing = np.zeros((0, 3), dtype)
        assert compare(nothing, nothing.astype(float), nothing, nothing).passed
        assert not compare(nothing.T, nothing.astype(float), nothing, nothing).passed


def test_integers_are_exact():
    ints = np.array([1, 2, 3], np.int32)
    assert compare(ints, ints, ints).passed
    assert "integers are exact" in compare(ints + np.int32([0, 1, 0]), ints, ints).message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_where_the_reference_has_it(bad):
    result, reference = PLAIN.copy(), REFERENCE.copy()
    result[1, 1] = bad
    assert "not finite where the reference is" in judge(result).message
    reference[1, 1] = bad
    assert judge(result, reference).passed and "not finite there" in judge(PLAIN, reference).message
    reference[1, 1] = -bad
    assert np.isnan(bad) or not judge(result, reference).passed  # of the other sign


def test_a_result_has_the_budget_of_its_dtype():
    rounded = REFERENCE.astype(BF16)
    assert not judge(rounded.astype(np.float32)).passed and judge(rounded, plain=rounded).passed
    assert not judge((rounded.astype(np.float32) * 1.03).astype(BF16), plain=rounded).passed


@pytest.mark.parametrize("values", ["normal", "wide"])
@pytest.mark.parametrize("count", [449, 4096])
def test_terms_may_be_added_in_any_order_but_not_in_bfloat16(count, values):
    """Added one after another, terms of one sign lose what no plain form with short sums does."""
    x, y = (RNG.random(shape).astype(np.float32) for shape in ((65, count), (count, 33)))
    if values == "wide":
        x, y = 10 ** (6 * x - 3), 10 ** (6 * y - 3)
    terms = _terms(SimpleNamespace(terms=count), SimpleNamespace(values=values))
    exact = x.astype(np.float64) @ y
    plain = exact.astype(np.float32)
    slow, narrow = np.zeros_like(plain), np.zeros_like(plain)
    for k in range(count):
        slow += x[:, k, None] * y[k]
        narrow = (narrow + x[:, k, None] * y[k]).astype(BF16).astype(np.float32)
    assert not compare(slow, exact, plain, exact).passed
    assert 0.01 < compare(slow, exact, plain, exact, terms=terms).used < 1
    assert compare(narrow, exact, plain, exact, terms=terms).used > 100


def test_a_large_element_does_not_excuse_a_small_one():
    """Half of the signs flipped, on the small elements only: no maximum over all may hide it."""
    reference = REFERENCE * 2.0 ** RNG.integers(-30, 31, REFERENCE.shape)
    plain = reference.astype(np.float32)
    small = np.abs(reference) < np.median(np.abs(reference))
    for magnitude in (None, np.abs(reference)):
        wrong = np.where(small, -plain, plain)
        assert compare(plain, reference, plain, magnitude).passed
        assert not compare(wrong, reference, plain, magnitude).passed
        assert not compare(np.where(small, 0, plain), reference, plain, magnitude).passed


def test_apart_no_element_excuses_another():
    plain, wrong = PLAIN.copy(), PLAIN.copy()
    plain[0, 0] *= 1.01
    wrong[3, 3] *= 1.001
    assert judge(wrong, plain=plain).passed and judge(plain, plain=plain, apart=True).passed
    assert not judge(wrong, plain=plain, apart=True).passed


def test_a_lucky_plain_result_leaves_room_for_rounding_its_terms():
    """1000 - 999 in float32: the plainest may be exact; rounding a term is allowed all the same."""
    reference = np.ones((1, 1))
    result = reference.astype(np.float32) + np.float32(2.0**-14)
    assert not compare(result, reference, reference).passed
    assert compare(result, reference, reference, magnitude=np.full((1, 1), 1999.0)).passed


@given(st.floats(min_value=1e-30, max_value=1e30))
def test_ulp_is_the_gap_to_the_next_float32(x):
    x = np.float32(x)
    assert ulp(np.array(x), np.float32) == np.spacing(x)
