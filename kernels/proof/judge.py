"""What every implementation is held against, and the verdict: results and gradients by the budget.

The reference is computed in float64, once for all implementations of an operator; the plainest
implementation says how far from it one may be (see kernels.budget).
"""

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels.machines.compat.jax_products import multiplier
from kernels.proof import budget
from kernels.proof.backends.base import Backend, Job, Refused
from kernels.proof.contract import Contract, positions
from kernels.proof.workload import Workload

KEPT = 64  # workloads whose expected values are remembered
DRAWS, FAR = 8, 8.0  # of a gradient's moves; and the share of a budget at which none is tried


@dataclass(frozen=True)
class _Expected:
    """By output. results: float64, the oracle's. magnitudes: of the sums behind them; roundings:
    what those of their terms amount to; None each where the operator does not say. plain: the
    plainest implementation's."""

    results: tuple[Any, ...]
    magnitudes: tuple[Any, ...]
    roundings: tuple[Any, ...]
    plain: tuple[Any, ...]


@dataclass(frozen=True)
class _Pulled:
    """By differentiable argument. gradients: autodiff of the reference. sizes: of the sums behind
    each, or None; `least`: what they are at least; `moves`: more such bounds, by place and draw.
    plain: autodiff of the plainest implementation. cotangents: by output, what comes back to it:
    random, the same for all implementations."""

    cotangents: tuple[np.ndarray, ...]
    gradients: Sequence[Any]
    sizes: Callable[[], Sequence[Any] | None]
    least: Sequence[Any] | None
    moves: Callable[[int, int], Any]
    plain: Sequence[Any]


def outputs(contract: Contract, result: Any) -> tuple[Any, ...]:
    """The results of a call as NumPy arrays, one for each output; Refused for more or fewer."""
    wanted = contract.outputs
    several = isinstance(result, (tuple, list))
    if len(wanted) == 1 and not several:
        return (np.asarray(result),)
    count = len(result) if several else 1
    if not several or count != len(wanted):
        raise Refused(f"results: {count}, wanted {len(wanted)}: {', '.join(wanted)}")
    return tuple(map(np.asarray, result))


def has_gradient(contract: Contract, workload: Workload, arguments: Sequence[Any]) -> bool:
    """Whether gradients of a workload are defined: integers and 8-bit floats have none, and neither
    has a sum that is not finite."""
    wanted = [arguments[place] for place in positions(contract, contract.differentiable)]
    floats = all(str(getattr(a, "dtype", "")) in ("float32", "bfloat16") for a in wanted)
    return bool(wanted) and floats and workload.values != "nonfinite"


def results(contract: Contract, name: str, workload: Workload, seed: int, result: Any) -> float:
    """The share of the error budget that the worst element of a result takes.

    Args:
        contract: what it has to fulfil.
        name: of the implementation; the plainest is judged by NumPy in float32.
        workload, seed: the problem, and that of the arguments' values.
        result: what the implementation returned.

    Raises:
        Refused: where that is more than all of it, with the element.
    """
    got = outputs(contract, result)
    expected = _expected(contract, workload, seed, multiplier())
    plain = expected.plain
    if name == contract.plain:  # it is itself judged by NumPy's
        arguments = contract.workloads.arguments(workload, seed)
        narrow = [a.astype(np.float32) if _is_float(a) else a for a in arguments]
        with np.errstate(invalid="ignore"):
            rounded = outputs(contract, contract.reference(*narrow, **workload.options))
        plain = tuple(p.astype(g.dtype) for p, g in zip(rounded, got, strict=True))
    used = 0.0
    for i, output in enumerate(contract.outputs):
        near = plain[i]
        if _is_float(got[i]) and near.dtype != got[i].dtype:  # what is rounded is rounded in both
            near = near.astype(got[i].dtype)
        exact, size = expected.results[i], expected.magnitudes[i]
        limits: dict[str, Any] = {"terms": _terms(contract, workload), "budget": contract.budget}
        rounding = expected.roundings[i]
        verdict = budget.compare(got[i], exact, near, size, rounding=rounding, **limits)
        words = verdict.message
        if verdict.passed and contract.rounds_sums:
            once = [budget.compare(r, exact, exact, size, **limits) for r in (got[i], near)]
            if once[1].passed and not once[0].passed:
                verdict, words = once[0], f"{once[0].message}: {contract.rounds_sums}"
        if not verdict.passed:
            prefix = f"{output}: " if len(got) > 1 else ""
            raise Refused(prefix + words, output, verdict.place)
        used = max(used, verdict.used)
    return used


def tells(contract: Contract, workload: Workload, seed: int) -> bool:
    """Whether a workload can tell right from wrong.

    It cannot where the reference is not finite, or the plainest implementation has lost every digit
    of the largest element: then almost anything would pass.
    """
    expected = _expected(contract, workload, seed, multiplier())
    for result, plain in zip(expected.results, expected.plain, strict=True):
        if not np.isfinite(np.asarray(result, np.float64)).all():
            return False
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(np.asarray(plain).astype(np.float64) - result).max(initial=0)
        if not off <= 0.1 * np.abs(result).max(initial=0):
            return False
    return True


