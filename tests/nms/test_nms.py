"""nms against the greedy reference on hostile boxes, and its contract."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import weekly
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refused import refuses
from xla_flags import optimised

from kernels.nms import nms, xla
from kernels.nms.operator import NMS
from kernels.nms.reference import nms as reference
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

FLOAT = functools.partial(np.ones, dtype=np.float32)
THRESHOLDS = (0.0, 0.3, 0.7, 1.0)


# As a reader's XLA compiles, which joins a product with a sum; the tests' own flags forbid it.
OPTIMISED = optimised()


def check(boxes, scores, threshold, implementation, **compiler_options):
    call = functools.partial(nms, iou_threshold=threshold, implementation=implementation)
    if compiler_options:
        call = jax.jit(call, compiler_options=compiler_options)
    got = np.asarray(call(boxes, scores))
    assert got.dtype == bool and got.shape == scores.shape
    np.testing.assert_array_equal(got, reference(boxes, scores, iou_threshold=threshold))
    assert not len(got) or got.any()  # somebody comes first, and nobody drops it


def box(*sides):
    return np.array(sides, np.float32).reshape(-1, 4)


@pytest.mark.parametrize("implementation", NMS.names)
@given(st.data())
def test_any_float(implementation, data):
    """Subnormal numbers, infinities, NaN and both zeros, near and far, with many ties."""
    n = data.draw(st.sampled_from((1, 5, 130)))
    few = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 1e-40, 1e-38, 2e-38, 1e19, np.inf, np.nan])
    number = st.floats(width=32) | few
    boxes = data.draw(hnp.arrays(np.float32, (n, 4), elements=number))
    scores = data.draw(hnp.arrays(np.float32, n, elements=number))
    check(boxes, scores, data.draw(st.sampled_from(THRESHOLDS)), implementation)


def near_ties(threshold):
    """Pairs whose overlap is the threshold, give or take the last bit."""
    rng = np.random.default_rng(7)
    n = 2000
    left, width, height = rng.uniform(1, 9, (3, n // 2))
    shift = width * (1 - threshold) / (1 + threshold)  # then the overlap is the threshold
    far = 100.0 * np.arange(n // 2)
    one = np.stack([left + far, left, left + width + far, left + height], 1)
    other = one + np.stack([shift, 0 * shift, shift, 0 * shift], 1)
    return np.concatenate([one, other]).astype(np.float32), np.arange(n, 0, -1).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", NMS.names)
@pytest.mark.parametrize("threshold", [weekly(0.1), 0.5, weekly(0.7)])
def test_overlaps_a_rounding_away_from_the_threshold(implementation, threshold):
    boxes, scores = near_ties(threshold)
    want = reference(boxes, scores, iou_threshold=threshold)
    assert 0.2 < want[len(boxes) // 2 :].mean() < 0.8  # both decisions are there
    check(boxes, scores, threshold, implementation, **OPTIMISED)


def test_the_reference_by_hand():
    """The hostile boxes above, and the ladder, hold the others to it."""

    def kept(boxes, scores, threshold=0.5):
        return reference(boxes, np.float32(scores), iou_threshold=threshold).tolist()

    # A drops B, which would have dropped C.
    assert kept(box(0, 0, 10, 10, 3, 0, 13, 10, 6, 0, 16, 10), [3, 2, 1]) == [True, False, True]
    # C overlaps A and B, B overlaps A by less than a half.
    boxes = box(0, 0, 10, 10, 4, 0, 14, 10, 2, 0, 12, 10)
    assert kept(boxes, [2, 3, 4]) == [False, False, True]
    assert kept(boxes, [4, 3, 2]) == [True, True, False]
    # Higher scores first, then the lower index, then NaN; both zeros are one.
    same, nan, inf = np.tile(box(0, 0, 4, 4), (3, 1)), float("nan"), float("inf")
    first = ((1, 3, 2), (1, 1, 1), (-0.0, 0.0, -1), (nan, -inf, nan), (nan, nan, nan))
    for scores, place in zip(first, (1, 0, 0, 1, 0), strict=True):
        assert kept(same, scores) == [i == place for i in range(3)], scores
    # Boxes without an inside overlap nothing.
    odd = box(4, 4, 4, 4, 1, 4, 8, 4, 8, 8, 1, 1, 8, 1, 1, 8, nan, 1, 8, 8, 1, 1, 8, nan)
    whole = box(0, 0, 9, 9)
    for boxes in (np.concatenate([whole, odd]), np.concatenate([odd, whole])):
        assert all(kept(boxes, np.arange(7, 0, -1), 0))


@pytest.mark.parametrize("implementation", NMS.names)
def test_the_threshold_is_exceeded_not_reached(implementation):
    half = box(0, 0, 2, 2, 0, 0, 2, 1)  # intersection 2, union 4
    scores = np.float32([2, 1])

    def kept(boxes, threshold):
        return nms(boxes, scores, iou_threshold=threshold, implementation=implementation).tolist()

    assert kept(half, 0.5) == [True, True] and kept(half, 0.499) == [True, False]
    apart, same = box(0, 0, 2, 2, 2, 0, 4, 2), np.tile(box(0, 0, 2, 2), (2, 1))
    assert kept(apart, 0) == [True, True] and kept(half, 0) == [True, False]
    assert kept(same, 1) == [True, True] and kept(same, 1 - 1e-6) == [True, False]
    tiny = np.tile(box(0, 0, 1e-3, 1e-3), (2, 1))  # area 1e-6, and the union counts as 1e-5
    assert kept(tiny, 0.2) == [True, True] and kept(tiny, 0.05) == [True, False]


@pytest.mark.parametrize("implementation", NMS.names)
def test_jit_and_vmap(implementation):
    def choose(boxes, scores):
        return nms(boxes, scores, iou_threshold=0.5, implementation=implementation)

    workload = Workload("drawn", {"n": 150}, options={"iou_threshold": 0.5})
    drawn = [OPERATORS["nms"].workloads.arguments(workload, seed) for seed in range(3)]
    boxes, scores = (jnp.stack(each) for each in zip(*drawn, strict=True))
    want = [reference(*each, iou_threshold=0.5) for each in drawn]
    assert np.array_equal(jax.jit(choose)(boxes[0], scores[0]), want[0])
    assert np.array_equal(jax.vmap(choose)(boxes, scores), want)


test_nms_refuses = refuses(
    lambda boxes, scores, threshold: nms(boxes, scores, iou_threshold=threshold),
    (np.ones((3, 4)), FLOAT(3), 0.5, "boxes.dtype is 'float64'.*; accepted: "),
    (FLOAT((3, 4)), np.ones(3, np.int32), 0.5, "scores.dtype is 'int32'.*; accepted: "),
    (FLOAT((3, 5)), FLOAT(3), 0.5, r"boxes.shape\[1\] is 5.*; accepted: "),
    (FLOAT((0, 0)), FLOAT(0), 0.5, r"boxes.shape\[1\] is 0.*; accepted: "),
    (FLOAT(4), FLOAT(1), 0.5, r"boxes.shape is \(4,\).*; accepted: "),
    (FLOAT((3, 4)), FLOAT(4), 0.5, r"scores.shape is \(4,\).*; accepted: "),
    (FLOAT((3, 4)), FLOAT((3, 1)), 0.5, "scores.shape is.*; accepted: "),
    ([[0, 0, 1, 1]], FLOAT(1), 0.5, "boxes is a list.*; accepted: "),
    *(
        (FLOAT((3, 4)), FLOAT(3), threshold, "iou_threshold is.*; accepted: ")
        for threshold in (-0.1, 1.01, float("nan"), float("inf"), "0.5", None, True)
    ),
)


def test_refuses_an_unknown_implementation_and_too_many_boxes():
    with pytest.raises(ValueError, match="accepted: xla, xla_matrix, xla_blocks, pallas"):
        nms(np.ones((3, 4)), np.ones(3), iou_threshold=0.5, implementation="torch")
    many = jax.ShapeDtypeStruct((131073, 4), "float32"), jax.ShapeDtypeStruct((131073,), "float32")
    with pytest.raises(ValueError, match=r"boxes.shape\[0\] is 131073; accepted: at most 131072"):
        jax.eval_shape(lambda *given: nms(*given, iou_threshold=0.5), *many)


@pytest.mark.parametrize("n, block", [(509, 128), (509, 7), (509, 1024), (2100, None)])
def test_blocks_of_any_size_choose_the_same(n, block):
    boxes, scores = OPERATORS["nms"].workloads.arguments(Workload("drawn", {"n": n}))
    expected = reference(boxes, scores, iou_threshold=0.5)
    kept = xla.nms_in_blocks(boxes, scores, 0.5, block=block)
    np.testing.assert_array_equal(kept, expected)
    assert 0 < np.sum(kept) < n
