"""Exercises: `check(name, answer)` says at once whether a reader's kernel is right, or why not.

One file a chapter, each with its EXERCISES; what they say to the reader is in texts.toml. An answer
climbs the ladder that the book's own kernels climb, on the exercise's workloads.
"""

import ast
import functools
import html
import importlib
import inspect
import pkgutil
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from kernels.lessons.exercises.bars import Tried
from kernels.lessons.exercises.exercise import Exercise
from kernels.machines import optional
from kernels.machines.checks import brief, fail, one_of
from kernels.proof import ladder
from kernels.proof.workload import Workload

__all__ = ["Answer", "Exercise", "chapters", "check", "exercises", "warm_up"]

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Answer:
    """What became of an answer.

    Args:
        exercise: its name.
        passed: whether it is right; None where there is no answer yet.
        lines: what to tell.
        medal: whether it is as fast as the book's own solution, where speed is the bar.
    """

    exercise: str
    passed: bool | None
    lines: tuple[str, ...]
    medal: bool = False

    def __str__(self) -> str:
        mark = {True: "right", False: "not yet right", None: "not written yet"}[self.passed]
        return textwrap.indent("\n".join((f"{self.exercise}: {mark}", *self.lines)), "  ")[2:]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        body = html.escape(textwrap.dedent("\n".join(more)))
        style = "font-family: monospace; white-space: pre-wrap"
        return f'<strong>{html.escape(first)}</strong><div style="{style}">{body}</div>'


@functools.cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by name."""
    known: dict[str, Exercise] = {}
    for exercise in (e for chapter in chapters().values() for e in chapter):
        if exercise.name in known:
            raise ValueError(f"two exercises are called {exercise.name}")
        known[exercise.name] = exercise
    return known


@functools.cache
def chapters() -> dict[str, tuple[Exercise, ...]]:
    """The exercises of each chapter, by its name; a file here is named after its chapter. What they
    say to the reader is in texts.toml: a {NAME} there is a constant of the chapter's file."""
    known = {}
    for name in (m.name for m in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "EXERCISES"):
            known[name] = tuple(
                replace(e, **{k: said[k].format_map(vars(module)) for k in said.keys() - {"hints"}})
                for e, said in ((e, TEXTS[e.name]) for e in module.EXERCISES)
            )
    return known


def check(name: str, answer: Callable[..., Any]) -> Answer:
    """Prove an answer to an exercise, rung by rung, and stop at the first that refuses it.

    Args:
        name: the exercise's.
        answer: what the exercise asks for, a kernel or a function. A body of nothing but `...`
            counts as not written yet.

    Returns:
        An Answer, which a notebook shows.

    Raises:
        ValueError: for an unknown exercise, and for an answer that is no function.
    """
    one_of("name", name, tuple(exercises()))
    if not callable(answer):
        fail("answer", f"a {type(answer).__name__}", "a function")
    exercise = exercises()[name]
    if _unwritten(answer):
        return Answer(name, None, (_addressed(exercise.task, answer),))
    adopted = exercise.backend.adopt(answer)
    subject = ladder.Subject(
        exercise,
        name,
        exercise.backend,
        functools.partial(exercise.caller, adopted),
        differentiable=bool(exercise.differentiable),
    )
    passed: list[str] = []
    for rung in exercise.rungs:
        note = ""
        for problem, outcome in zip(
            exercise.problems, ladder.climb(subject, rung, exercise.problems)
        ):
            note = outcome.message
            if outcome.status == ladder.FAILED:
                why = _why(exercise, rung, problem, note, passed)
                numbers = rung == exercise.rungs[0] and outcome.output in exercise.outputs
                return Answer(name, False, (*why, *(_beside(subject, problem) if numbers else ())))
            if outcome.status == ladder.SKIPPED:  # nothing ran, so nothing is right
                return Answer(name, False, (f"cannot be proven at {rung}: {note}",))
        gradients = " with gradients" * bool(exercise.differentiable and rung == "interpret")
        passed.append(rung + gradients + f" ({note})" * bool(note))
    fast: tuple[str, ...] = ()
    medal = False
    rung, workload = "compile", exercise.problems[0]
    try:
        if exercise.judge:
            passed.append(exercise.judge(ladder.programs(subject, workload)))
        if exercise.bar:
            rung = "speed" if exercise.bar.ours else "count"
            workload = exercise.bar.workload or workload
            words, medal = exercise.bar.judge(Tried(adopted, subject, workload))
            fast = (words,)
    except optional.MissingPackage as error:
        return Answer(name, False, (f"cannot be judged: {error}",))
    except Exception as error:  # whatever the compiler says of a wrong program
        said = str(error) if isinstance(error, ladder.Refused) else brief(error)
        return Answer(name, False, _why(exercise, rung, workload, said, passed))
    count = len(exercise.problems)
    problems = f"{count} workload{'s' * (count > 1)}"
    return Answer(name, True, (f"passed on {problems}: {', '.join(passed)}", *fast), medal)