def gradients(
    contract: Contract, backend: Backend, workload: Workload, seed: int, job: Job
) -> float:
    """The same for gradients, against autodiff of the reference, with random cotangents.

    Raises:
        Refused: as by `results`, with the argument's name.
    """
    expected = _pulled(contract, workload, seed, multiplier())
    got = backend.pull(job, expected.cotangents)
    used = 0.0
    limits: dict[str, Any] = {"terms": _terms(contract, workload), "budget": contract.budget}
    for i, name in enumerate(contract.differentiable):
        exact, plain = expected.gradients[i], expected.plain[i]
        verdict, size = None, np.asarray(expected.least[i] if expected.least else 0)
        for draw in range(DRAWS if expected.least else 0):
            # What passes by less than its budget passes.
            verdict = budget.compare(got[i], exact, plain, size, apart=True, **limits)
            if verdict.passed or verdict.used > FAR:
                break
            size = np.maximum(size, expected.moves(i, draw))
        if not verdict or not verdict.passed:
            sizes = expected.sizes()
            verdict = budget.compare(got[i], exact, plain, sizes and sizes[i], **limits)
        if not verdict.passed:
            raise Refused(
                f"gradient of {name}: {verdict.message}", f"gradient of {name}", verdict.place
            )
        used = max(used, verdict.used)
    return used


def _terms(contract: Contract, workload: Workload) -> int:
    """As budget.compare takes them, or so many that half of their root is a quarter of them."""
    return (contract.terms // 2) ** 2 if workload.values == "wide" else contract.terms


@functools.lru_cache(maxsize=KEPT)
def _expected(contract: Contract, workload: Workload, seed: int, machine: str | None) -> _Expected:
    """Computed once for all implementations and rungs, where the CPU multiplies as that machine."""
    arguments = contract.workloads.arguments(workload, seed)
    plain = contract.plainest()[0](*arguments, **workload.options)
    results, magnitudes, roundings = _exact(contract, workload, seed)
    return _Expected(results, magnitudes, roundings, outputs(contract, plain))


@functools.lru_cache(maxsize=KEPT)
def _exact(contract: Contract, workload: Workload, seed: int) -> Any:
    """The rest of what is expected: in float64 no factor is rounded, whatever the machine."""
    import jax

    wide = [_wide(a) for a in contract.workloads.arguments(workload, seed)]

    def of(function: Callable[..., Any] | None) -> tuple[Any, ...]:
        if function is None:
            return (None,) * len(contract.outputs)
        return outputs(contract, function(*wide, **workload.options))

    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        return tuple(map(of, (contract.reference, contract.magnitude, contract.rounding)))


@functools.lru_cache(maxsize=KEPT)
def _pulled(
    contract: Contract, workload: Workload, seed: int, machine: str | None = None
) -> _Pulled:
    """Computed once for all implementations."""
    job, cotangents, exact, sizes, least, moves = _pulled_exact(contract, workload, seed)
    plain = contract.plainest()[1].pull(job, cotangents)
    return _Pulled(cotangents, exact, sizes, least, moves, plain)


@functools.lru_cache(maxsize=KEPT)
def _pulled_exact(contract: Contract, workload: Workload, seed: int) -> Any:
    import jax

    from kernels.proof.backends import jax_arrays

    wanted, static = (
        positions(contract, names) for names in (contract.differentiable, contract.static)
    )
    arguments = contract.workloads.arguments(workload, seed)
    job = Job(contract.plainest()[0], arguments, dict(workload.options), wanted, static)
    # Two workloads of one size do not share their cotangents, nor do two seeds.
    rng = np.random.default_rng((seed, zlib.crc32(str(workload).encode())))
    shapes = _expected(contract, workload, seed, multiplier()).plain
    cotangents = tuple(rng.standard_normal(r.shape).astype(r.dtype) for r in shapes)
    with jax.enable_x64(True):
        wide = replace(job, function=contract.reference, arguments=[*map(_wide, job.arguments)])
        wide_cotangents = [_wide(c) for c in cotangents]
        operands = (*wide.arguments, *wide_cotangents)
        exact, least = jax_arrays.pull(wide, wide_cotangents), None
        if errors := getattr(contract, "gradient_rounding", None):
            least = [*map(np.maximum, map(abs, exact), errors(*operands))]

    @functools.cache
    def sizes() -> Sequence[Any] | None:
        with jax.enable_x64(True):
            if size := contract.gradient_magnitude:
                behind = size(*operands, **workload.options)
                return [np.asarray(s) for s in map(np.maximum, behind, least or behind)]
            if not contract.magnitude:
                return None
            # |dz| |y|ᵀ and |x|ᵀ |dz|: the gradient's own sums of absolute values.
            arguments = [abs(a) if _is_float(a) else a for a in wide.arguments]
            positive = replace(wide, function=contract.magnitude, arguments=arguments)
            return jax_arrays.pull(positive, [abs(c) for c in wide_cotangents])

    own: Any = contract  # what has gradient_rounding has gradient_moves
    moves = lambda place, draw: own.gradient_moves(exact[place], place, draw, *operands)
    return job, cotangents, exact, sizes, least, moves


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and np.dtype(value.dtype).kind not in "iub"


def _wide(value: Any) -> Any:
    return np.asarray(value).astype(np.float64) if _is_float(value) else value


def same(first: Any, second: Any) -> bool:
    """Whether two results are equal in every bit but those of NaN."""
    pairs = zip(_leaves(first), _leaves(second), strict=True)
    return all(np.array_equal(_wide(a), _wide(b), equal_nan=True) for a, b in pairs)


def _leaves(result: Any) -> list[np.ndarray]:
    several = isinstance(result, (tuple, list))
    return [np.asarray(leaf) for leaf in (result if several else (result,))]
