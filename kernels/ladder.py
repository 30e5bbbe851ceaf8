"""The rungs: the one way of proving an implementation, always against the float64 reference.

1. interpret: the kernel's arithmetic, program after program, on the CPU
2. simulate: the same on a simulated machine with the real one's memories, limits and cores
3. compile: lowered and compiled for the real machine, as far as its tools are here
4. measure: on the machine itself

A rung takes an implementation as a function, so that the bug gallery and a reader's own kernel
climb exactly as the catalog does.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels import budget, optional
from kernels.catalog import RUNGS, Implementation, Operator
from kernels.checks import brief, one_of
from kernels.workload import Workload

CHIPS = ("v5e", "v6e")  # that every TPU kernel is compiled for
COMPILE_SECONDS = 120.0  # that a compilation may take
SEEDS = (0, 1)  # of the order in which the simulator runs parallel programs
# Languages whose functions run on a CPU as they are.
LIBRARIES = ("NumPy", "XLA", "PyTorch", "Taichi")

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Check:
    """What one rung found about one implementation on one workload.

    used: the share of the error budget that the worst element took (None where nothing ran).
    message: why it failed or was skipped, in a line.
    """

    operator: str
    implementation: str
    rung: str
    workload: str
    status: str
    message: str = ""
    used: float | None = None
    seconds: float = field(default=0.0, compare=False)


class Refused(Exception):
    """A rung refuses the implementation; the message says why."""


class Skipped(Exception):
    """A rung cannot be climbed here; the message says what is missing."""


@dataclass(frozen=True)
class Subject:
    """An implementation to prove: `function(*arguments, interpret=…, **options)`.

    tunable: whether the function also takes a workload's tuning, such as block sizes.
    differentiable: whether its gradient is proven too.
    """

    operator: Operator
    name: str
    language: str
    function: Callable[..., Any]
    tunable: bool = False
    differentiable: bool = False

    @classmethod
    def of(cls, operator: Operator, implementation: Implementation) -> Subject:
        """A catalog entry, called as a reader would call it: through the public function."""
        function = functools.partial(operator.function, implementation=implementation.name)
        return cls(
            operator,
            implementation.name,
            implementation.language,
            function,
            tunable=implementation.tunable and implementation.language not in LIBRARIES,
            differentiable=bool(operator.differentiable) and implementation.differentiable,
        )

    def options(self, workload: Workload) -> dict[str, Any]:
        """The keyword arguments with which `function` solves `workload`."""
        return {**workload.options, **(workload.tuning if self.tunable else {})}


def workloads(
    operator: Operator, implementation: Implementation, draws: int = 4, seed: int = 0
) -> list[Workload]:
    """The operator's named workloads, and `draws` random ones: those that `implementation` takes.

    The same seed draws the same.
    """
    rng = np.random.default_rng(seed)
    endless = iter(lambda: operator.workloads.draw(rng), None)
    drawn = itertools.islice(filter(implementation.accepts, endless), draws)
    return [*filter(implementation.accepts, operator.workloads.named), *drawn]


def climb(
    subject: Subject, rung: str, problems: Sequence[Workload], seed: int = 0
) -> Iterator[Check]:
    """Prove `subject` at `rung` on each of `problems`; yields one Check for each, never raises."""
    one_of("rung", rung, RUNGS)
    if together := _TOGETHER.get((rung, subject.language)):
        yield from together(subject, problems, seed)
        return
    for workload in problems:
        start = time.perf_counter()
        status, message, used = PASSED, "", None
        try:
            found = _CLIMB[rung](subject, workload, seed)
            message, used = (found, None) if isinstance(found, str) else ("", found)
        except (Skipped, optional.MissingPackage) as error:
            status, message = SKIPPED, str(error)
        except Refused as error:
            status, message = FAILED, str(error)
        except Exception as error:  # whatever a wrong kernel raises is a finding, not our end
            status, message = FAILED, brief(error)
        yield Check(
            subject.operator.name,
            subject.name,
            rung,
            str(workload),
            status,
            message,
            used,
            time.perf_counter() - start,
        )


def no_such_rung(language: str, rung: str) -> str:
    """Why what is written in `language` has no such rung; empty where it has."""
    if rung == "simulate" and language not in _SIMULATE:
        return f"there is no simulator for {language}"
    if rung == "compile" and language in LIBRARIES:
        return f"{language} compiles while it runs: there is nothing to look at"
    return ""


def verify(
    operator: Operator,
    implementation: Implementation,
    rungs: Sequence[str] = RUNGS,
    draws: int = 4,
    seed: int = 0,
) -> Iterator[Check]:
    """Prove a catalog entry at those of `rungs` that it claims."""
    subject = Subject.of(operator, implementation)
    problems = workloads(operator, implementation, draws, seed)
    for rung in rungs:
        if rung in implementation.rungs:
            yield from climb(subject, rung, problems, seed)


def _interpret(subject: Subject, workload: Workload, seed: int) -> float:
    options = subject.options(workload)
    if subject.language not in LIBRARIES:
        options["interpret"] = True
    arguments = subject.operator.workloads.arguments(workload, seed)
    used = _judge(subject, workload, seed, subject.function(*arguments, **options))
    if _has_gradient(subject, workload):
        used = max(used, _judge_gradient(subject, workload, seed, arguments, options))
    return used


def _simulate(subject: Subject, workload: Workload, seed: int) -> float:
    arguments = subject.operator.workloads.arguments(workload, seed)
    options = subject.options(workload)
    if reason := no_such_rung(subject.language, "simulate"):
        raise Skipped(reason)
    run = _SIMULATE[subject.language]
    first, used = None, 0.0
    for order in SEEDS:
        found, alone = run(subject.function, arguments, options, seed + order)
        found = np.asarray(found)
        same = first is not None and np.array_equal(_wide(first), _wide(found), equal_nan=True)
        if not same:
            used = max(used, _judge(subject, workload, seed, found))
        if not same and first is not None:
            raise Refused("the result depends on the order in which parallel programs run")
        first = found
        if alone:
            break  # there is no other order
    return used


def _simulate_tpu(
    function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any], order: int
) -> tuple[Any, bool]:
    from kernels.tpu.simulator import SimulationError, simulate

    try:
        run = simulate(function, *arguments, seed=order, **options)
    except SimulationError as error:
        raise Refused(str(error)) from error
    if run.races:
        raise Refused(f"race: {run.races[0]}")
    # What is parallel is spread over the cores; a core alone goes through its programs in order.
    return run.result, len(set(run.core)) < 2


def _simulate_nki(
    function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any], order: int
) -> tuple[Any, bool]:
    from kernels import neuron

    return function(*arguments, interpret=neuron.InterpretParams(order=order), **options), False


def _simulate_gpsimd(
    function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any], order: int
) -> tuple[Any, bool]:
    from kernels.neuron import gpsimd

    return function(*arguments, interpret=gpsimd.InterpretParams(order=order), **options), False


def _simulate_taichi(
    function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any], order: int
) -> tuple[Any, bool]:
    """Debug mode, which checks every access; on one thread or on several."""
    from kernels import taichi

    try:
        threads = 1 + 3 * (order % 2)
        return taichi.simulate(function, *arguments, threads=threads, **options), False
    except taichi.TaichiError as error:
        raise Refused(str(error)) from error


# language → run once in some order: the result, and whether there is no other order
_SIMULATE = {
    "Pallas TPU": _simulate_tpu,
    "NKI": _simulate_nki,
    "GpSimd C++": _simulate_gpsimd,
    "Taichi": _simulate_taichi,
}


def _compile(subject: Subject, workload: Workload, seed: int) -> str:
    """A note on how far it was compiled; empty where all the way."""
    if subject.language == "Pallas GPU":
        from kernels import gpu

        for program, arrays in programs(subject, workload, seed):
            _check_index_maps(program, arrays)
            gpu.lower(program, *arrays)
        return ""
    if reason := no_such_rung(subject.language, "compile"):
        raise Skipped(reason)
    if subject.language == "GpSimd C++":
        from kernels.neuron import gpsimd as machine
    else:
        from kernels import neuron as machine
    arguments = subject.operator.workloads.arguments(workload, seed)
    return machine.lower(subject.function, *arguments, **subject.options(workload))


def programs(
    subject: Subject, workload: Workload, seed: int = 0
) -> list[tuple[Callable[..., Any], list[Any]]]:
    """What is compiled of a workload: the call, and the call with its gradients; with the arrays
    they take. The second takes the cotangent first, and gives the result before the gradients."""
    import jax

    arrays, numbers = _apart(subject.operator.workloads.arguments(workload, seed))
    options = subject.options(workload)
    if subject.language not in LIBRARIES:
        options["interpret"] = False

    def call(*given):
        return subject.function(*given, *numbers, **options)

    found = [(call, arrays)]
    if _has_gradient(subject, workload):

        def gradient(cotangent, *given):
            result, back = jax.vjp(call, *given)
            return result, *back(cotangent)

        found.append((gradient, [jax.eval_shape(call, *arrays), *arrays]))
    return found


def _compile_for_tpu(subject: Subject, problems: Sequence[Workload], seed: int) -> Iterator[Check]:
    """Lower every workload for every chip, and compile it where libtpu is installed.

    All programs go to one pool of compiler processes, so that libtpu starts once in each.
    """
    from kernels import tpu
    from kernels.tpu.export import Program, export
    from kernels.tpu.pool import compile_each

    owners: list[int] = []  # program → its place in problems
    left = [1] * len(problems)  # what a check still waits for
    reasons = [""] * len(problems)
    seconds = [0.0] * len(problems)

    def exported() -> Iterator[Program]:
        for place, workload in enumerate(problems):
            start = time.perf_counter()
            made = []
            try:
                for function, arrays in programs(subject, workload, seed):
                    for chip in CHIPS:
                        made.append(export(function, *arrays, chip=chip, name=subject.name))
                        _check_calls(made[-1].calls)
            except Exception as error:  # a wrong kernel's words are the finding
                reasons[place] = str(error) if isinstance(error, Refused) else brief(error)
                made = []
            seconds[place] = time.perf_counter() - start
            left[place] = len(made)
            for program in made:
                owners.append(place)
                yield program

    def check(place: int) -> Check:
        status, message = (FAILED, reasons[place]) if reasons[place] else (PASSED, note)
        return Check(
            subject.operator.name,
            subject.name,
            "compile",
            str(problems[place]),
            status,
            message,
            None,
            seconds[place],
        )

    note, done = "", 0
    if not optional.available("libtpu"):
        note = "lowered only: the compiler, libtpu, is not installed"
        list(exported())
        yield from map(check, range(len(problems)))
        return
    results = compile_each(exported(), timeout=COMPILE_SECONDS, progress=False)
    for index, result in results:
        place = owners[index]
        left[place] -= 1
        seconds[place] += getattr(result, "seconds", None) or 0.0
        if isinstance(result, tpu.TpuCompileError) and not reasons[place]:
            reasons[place] = brief(result)
        while done < len(problems) and not left[done]:
            yield check(done)
            done += 1
    yield from map(check, range(done, len(problems)))


def _measure(subject: Subject, workload: Workload, seed: int) -> float:
    if subject.language == "NKI":
        return _measure_nki(subject, workload, seed)
    if subject.language == "GpSimd C++":
        raise Skipped("needs an AWS Neuron device (Inf2 or Trn1) and AWS's compiler for it")
    if subject.language == "Taichi":
        return _measure_taichi(subject, workload, seed)
    import jax

    device = {"Pallas TPU": "tpu", "Pallas GPU": "gpu"}.get(subject.language)
    here = jax.default_backend()
    if here == "cpu" or here != (device or here):
        raise Skipped(f"needs a {(device or 'tpu or gpu').upper()}; JAX's backend here is {here}")
    arguments = subject.operator.workloads.arguments(workload, seed)
    options = subject.options(workload) | ({"interpret": False} if device else {})
    result = subject.function(*arguments, **options)
    return _judge(subject, workload, seed, result)


def _measure_nki(subject: Subject, workload: Workload, seed: int) -> float:
    from kernels import neuron

    if not neuron.device():
        raise Skipped("needs an AWS Neuron device (Inf2 or Trn1), and there is none")
    arguments = subject.operator.workloads.arguments(workload, seed)
    result = subject.function(*arguments, interpret=False, **subject.options(workload))
    return _judge(subject, workload, seed, result)


def _measure_taichi(subject: Subject, workload: Workload, seed: int) -> float:
    """On the first GPU where there is one, or else on all cores; in a process of its own."""
    from kernels import taichi

    has_gpu = optional.available("torch") and optional.require("torch", "").cuda.is_available()
    arguments = subject.operator.workloads.arguments(workload, seed)
    options = subject.options(workload)
    device = "cuda" if has_gpu else "cpu"
    result = taichi.run(subject.function, *arguments, device=device, **options)
    return _judge(subject, workload, seed, result)


_CLIMB = dict(zip(RUNGS, (_interpret, _simulate, _compile, _measure), strict=True))
_TOGETHER = {("compile", "Pallas TPU"): _compile_for_tpu}  # rungs that take all problems at once


def _check_index_maps(call: Callable[..., Any], arrays: Sequence[Any]) -> None:
    from kernels.pallas import calls

    _check_calls(calls(call, *arrays))


def _check_calls(found: Sequence[Any]) -> None:
    if not found:
        raise Refused("no kernel reached the program")
    for each in found:
        if problems := each.problems():
            raise Refused(problems[0])


@dataclass(frozen=True)
class _Expected:
    """What every implementation's result is held against.

    result: float64, the oracle's. magnitude: of the sums behind it; rounding: what that of their
    terms amounts to; None where the operator does not say. plain: the plainest implementation's.
    """

    result: Any
    magnitude: Any
    rounding: Any
    plain: Any


@functools.lru_cache(maxsize=64)
def _expected(operator: Operator, workload: Workload, seed: int) -> _Expected:
    """Computed once for all implementations and rungs."""
    import jax

    arguments = operator.workloads.arguments(workload, seed)
    plain = operator.function(*arguments, implementation=operator.plain, **workload.options)
    wide = [_wide(a) for a in arguments]
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        result, magnitude, rounding = (
            function and np.asarray(function(*wide, **workload.options))
            for function in (operator.reference, operator.magnitude, operator.rounding)
        )
    return _Expected(result, magnitude, rounding, np.asarray(plain))


def _judge(subject: Subject, workload: Workload, seed: int, result: Any) -> float:
    operator, result = subject.operator, np.asarray(result)
    expected = _expected(operator, workload, seed)
    plain = expected.plain
    if subject.name == operator.plain:  # it is itself judged by NumPy's
        arguments = operator.workloads.arguments(workload, seed)
        narrow = [a.astype(np.float32) if _is_float(a) else a for a in arguments]
        with np.errstate(invalid="ignore"):
            plain = np.asarray(operator.reference(*narrow, **workload.options))
        plain = plain.astype(result.dtype)
    verdict = budget.compare(
        result, expected.result, plain, expected.magnitude, rounding=expected.rounding
    )
    if not verdict.passed:
        raise Refused(verdict.message)
    return verdict.used


def _has_gradient(subject: Subject, workload: Workload) -> bool:
    """Integers and 8-bit floats have none, and neither has a sum that is not finite."""
    differentiable = workload.dtype in ("float32", "bfloat16")
    return subject.differentiable and differentiable and workload.values != "nonfinite"


@dataclass(frozen=True)
class _Pulled:
    """What every implementation's gradients are held against: autodiff of the reference, the size
    of the sums behind each gradient (or None), and autodiff of the plainest implementation.

    cotangent: what comes back to the result: random, the same for all implementations.
    """

    cotangent: np.ndarray
    gradients: Sequence[Any]
    sizes: Sequence[Any] | None
    plain: Sequence[Any]


@functools.lru_cache(maxsize=64)
def _pulled(operator: Operator, workload: Workload, seed: int) -> _Pulled:
    """Computed once for all implementations."""
    import jax

    arguments = operator.workloads.arguments(workload, seed)
    result = _expected(operator, workload, seed).plain
    rng = np.random.default_rng(len(workload.name))
    cotangent = rng.standard_normal(result.shape).astype(result.dtype)
    function = functools.partial(
        operator.function, implementation=operator.plain, **workload.options
    )
    pull = _PULL.get(operator[operator.plain].language, _pull_jax)
    plain = pull(function, arguments, cotangent)
    with jax.enable_x64(True):
        wide = [_wide(a) for a in arguments]
        reference = functools.partial(operator.reference, **workload.options)
        gradients = _pull_jax(reference, wide, _wide(cotangent))
        sizes = None
        if operator.gradient_magnitude:
            magnitude = functools.partial(operator.gradient_magnitude, **workload.options)
            sizes = [np.asarray(s) for s in magnitude(*wide, _wide(cotangent))]
        elif operator.magnitude:
            # |dz| |y|ᵀ and |x|ᵀ |dz|: the gradient's own sums of absolute values.
            sizes = _pull_jax(
                functools.partial(operator.magnitude, **workload.options),
                [abs(a) for a in wide],
                abs(_wide(cotangent)),
            )
    return _Pulled(cotangent, gradients, sizes, plain)


def _judge_gradient(
    subject: Subject,
    workload: Workload,
    seed: int,
    arguments: Sequence[Any],
    options: dict[str, Any],
) -> float:
    """The gradient against autodiff of the reference, with a random cotangent."""
    expected = _pulled(subject.operator, workload, seed)
    pull = _PULL.get(subject.language, _pull_jax)
    got = pull(functools.partial(subject.function, **options), arguments, expected.cotangent)
    used = 0.0
    for i, name in enumerate(subject.operator.differentiable):
        size = expected.sizes and expected.sizes[i]
        verdict = budget.compare(got[i], expected.gradients[i], expected.plain[i], size)
        if not verdict.passed:
            raise Refused(f"gradient of {name}: {verdict.message}")
        used = max(used, verdict.used)
    return used


def _pull_jax(
    function: Callable[..., Any], given: Sequence[Any], cotangent: np.ndarray
) -> list[np.ndarray]:
    """The gradients of `function` by the arrays that it is given."""
    import jax

    arrays, numbers = _apart(given)

    @jax.jit  # one compilation instead of one for each operation
    def gradient(cotangent, *arrays):
        result, back = jax.vjp(lambda *arrays: function(*arrays, *numbers), *arrays)
        return back(cotangent.astype(result.dtype))

    return [np.asarray(g) for g in gradient(cotangent, *arrays)]


def _pull_torch(
    function: Callable[..., Any], given: Sequence[Any], cotangent: np.ndarray
) -> list[np.ndarray]:
    import torch

    arrays, numbers = _apart(given)
    tensors = [torch.from_numpy(array).requires_grad_() for array in arrays]
    result = function(*tensors, *numbers)
    return [g.numpy() for g in torch.autograd.grad(result, tensors, torch.from_numpy(cotangent))]


_PULL = {"PyTorch": _pull_torch, "Taichi": _pull_torch}


def _apart(arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The arrays, and the numbers that follow them."""
    arrays = [a for a in arguments if hasattr(a, "shape")]
    return arrays, [a for a in arguments if not hasattr(a, "shape")]


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and np.dtype(value.dtype).kind not in "iub"


def _wide(value: Any) -> Any:
    return np.asarray(value).astype(np.float64) if _is_float(value) else value
