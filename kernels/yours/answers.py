"""What a child answers: it loads a reader's file, and climbs a rung with what it declares."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail, located
from kernels.proof.backends.base import Refused, Skipped
from kernels.proof.backends.pallas_tpu import Brought
from kernels.yours import declared
from kernels.yours.claim import Claim
from kernels.yours.declared import Declared
from kernels.yours.memory import plainly

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
    asked: Callable[..., dict[str, Any]] = _ANSWERS[question["what"]]
    try:
        return asked(**given)
    except BaseException as error:  # also of a file that calls sys.exit
        if isinstance(error, (KeyboardInterrupt, Late)):
            raise
        return {"error": told(error)}


class Late(BaseException):
    """The time is up; nobody's `except Exception` stops it."""


def told(error: BaseException) -> str:
    """An exception in one line, with the reader's line of code that raised it."""
    return plainly(str(error) if isinstance(error, (Refused, Skipped)) else located(error))


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
    marked = str(Path(path).resolve())
    those = [each for each in declared.declared() if each.file == marked]
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
    from kernels.proof import judge, ladder

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
        "message": plainly(check.message.removeprefix("TpuCompileError: ")),
        "wrote": wrote,
        "used": check.used,
        "seconds": time.perf_counter() - start,
    }


def _writer(claim: Claim, workload: Any, seed: int, output: str, place: tuple[int, ...]) -> str:
    """Which block of which program wrote an element of a result."""
    import numpy as np

    from kernels.machines.compat import jax_pallas
    from kernels.machines.pallas.calls import calls

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


def explain(
    path: str,
    name: str,
    args: str,
    chip: str,
    timeout: float,
    pictures: bool,
    trips: Mapping[str, int],
) -> dict[str, Any]:
    """Explain one function of a file on one chip.

    Args:
        path, name: of the function.
        args: its arguments, as yours.shapes reads them; those of its declaration where it is empty.
        chip: of one of the machines of kernels.yours.machines.
        timeout: seconds for a compilation.
        pictures: whether to draw what a page shows.
        trips: the name of a loop, or "" for every one → how often it runs, where data decides.

    Returns:
        What the machine's `explain` gives, and under "files" what it depends on: each file that was
        loaded, with its time and size.
    """
    from kernels.yours import cache
    from kernels.yours.machines import machine

    function, arrays = _called(path, name, args)
    made = machine(chip).explain(
        function,
        arrays,
        integers(arrays),
        chip=chip,
        name=name,
        title=f"{name}  {args}".strip(),
        timeout=timeout,
        pictures=pictures,
        trips=trips,
    )
    return made | {"files": cache.files()}


def _called(path: str, name: str, args: str) -> tuple[Callable[..., Any], list[Any]]:
    """A function of a file as one of arrays alone, and these."""
    return of_arrays(*target(path, name, args), name)


def of_arrays(
    function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any], name: str
) -> tuple[Callable[..., Any], list[Any]]:
    """A function as one of arrays alone, and these.

    Args:
        function: of any arguments.
        given, named: its arguments, arrays or shapes and whatever else it takes.
        name: that the new one has.
    """
    if not named and all(hasattr(each, "shape") for each in given):
        return function, list(given)  # as it is: a jitted one keeps what it donates

    def call(*arrays: Any) -> Any:
        return function(*arrays[: len(given)], **dict(zip(named, arrays[len(given) :])))

    arrays = [*given, *named.values()]
    fixed = {i: a for i, a in enumerate(arrays) if not hasattr(a, "shape")}

    def traceable(*traced: Any) -> Any:
        rest = iter(traced)
        return call(*(fixed[i] if i in fixed else next(rest) for i in range(len(arrays))))

    traceable.__name__ = name
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = [n for i, n in enumerate(_names(function, len(given), named)) if i not in fixed]
    traceable.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, kind) for n in shown]
    )
    return traceable, [a for a in arrays if hasattr(a, "shape")]


