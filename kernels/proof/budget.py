"""The error budget: how far from the float64 reference a result may be.

Integers are exact. A float may be at most twice as far from the reference as the plainest
implementation in the same dtype is, plus one unit in the last place (ulp). The rule is that of the
flash-attention tests: the factor and the ulp are chosen once, and no tolerance for any one problem.

Distances are relative to the size of what an element adds up: the sum of its terms' absolute
values, or the element itself where nothing is added up. So a large element does not excuse a small
one. The plainest implementation's largest relative distance counts for all elements.

Where a result is a sum, the plainest implementation may be better than plain: lucky on a single
element, or split into many short sums by its compiler. So it is never taken to be more exact than
two float32 ulps of the sum of its terms' absolute values. Where it is known how many terms K there
are, it is half of the root of K ulps: terms of one sign that are added one after another lose a
sixth of that root in the root mean square, so twice the half of it is six standard deviations. Of
values over many powers of ten it is a quarter of K: beside a large sum small terms vanish, all with
one sign, and a sum in order loses half an ulp a term at most.

Where the terms themselves are rounded to a narrow dtype before they are added up, their errors are
as good as random: together they amount to the root of the sum of the terms' squares, times the
dtype's epsilon. The plainest implementation is not taken to be more exact than that either.

A kernel that rounds what it has added up so far to a narrow dtype, again and again, is off by more
than that on some elements and by less on others, so no size of an error tells. Where its program
shows that it does, and the plainest implementation is exact but for one rounding at the end, the
kernel has to be so as well: one ulp, and what adding up in float32 may lose.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Verdict", "compare", "ulp"]
LUCK = 2  # units in the last place of a sum's magnitude


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    Args:
        passed: whether every element is within its budget.
        error: the distance of the worst element from the reference.
        allowed: the budget of that element.
        message: what is wrong and where, in words; empty where it passed.
        place: the index of the worst element; None where it is no single one.
    """

    passed: bool
    error: float
    allowed: float
    message: str
    place: tuple[int, ...] | None = None

    @property
    def used(self) -> float:
        """The share of the budget that the worst element uses; above 1 it fails."""
        if self.error == 0:
            return 0.0
        return self.error / self.allowed if self.allowed else np.inf


def ulp(x: np.ndarray, dtype: Any) -> np.ndarray:
    """One unit in the last place of `x` in a float dtype: the gap to the next larger number.

    Args:
        x: array of any shape; subnormal numbers count as the smallest normal one.
        dtype: a float dtype, such as "bfloat16".

    Returns:
        float64, of x's shape.
    """
    info = ml_dtypes.finfo(dtype)
    x = np.maximum(np.abs(np.asarray(x, np.float64)), float(info.tiny))
    return 2.0 ** np.floor(np.log2(x)) * float(info.eps)


def compare(
    result: Any,
    reference: Any,
    plain: Any,
    magnitude: Any = None,
    accumulator: Any = np.float32,
    rounding: Any = None,
    terms: int = 1,
    budget: float = 1.0,
    apart: bool = False,
) -> Verdict:
    """Judge `result` by the budget.

    Args:
        result: array of any dtype.
        reference: float64 (or integer), the oracle.
        plain: the plainest implementation's result in result's dtype.
        magnitude: for a sum, the sum of the absolute values of its terms; None where the result is
            no sum.
        accumulator: the dtype in whose precision those terms are added up.
        rounding: for a sum of terms that are rounded to result's dtype first, the root of the sum
            of their squares, or None.
        terms: how many an element adds up at most; 1 where that is not known.
        budget: how many times all of this a result may be off.
        apart: whether each element is judged by the plainest implementation's own distance from the
            reference there, which is less than it is allowed: so magnitudes may be too small.

    Returns:
        The verdict on the worst element; another shape than the reference's does not pass either.

    Source:
        The rule of the flash-attention tests.
    """
    result, reference = np.asarray(result), np.asarray(reference)
    if result.shape != reference.shape:
        message = f"shape is {result.shape}, the reference has {reference.shape}"
        return Verdict(False, np.inf, 0.0, message)
    if not result.size:
        return Verdict(True, 0.0, 0.0, "")
    if result.dtype.kind in "iub":
        return _exact(result, reference)
    wide = result.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = reference.astype(result.dtype).astype(np.float64)
    odd = ~np.isfinite(expected)
    same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
    wrong = np.where(odd, ~same, ~np.isfinite(wide))
    if wrong.any():
        where = _first(wrong)
        message = _worst(wide, expected, where, "not finite where the reference is")
        if odd[where]:
            message = _worst(wide, expected, where, "the reference is not finite there")
        return Verdict(False, np.inf, 0.0, message, where)
    wide, expected = np.where(odd, 0, wide), np.where(odd, 0, reference.astype(np.float64))
    largest = np.abs(expected).max(initial=0.0)
    if largest >= float(ml_dtypes.finfo(result.dtype).tiny) and not wide.any():
        return Verdict(False, float(largest), 0.0, "every element is zero")
    with np.errstate(invalid="ignore"):
        off = np.abs(np.asarray(plain).astype(np.float64) - expected)
    size = np.abs(expected) if magnitude is None else np.asarray(magnitude, np.float64)
    counts = ~odd & np.isfinite(off) & np.isfinite(size) & (size > 0)
    size = np.where(counts, size, 0)
    ratio = np.divide(off, size, out=np.zeros_like(size), where=counts)
    plain_error = (ratio if apart else ratio.max(initial=0)) * size
    if magnitude is not None:
        plain_error = np.maximum(plain_error, max(LUCK, terms**0.5 / 2) * ulp(size, accumulator))
    if rounding is not None:
        epsilon = float(ml_dtypes.finfo(result.dtype).eps)
        plain_error = np.maximum(plain_error, epsilon * np.where(odd, 0, rounding))
    allowed = budget * (2 * plain_error + ulp(expected, result.dtype))
    error = np.abs(wide - expected)
    worst = tuple(map(int, np.unravel_index(np.argmax(error / allowed), error.shape)))
    passed = bool(error[worst] <= allowed[worst])
    off_by = f"off by {error[worst]:.2g}, allowed {allowed[worst]:.2g}"
    message = "" if passed else _worst(wide, expected, worst, off_by)
    return Verdict(passed, float(error[worst]), float(allowed[worst]), message, worst)


def _exact(result: np.ndarray, reference: np.ndarray) -> Verdict:
    wrong = result != reference
    if not wrong.any():
        return Verdict(True, 0.0, 0.0, "")
    error = float(np.abs(result.astype(np.float64) - reference.astype(np.float64)).max())
    if not result.any():
        return Verdict(False, error, 0.0, "every element is zero")
    where = _first(wrong)
    return Verdict(False, error, 0.0, _worst(result, reference, where, "integers are exact"), where)


def _first(wrong: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _worst(got: np.ndarray, expected: np.ndarray, where: tuple[Any, ...], remark: str) -> str:
    place = f"element [{', '.join(str(int(i)) for i in where)}]" if where else "the result"
    return f"{place} is {_shown(got[where])}, the reference {_shown(expected[where])}; {remark}"


def _shown(value: Any) -> str:
    return str(value) if np.asarray(value).dtype.kind in "iub" else f"{value:.6g}"
