"""Prove a kernel that somebody brought, in a child process where that can be."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.machines.checks import brief, fail, one_of, positive
from kernels.machines.compat import jax_pickles
from kernels.yours import memory
from kernels.yours.declared import CHIPS, ENDED, OWN, VALUES, Declared
from kernels.yours.report import FAILED, PASSED, ProblemResult, Report
from kernels.yours.sandbox import walls

TIMEOUT = 300.0  # seconds for one problem at one rung
LOADING = 120.0  # seconds at least to start a child and load a file, on a busy machine too
RUNGS = ("interpret", "simulate", "compile")
# Of the problems of one shape, the first alone is simulated and compiled: values change nothing.
ONCE = ("simulate", "compile")
HOPELESS = ("not done after", "not begun")  # said of one problem, it holds for the others
WORKER = str(Path(__file__).with_name("worker.py"))


def prove(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *,
    arguments: Callable[..., Any],
    differentiable: Sequence[str] = (),
    static: Sequence[str] = (),
    chips: Sequence[str] = CHIPS,
    values: Sequence[str] = VALUES,
    budget: float = 1.0,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    rungs: Sequence[str] = RUNGS,
    seed: int = 0,
    timeout: float = TIMEOUT,
) -> Report:
    """Prove a kernel against a reference: interpreted, simulated and compiled.

    It runs in a child process, so that one that hangs or aborts does nobody else any harm. A
    function of a notebook or a console is handed there by value; where that cannot be, it runs in
    this process, with the same limit of time, and the report says so.

    Args:
        function: the kernel's wrapper, as its users call it. It need not take `interpret=`: what
            runs it is decided from outside.
        reference: the same in plain JAX or NumPy, of the same arguments. In float64 it is the
            oracle, in the arguments' own dtype it sets the error budget.
        arguments: arguments(rng) draws a tuple of arguments, or a dict of named ones, from a NumPy
            generator, anew at each call.
        differentiable: names of the arguments whose gradients are proven too.
        static: names of the arguments whose arrays decide what is compiled, such as a mask.
        chips: that it is compiled for, TPUs or GPUs.
        values: "given" are the values as drawn; "mean" adds a large mean to an array at a time;
            "wide" spreads all values over many powers of ten; "ties" gives each value twice along
            each axis of 8 or more, where a result is of whole numbers.
        budget: how many times the error budget a result may take; the report says so.
        mesh: axis name → size, such as {"x": 4}, where the function is what jax.shard_map calls on
            each of several devices. They are simulated in several orders of arrival.
        in_specs, out_specs: a jax.sharding.PartitionSpec for each argument and result, or one for
            all, as jax.shard_map takes them. Arguments and reference are of whole arrays; a result
            of which each device has a copy is compared on each.
        rungs: those to climb.
        seed: of the values.
        timeout: seconds for one problem at one rung.

    Returns:
        The report, with `passed`; shown as a table.

    Raises:
        ValueError: for a wrong argument, and where `arguments` or `reference` fail by themselves.
    """
    spread = (mesh, in_specs, out_specs)
    declared = Declared(
        function, reference, arguments, differentiable, static, chips, values, budget, *spread
    )
    _check(rungs, declared.chips, timeout)
    pickled, why_not = _pickled(declared)
    if pickled is None:
        with _here(timeout) as ask:
            report = _climb(ask, {"declaration": declared}, rungs, (), seed)
        return report + Report((), (f"{declared.name} ran in this process: {why_not}",))
    with asking(timeout) as ask:
        return _climb(ask, {"pickled": pickled}, rungs, (), seed)


def _pickled(declared: Declared) -> tuple[bytes | None, str]:
    """A declaration as a child can load it, or None and why not."""
    try:
        return jax_pickles.dumps(declared), ""
    except Exception as error:  # whatever somebody's objects raise when they are pickled
        return None, f"it cannot be handed to another ({brief(error)})"


def prove_file(
    path: str,
    name: str = "",
    *,
    rungs: Sequence[str] = RUNGS,
    chips: Sequence[str] = (),
    seed: int = 0,
    timeout: float = TIMEOUT,
    mesh: Mapping[str, int] | None = None,
    progress: Callable[..., None] = lambda words, ended=False: None,
    sandbox: bool = False,
) -> Report:
    """Prove what a file marks with `kernels.proves`, in a child process; `mesh` stands in place of
    the file's own, `sandbox` asks for `sandbox.walls`, and `progress` hears what is done and,
    with ended=True, what a rung found. ValueError where the file cannot be loaded, or marks nothing
    of that name."""
    _check(rungs, chips, timeout)
    with asking(timeout, sandbox=sandbox) as ask:
        question = {"path": path, "name": name, "mesh": mesh}
        return _climb(ask, question, rungs, tuple(chips), seed, progress)


def declared_in(
    path: str, name: str = "", sandbox: bool = False
) -> list[tuple[str, tuple[str, ...]]]:
    """What a file marks with `kernels.proves`: the name of each kernel, and its chips; ValueError
    where the file cannot be loaded, or marks nothing of that name."""
    with asking(TIMEOUT, sandbox=sandbox) as ask:
        kernels = _loaded(ask, {"path": path, "name": name})
    return [(kernel["name"], tuple(kernel.get("chips", ()))) for kernel in kernels]


def _loaded(ask: Ask, source: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return ask({"what": "load", **source})["kernels"]
    except Lost as lost:
        raise ValueError(f"the file could not be loaded: {lost}") from None


def _check(rungs: Sequence[str], chips: Sequence[str], timeout: float) -> None:
    from kernels.yours.machines import chips as known

    positive("timeout", timeout)
    for argument, names, accepted in (("rungs", rungs, RUNGS), ("chips", chips, known())):
        if isinstance(names, str):
            fail(argument, repr(names), "a tuple of names")
        for name in names:
            one_of(argument, name, accepted)
    if not rungs:
        fail("rungs", "empty", f"one or more of {', '.join(RUNGS)}")
    if len({known()[chip] for chip in chips}) > 1:
        fail("chips", ", ".join(chips), "TPUs, or GPUs")


Ask = Callable[[dict[str, Any]], dict[str, Any]]


@contextlib.contextmanager
def _here(timeout: float) -> Iterator[Ask]:
    """Answers from this process: for what no other can load."""
    from kernels.yours import answers

    # A signal interrupts Python in the main thread alone, on systems that have it.
    limited = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def late(number: int, frame: Any) -> None:
        raise answers.Late

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        if not limited:
            return _good(answers.answer(question))
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        try:
            return _good(answers.answer(question))
        except answers.Late:
            raise Lost(_late(timeout)) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    yield ask


class Lost(Exception):
    """The child ended; the message says how, in a line."""


@contextlib.contextmanager
def asking(
    timeout: float, *, memory: int | None = None, whole: float = math.inf, sandbox: bool = False
) -> Iterator[Ask]:
    """Answers from a child, which is started anew where it ended: a function that asks one
    question, and raises Lost where the child ended, and ValueError with what went wrong in it, in a
    line.

    Args:
        timeout, whole: seconds for a question, and for all together.
        memory: bytes that the child may have; a share of what is free where it is None.
        sandbox: whether bubblewrap confines the child.
    """
    from kernels.machines.child import Child, ChildDied, ChildError, ChildLate, python

    alive: list[Child] = []
    loaded: list[dict[str, Any]] = []  # what a new child has to be told again
    end = time.monotonic() + whole
    command = python(WORKER, *([] if memory is None else [str(memory)]))

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        if (seconds := end - time.monotonic()) <= 0:
            raise Lost("not begun: --timeout was up")
        left = lambda most: max(min(most, end - time.monotonic()), 0.0)
        loads = question["what"] == "load"
        try:
            if not alive or alive[-1].ended:
                source = (loaded or [question])[0]
                files = [source[part] for part in ("path", "reference") if source.get(part)]
                before = walls(files) if sandbox else []
                alive.append(Child(before + command, plain=sandbox))
                if loaded and not loads:
                    alive[-1].ask(loaded[0], seconds := left(max(timeout, LOADING)))
            if loads:
                loaded[:] = [question]
            seconds = left(max(timeout, LOADING) if loads else timeout)
            return _good(alive[-1].ask(question, seconds))
        except ChildLate:
            raise Lost(_late(seconds)) from None
        except ChildDied as died:
            raise Lost(_died(died)) from None
        except ChildError as error:
            raise Lost(str(error)) from None

    try:
        yield ask
    finally:
        for child in alive:
            child.close()


def _good(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer


def _late(timeout: float) -> str:
    words = "and ended: a loop without end, or too much for that time (--timeout)"
    return f"not done after {timeout:.3g} s, {words}"


def _died(died: Any) -> str:
    wanted = died.status in (-9, 128 + 9) or memory.wanted(died.stderr)
    lost = f"{ENDED}, which{str(died).removeprefix('the process')}"
    return "its process was ended for want of memory" if wanted else lost


def _climb(
    ask: Ask,
    source: dict[str, Any],
    rungs: Sequence[str],
    chips: tuple[str, ...],
    seed: int,
    progress: Callable[..., None] = lambda words, ended=False: None,
    kernels: Sequence[dict[str, Any]] = (),
) -> Report:
    """Climb the rungs with the kernels of a source, or with those of it that were loaded."""
    results: list[ProblemResult] = []
    notes: list[str] = []
    kernels = kernels or _loaded(ask, source)
    for kernel in kernels:
        _check(rungs, kernel.get("chips", ()), TIMEOUT)
    for kernel in kernels:
        name = kernel["name"]
        if "error" in kernel:
            if "path" not in source:  # of a file the report says it, beside its other kernels
                raise ValueError(kernel["error"])
            what = "arguments and reference"
            results.append(ProblemResult(name, "load", what, FAILED, kernel["error"]))
            continue
        if kernel["devices"]:
            notes.append(f"{name}: on {kernel['devices']}")
        if kernel["budget"] != 1:
            notes.append(f"{name}: {kernel['budget']:g} times the usual error budget, as declared")
        for rung in rungs:
            # Of the file's own values interpret has said what there is to say: the program is one.
            if rung in ONCE and name.endswith(OWN) and results[-1].status == PASSED:
                continue
            problems = kernel["problems"][: 1 if rung in ONCE else None]
            compiled_for = (chips or kernel["chips"]) if rung == "compile" else ()
            for place, problem in enumerate(problems):
                progress(f"{name}: {rung}, {problem}")
                question = dict(name=name, rung=rung, place=place, chips=chips, seed=seed)
                try:
                    answer = ask({"what": "climb", **question})
                except (Lost, ValueError) as reason:
                    answer = {"status": FAILED, "message": str(reason)}
                if answer["status"] == "dropped":
                    notes.append(f"{name}: no problem with {problem}: {answer['message']}")
                    continue
                notes += filter(None, [answer.pop("note", "")])
                results.append(ProblemResult(name, rung, problem, **answer, chips=compiled_for))
                if any(words in results[-1].message for words in HOPELESS):
                    break  # so it is with the next ones
            *_, row = Report(tuple(results)).table().rows
            progress(f"{name}: {rung} {row[3]} ({row[2]}), {row[5]} s", ended=True)
    return Report(tuple(results), tuple(dict.fromkeys(notes)))