def _names(function: Callable[..., Any], count: int, named: Mapping[str, Any]) -> list[str]:
    """What a function calls its arguments: `count` positional ones, then the named ones."""
    try:
        own = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        own = []
    places = [p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    places += [f"argument{i}" for i in range(len(places), count)]
    return [*places[:count], *named]


def integers(arrays: Sequence[Any]) -> dict[int | str, Any]:
    """Of the arrays whose values are given, the integers: what grids, loops and tables depend on.

    Args:
        arrays: NumPy's or JAX's, or shapes.
    """
    import numpy as np

    given = {i: a for i, a in enumerate(arrays) if type(a).__name__ != "ShapeDtypeStruct"}
    return {i: np.asarray(a) for i, a in given.items() if np.dtype(a.dtype).kind in "iub"}


def target(path: str, name: str, args: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """A function of a file, and the arguments that a text or its declaration gives.

    Raises:
        ValueError: for a file without it, and where nobody says what its arguments are.
    """
    import jax
    import numpy as np

    from kernels.yours.shapes import arguments

    made = module(path)
    marked = str(Path(path).resolve())
    own = {each.name: each for each in declared.declared() if each.file == marked}
    function = getattr(made, name, None) or (own[name].function if name in own else None)
    if not callable(function):
        known = [n for n, v in vars(made).items() if callable(v) and not n.startswith("_")]
        fail("name", repr(name), ", ".join(known) or f"a function of {path}")
    if args:
        return function, *arguments(args)
    if name not in own:
        fail("--args", "left out", f'what {name} takes, such as "bf16[4096,4096] bf16[4096,4096]"')
    drawn = own[name].arguments(np.random.default_rng(0))
    if isinstance(drawn, dict):
        return function, [], drawn
    leaves, tree = jax.tree.flatten(tuple(drawn))
    if len(leaves) == len(drawn):
        return own[name].function, list(drawn), {}
    whole = own[name].function
    return lambda *flat: whole(*jax.tree.unflatten(tree, flat)), leaves, {}


def tune(
    path: str,
    name: str,
    args: str,
    chip: str,
    tunings: list[dict[str, Any]],
    timeout: float,
) -> dict[str, Any]:
    """Estimate a function with each of several keyword arguments.

    Returns:
        trials: of each, in order: seconds (None where it is refused), what binds, a note, how far
        such estimates were off, and whether the reason for a refusal may pass.
    """
    import functools

    from kernels.machines.compat import jax_pallas
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate import Estimate, estimate_all
    from kernels.machines.tpu.export import export
    from kernels.machines.tpu.tuner import TRANSIENT

    function, given, named = target(path, name, args)
    trials: dict[int, dict[str, Any]] = {}
    programs = {}
    for place, tuning in enumerate(tunings):
        words = " ".join(f"{k}={v}" for k, v in tuning.items())
        try:
            with jax_pallas.compiled():
                call = functools.partial(function, **named, **tuning)
                programs[place] = export(
                    call, *given, chip=chip, name=f"{name} {words}", values=integers(given)
                )
        except Exception as error:  # a size that the function itself refuses
            note = told(error).removeprefix("TpuCompileError: ")
            trials[place] = {"seconds": None, "bound": "", "note": note, "passing": False}
    found = estimate_all(list(programs.values()), timeout=timeout, progress=False)
    for place, each in zip(programs, found, strict=True):
        if isinstance(each, Estimate):
            trials[place] = {
                "seconds": each.seconds.low,
                "bound": each.bound,
                "note": each.method,
                "band": each.band_text,
                "passing": False,
            }
        else:
            assert isinstance(each, TpuCompileError)
            passing = each.kind in TRANSIENT
            trials[place] = {"seconds": None, "bound": "", "note": str(each), "passing": passing}
    return {"trials": [trials[i] for i in range(len(tunings))]}


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "load": load,
    "climb": climb,
    "explain": explain,
    "tune": tune,
}