def warm_up(
    answer: Callable[..., Any],
    formula: Callable[..., Any],
    *arrays: Any,
    call: bool = True,
    **options: Any,
) -> Answer:
    """Try an answer to a puzzle at once, on these arrays and on others like them.

    Args:
        answer: a Pallas kernel, `answer(*refs)`, results last; interpreted here. A body of nothing
            but `...` counts as not written yet.
        formula: what it computes, as a function of NumPy arrays; a tuple where it has two results.
        arrays: small ones, of any shape and dtype.
        call: whether the answer is a kernel; False for a plain function of the arrays.
        options: of pl.pallas_call, beside out_shape, which the formula's results tell.

    Returns:
        An Answer, which a notebook shows: where it is wrong, with what was wanted beside it.

    Raises:
        ValueError: for an answer or a formula that is no function.
    """
    for role, value in (("answer", answer), ("formula", formula)):
        if not callable(value):
            fail(role, f"a {type(value).__name__}", "a function")
    unwritten = _unwritten(answer)
    wrong = () if unwritten else next(faults(answer, formula, arrays, call, options), ())
    return Answer(getattr(answer, "__name__", "puzzle"), None if unwritten else not wrong, wrong)


def _why(
    exercise: Exercise, rung: str, workload: Workload, message: str, passed: list[str]
) -> tuple[str, ...]:
    why = f" ({workload.why})" * bool(workload.why)
    lines = [f"refused at {rung}, on {workload}{why}", message]
    usual, own = TEXTS["advice"], TEXTS[exercise.name].get("hints", {})
    named = [hint for words, hint in own.items() if words in "\n".join(lines)][:1]
    lines += [advice for words, advice in usual.items() if words in message and not named][:1]
    if passed:
        lines.append(f"passed before: {', '.join(passed)}")
    hint = (*named, exercise.hint)[0]
    if hint and not re.match(r"(Name|Attribute)Error: ", message):
        lines.append(f"hint: {hint}")
    return tuple(lines)


def _beside(subject: ladder.Subject, problem: Workload) -> Iterator[str]:
    """The arguments of a small problem, what is wanted of them, and what the answer gives."""
    job, reference = subject.job(problem, gradient=False), subject.contract.reference
    named = dict(zip(inspect.signature(reference).parameters, job.arguments))
    named["wanted"] = reference(*job.arguments, **job.options)
    several = len(subject.contract.outputs) > 1
    if several or not any(rows(named)):  # too large: the answer need not run again
        return
    named["got"] = subject.backend.interpret(job)
    yield from rows(named)


def _addressed(task: str, answer: Callable[..., Any]) -> str:
    """The task with the name that the reader's function has."""
    named = getattr(answer, "__name__", "")
    return re.sub(r"^Write \w+\(", f"Write {named}(", task) if named.isidentifier() else task


def _unwritten(answer: Callable[..., Any]) -> bool:
    """Whether the body is a docstring, `...` and `pass`, and no more."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return False
    function = tree.body[0]
    return isinstance(function, ast.FunctionDef) and all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in function.body
    )


SHOWN = 32  # elements of an array that is shown whole


def rows(named: Mapping[str, Any]) -> Iterator[str]:
    """Lines of each array behind its name; none where one is too large to be taken in."""
    arrays = {name: np.asarray(array) for name, array in named.items()}
    if all(array.size <= SHOWN for array in arrays.values()):
        for name, array in arrays.items():
            yield f"{name:<7}{np.array2string(array, prefix=' ' * 7, precision=3)}"


def faults(
    answer: Callable[..., Any], formula: Callable[..., Any], arrays: Any, call: bool, options: Any
) -> Iterator[tuple[str, ...]]:
    """Lines on each result that is wrong, of the arrays on the page and of others like them.

    A second try with the same numbers in another order, floating-point ones stretched, meets an
    answer that knows the first by heart.
    """
    rng = np.random.default_rng(0)
    again = [rng.permutation(a.ravel()).reshape(a.shape) for a in map(np.asarray, arrays)]
    stretched = [(a * 1.5).astype(a.dtype) if a.dtype.kind == "f" else a for a in again]
    for tried in (arrays, stretched):
        wanted = [np.asarray(w) for w in jax.tree.leaves(formula(*tried))]
        like = [
            jax.ShapeDtypeStruct(w.shape, jax.dtypes.canonicalize_dtype(w.dtype)) for w in wanted
        ]
        listed = len(like) > 1 or isinstance(options.get("out_specs"), (list, tuple))
        shapes = {"out_shape": like if listed else like[0], "interpret": True}
        kernel = pl.pallas_call(answer, **(shapes | options))
        try:
            results = jax.tree.leaves((kernel if call else answer)(*tried))
            sizes = [[np.asarray(a, float).shape for a in s] for s in (results, wanted)]
            if sizes[0] != sizes[1]:
                fail("the shape", sizes[0], f"{sizes[1]}")
        except Exception as error:  # whatever a wrong program raises
            yield (brief(error),)
            return
        for want, got in zip(wanted, map(np.asarray, results), strict=True):
            most = 1e-5 if got.itemsize > 2 else 1e-2  # of bfloat16
            numbers = got.astype(float), want.astype(float)
            close = np.isclose(*numbers, rtol=most, atol=1e-6, equal_nan=True)
            if not close.all():
                place = tuple(int(i) for i in np.argwhere(~close)[0])
                yield (
                    *rows({"wanted": want, "got": got}),
                    f"{(~close).sum()} of {close.size} differ, first {list(place)}: "
                    f"wanted {want[place]:g}, got {got[place]:g}",
                )
