"""What a child answers: it loads a reader's file, and climbs a rung with what it declares."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.backends.base import Refused, Skipped
from kernels.backends.pallas_tpu import Brought
from kernels.checks import brief, fail
from kernels.own import declared
from kernels.own.claim import Claim
from kernels.own.declared import Declared

RUNGS = ("interpret", "simulate", "compile")

_modules: dict[str, Any] = {}
_claims: dict[str, Claim] = {}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one question.

    Args:
        question: "what" names one of the functions below, the rest are its arguments.

    Returns:
        What it gives, or {"error": a line}.
    """
    given = {key: value for key, value in question.items() if key != "what"}
    try:
        return _ANSWERS[question["what"]](**given)
    except BaseException as error:  # also of a file that calls sys.exit
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": told(error)}


def told(error: BaseException) -> str:
    """An exception in one line, with the reader's line of code that raised it."""
    if isinstance(error, (Refused, Skipped)):
        return str(error)
    own = Path(__file__).parent.parent
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        f
        for f in frames
        if "site-packages" not in f.filename
        and not f.filename.startswith("<")
        and own not in Path(f.filename).parents
        and "/lib/python" not in f.filename
    ]
    words = str(error) if type(error) is ValueError else brief(error)
    if isinstance(error, SyntaxError):
        words = f"SyntaxError: {error.msg} ({Path(error.filename or '').name}:{error.lineno})"
        return words
    first = words.splitlines()[0] if words else type(error).__name__
    return f"{first} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else first


def module(path: str) -> Any:
    """The file as a module, loaded once; its folder is where it imports from.

    Args:
        path: of a Python file.

    Raises:
        ValueError: where there is no such file.
    """
    resolved = str(Path(path).resolve())
    if resolved not in _modules:
        if not Path(resolved).is_file():
            fail("file", path, "a Python file")
        sys.path.insert(0, os.path.dirname(resolved))
        name = Path(resolved).stem
        spec = importlib.util.spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None:
            fail("file", path, "a Python file")
        made = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(name, made)
        spec.loader.exec_module(made)
        _modules[resolved] = made
    return _modules[resolved]


def found(path: str, name: str = "") -> list[Declared]:
    """What a file declares.

    Args:
        path: of a Python file.
        name: of one of its functions; all where it is left out.

    Raises:
        ValueError: where it declares nothing, or nothing of that name.
    """
    module(path)
    those = declared.declared()
    if not those:
        fail(
            "file",
            f"{path}, which marks nothing to prove",
            "one with @kernels.proves(reference, arguments=...) above a function",
        )
    if name:
        named = [each for each in those if each.name == name]
        if not named:
            fail("name", repr(name), ", ".join(each.name for each in those))
        return named
    return list(those)


def load(
    path: str = "", name: str = "", pickled: bytes = b"", given: Declared | None = None
) -> dict[str, Any]:
    """Make the claims of a file, or of what was handed over.

    Args:
        path: of a Python file.
        name: of one function in it; all where it is left out.
        pickled: a Declared, instead of a file.
        given: the same, from this very process.

    Returns:
        kernels: for each its name, and its problems by name.
    """
    if pickled:
        given = pickle.loads(pickled)
    told_of = []
    for each in [given] if given else found(path, name):
        try:
            claim = Claim(each)
            problems = [str(w) for w in claim.workloads.named]
            claim.outputs  # noqa: B018  # runs the reference once
            _claims[each.name] = claim
            told_of.append({"name": each.name, "problems": problems, "chips": each.chips})
        except Exception as error:
            told_of.append({"name": each.name, "error": told(error)})
    return {"kernels": told_of}


def climb(name: str, rung: str, place: int, chips: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Prove one kernel at one rung on one of its problems.

    Returns:
        The arguments of a report.Finding.
    """
    from kernels import judge, ladder

    claim = _claims[name]
    start = time.perf_counter()
    workload = claim.workloads.named[place]
    made: dict[str, Any] = {"kernel": name, "rung": rung, "problem": str(workload)}
    if (rung == "interpret" and place) and not judge.tells(claim, workload, seed):
        words = "the reference itself loses its digits, or overflows, on such values"
        return made | {"status": "dropped", "message": words}
    backend = Brought(chips or claim.declared.chips)
    subject = ladder.Subject(
        claim, name, backend, claim.function, differentiable=bool(claim.differentiable)
    )
    [check] = ladder.climb(subject, rung, [workload], seed)
    wrote = ""
    if check.place is not None and not check.output.startswith("gradient"):
        try:
            wrote = _writer(claim, workload, seed, check.output, check.place)
        except Exception:  # a kernel that cannot be traced as it is compiled was told of elsewhere
            wrote = ""
    return made | {
        "status": check.status,
        "message": check.message,
        "wrote": wrote,
        "used": check.used,
        "seconds": time.perf_counter() - start,
    }


def _writer(claim: Claim, workload: Any, seed: int, output: str, place: tuple[int, ...]) -> str:
    """Which block of which program wrote an element of a result."""
    import numpy as np

    from kernels.compat import jax_pallas
    from kernels.pallas.calls import calls

    values = claim.workloads.arguments(workload, seed)
    places = [i for i, a in enumerate(values) if hasattr(a, "shape")]

    def of_arrays(*arrays: Any) -> Any:
        given = list(values)
        for where, array in zip(places, arrays, strict=True):
            given[where] = array
        return claim.function(*given)

    with jax_pallas.compiled():
        made = calls(of_arrays, *[values[i] for i in places])
    index = claim.outputs.index(output)
    for call in reversed(made):
        outputs = call.outputs
        fitting = [o for o in outputs if len(o.shape) == len(place)]
        if not fitting:
            continue
        own = outputs[index] if len(outputs) > index else fitting[0]
        operand = own if own in fitting else fitting[0]
        if not operand.known or any(p >= s for p, s in zip(place, operand.shape)):
            continue
        block = np.array(operand.block)
        inside = (operand.starts <= place) & (np.array(place) < operand.starts + block)
        programs = np.flatnonzero(inside.all(1))
        if not len(programs):
            return f"no program of {call.name} writes that element of {operand.name}"
        start = operand.starts[programs[-1]]
        cut = ", ".join(
            f"{s}:{min(s + b, n)}" for s, b, n in zip(start, operand.block, operand.shape)
        )
        ids = [tuple(int(i) for i in call.programs[p]) for p in programs]
        who = f"program {_id(ids[-1])}" + (
            f" (and {len(ids) - 1} before it, from {_id(ids[0])})" if len(ids) > 1 else ""
        )
        return f"written by {call.name}, {who}: block [{cut}] of {operand.name}"
    return ""


def _id(program: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, program))})"


_ANSWERS = {"load": load, "climb": climb}
