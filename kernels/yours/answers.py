"""What a child answers: it loads a reader's file, and climbs a rung with what it declares."""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kernels.machines.checks import fail, located, takes, user_file
from kernels.machines.compat import gone, jax_pallas, jaxprs
from kernels.machines.compat.jax_products import GPU, TPU, WHOLE, multiplying
from kernels.machines.gpu.chips import CHIPS as GPUS
from kernels.machines.pallas.calls import calls
from kernels.proof import judge, ladder
from kernels.proof.backends.base import Refused, Skipped
from kernels.proof.backends.jax_arrays import at_places
from kernels.proof.backends.pallas_gpu import BroughtToGpu
from kernels.proof.backends.pallas_tpu import Brought
from kernels.proof.backends.pallas_tpu_mesh import BroughtToMesh, over
from kernels.yours import cache, declared, models, weighing
from kernels.yours.claim import Claim, names_of, with_names
from kernels.yours.declared import Declared
from kernels.yours.machines import Asked, machine
from kernels.yours.memory import plainly
from kernels.yours.partial_sums import MOST, most_rounded
from kernels.yours.shapes import arguments
from kernels.yours.spread import Devices

_modules: dict[str, Any] = {}
_claims: dict[str, Claim] = {}
ROUNDED = {
    TPU: "a TPU rounds the factors of float32 products{} to bfloat16, by up to 0.2 % each",
    GPU: "a GPU rounds the factors of float32 products{} to TensorFloat-32, by up to 0.05 % each",
}
WHOLE_ONES = (
    "With whole factors it is right: ask for them by precision=jax.lax.Precision.HIGHEST. If "
    "rounded ones are meant, let the reference multiply so too (as jax.numpy does by default), or "
    "declare a budget="
)
HAND_OVER = "hand over what shard_map calls, with mesh=, in_specs= and out_specs="


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one question: "what" names one of the functions below, the rest are its arguments.
    What it gives, or {"error": a line}."""
    arguments = {key: value for key, value in question.items() if key != "what"}
    try:
        return _ANSWERS[question["what"]](**arguments)
    except BaseException as error:  # also of a file that calls sys.exit
        if isinstance(error, (KeyboardInterrupt, Late)):
            raise
        return {"error": in_a_line(error, str(question.get("path", "")))}


class Late(BaseException):
    """The time is up; nobody's `except Exception` stops it."""


def in_a_line(error: BaseException, path: str = "") -> str:
    """An exception in one line, with the reader's line of code that raised it; of a file with NUL
    bytes, which Python does not name, its path."""
    if isinstance(error, SyntaxError):
        error.filename = error.filename or path
    ended = f"{declared.ENDED}: " * isinstance(error, SystemExit)
    return ended + plainly(str(error) if isinstance(error, (Refused, Skipped)) else located(error))


def module(path: str) -> Any:
    """The file as a module, loaded once; its folder is where it imports from. ValueError where
    there is no such file."""
    resolved = str(Path(path).resolve())
    if resolved not in _modules:
        name = Path(resolved).stem
        spec = importlib.util.spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None or not Path(resolved).is_file():
            fail("file", path, "a Python file")
        sys.path.insert(0, os.path.dirname(resolved))
        loaded = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(name, loaded)
        spec.loader.exec_module(loaded)
        _modules[resolved] = loaded
    return _modules[resolved]


def _marked(path: str) -> dict[str, Declared]:
    """What a file that is loaded marks to prove, by name; ValueError where two have one name."""
    file = str(Path(path).resolve())
    named: dict[str, Declared] = {}
    for known in declared.declared():
        if known.file == file and named.setdefault(known.name, known) is not known:
            fail("name", f"{known.name!r}, marked twice in {path}", "another def for each")
    return named


def marked(path: str, name: str = "") -> list[Declared]:
    """What a file marks with `kernels.proves`; ValueError where that is none, or none so named."""
    module(path)
    known = _marked(path)
    if not known:
        fail(
            "file",
            f"{path}, which marks nothing to prove",
            "one with @kernels.proves(reference, arguments=...) above a function",
        )
    if name and name not in known:
        fail("name", repr(name), ", ".join(known))
    return [known[name]] if name else list(known.values())


def _on(known: Declared, mesh: Mapping[str, int] | None) -> Declared:
    """The same on another mesh, where there is one."""
    return dataclasses.replace(known, mesh=mesh) if mesh else known


def load(
    path: str = "",
    name: str = "",
    pickled: bytes = b"",
    declaration: Declared | None = None,
    reference: str = "",
    mesh: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Make the claims of a file, or of what was handed over: for each of its "kernels" its name,
    its problems by name, its chips, its budget and its devices in words; or the error. Of one in
    KernelBench's form, held against that of another file, what models.small says too."""
    if pickled:
        declaration = pickle.loads(pickled)
    kernels: list[dict[str, Any]] = []
    own = [declaration] if declaration else []
    declarations, facts = models.small(path, reference) if reference else (own, {})
    for known in declarations or marked(path, name):
        try:
            if known.file:  # what a simulated mesh is sent it may not be able to import
                import cloudpickle

                cloudpickle.register_pickle_by_value(module(known.file))
            claim = Claim(_on(known, mesh))
            with multiplying(WHOLE):
                claim.outputs  # noqa: B018  # runs the reference once
            problems = [str(w) for w in claim.workloads.named]
            _claims[known.name] = claim
            devices = str(claim.spread or "")
            asked = {"chips": known.chips, "budget": known.budget, "devices": devices}
            kernels.append({"name": known.name, "problems": problems, **asked})
        except Exception as error:
            kernels.append({"name": known.name, "error": in_a_line(error)})
    return {"kernels": kernels, **facts}


def weigh(
    chips: tuple[str, ...],
    timeout: float,
    path: str = "",
    name: str = "",
    pickled: bytes = b"",
    reference: str = "",
    mesh: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Compile and estimate one kernel at its full size; what it is, as of `load`. "chips" as
    weighing.weigh has it, and "gone", names of JAX in its file that are gone."""
    text = Path(path).read_text(encoding="utf-8") if path else ""
    try:
        ast.parse(text, path)
    except SyntaxError as error:
        refused = {"verdict": "refused", "rung": "trace", "why": in_a_line(error, path)}
        return {"chips": [refused | {"chip": chip} for chip in chips], "gone": []}
    if reference:
        title, whole = Path(path).stem, models.full(path, reference)
    else:
        known = _on(pickle.loads(pickled) if pickled else marked(path, name)[0], mesh)
        args, named = known.full or known.draw(np.random.default_rng(0))
        whole = weighing.Full(known.function, known.reference, args, named, known.spread)
        title = known.name
    used = [dataclasses.asdict(name) for name in gone.gone(text)]
    return {"chips": weighing.weigh(whole, title, chips, timeout), "gone": used}


@functools.cache
def _looked_at(claim: Claim) -> tuple[str, str | None]:
    """Why no rung runs it; and where, in a bracket or a word, it first asks for a product whose
    factors a machine rounds: None where nowhere, "" where it cannot be traced. The claim is told
    where its partial sums are rounded."""

    def line(frames: Sequence[tuple[str, int]]) -> str:
        own = next((frame for frame in frames if user_file(frame[0])), None)
        return f" ({Path(own[0]).name}:{own[1]})" if own else ""

    with contextlib.suppress(Exception), jax_pallas.compiled():
        subject = _subject(claim, Brought(claim.declared.chips))
        try:
            programs = ladder.programs(subject, claim.workloads.named[0])
            forward, *_, traced = [jaxprs.trace(f, *a) for f, a in (programs[0], *programs)]
        except NameError as error:
            if "unbound axis name" in str(error):
                return f"it names an axis of a mesh ({error}); {HAND_OVER}", None
            raise
        for equation in jax_pallas.outside_kernels(traced):
            spread = jaxprs.operation(equation) == "shard_map"
            if spread and equation.params["mesh"].size > 1 and not claim.spread:
                return f"it is spread over several devices (shard_map); {HAND_OVER}", None
            talks = jax_pallas.is_kernel(equation) and jax_pallas.reaches_other_chips(equation)
            if talks and not claim.spread:
                return f"it talks to other chips; {HAND_OVER}", None
        if (worst := most_rounded(forward)).count > MOST:
            claim.rounds_sums = (
                f"what it has added up is rounded after each term{line(worst.lines)}"
            )
        products = [e for e in jaxprs.equations(traced) if jaxprs.passes(e) in (1, 3)]
        place = line([frame for e in products for frame in jaxprs.frames(e)]) or " of a library"
        return "", place if products else None
    return "", ""


def _subject(claim: Claim, backend: Any) -> Any:
    differentiable = bool(claim.differentiable)
    return ladder.Subject(claim, claim.name, backend, claim.function, differentiable=differentiable)


def climb(name: str, rung: str, place: int, chips: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Prove one kernel at one rung on one of its problems: what a report.ProblemResult has besides
    kernel, rung and problem, and a "note" on it.

    What asks for products whose factors the machine rounds is run twice: with whole factors against
    a reference with whole ones, and with rounded factors against a reference that multiplies as the
    machine makes it.
    """
    claim = _claims[name]
    start = time.perf_counter()
    workload = claim.workloads.named[place]
    not_run, rounds_at = _looked_at(claim)
    if not_run:
        return {"status": ladder.SKIPPED, "message": not_run}
    with multiplying(WHOLE):
        if (rung == "interpret" and place) and not judge.tells(claim, workload, seed):
            words = "the reference itself loses its digits, or overflows, on such values"
            return {"status": "dropped", "message": words}
    targets = chips or claim.declared.chips
    on_gpu = set(targets) <= set(GPUS)
    machine = GPU if on_gpu else TPU
    if claim.spread and on_gpu:
        fail("chips", ", ".join(targets), "TPUs, where there is a mesh")
    backend: Any = (BroughtToGpu if on_gpu else Brought)(targets)
    if claim.spread:
        backend = BroughtToMesh(targets, claim.cut)
    with multiplying(WHOLE):
        [check] = ladder.climb(_subject(claim, backend), rung, [workload], seed)
    used, rounded, note = check.used, "", ""
    if rounds_at is not None and rung != "compile" and check.used is not None:
        backend.orders = 1  # in no other order are factors rounded otherwise
        with multiplying(machine):
            [check] = ladder.climb(_subject(claim, backend), rung, [workload], seed)
        rounded = ROUNDED[machine].format(rounds_at)
        used = max(used or 0.0, check.used or 0.0)
        note = f"{name}: {rounded}. With whole factors it is right; with rounded ones it is as "
        note += "good as its reference, which multiplies so as well"
    wrote = ""
    if check.place is not None and not (claim.spread or check.output.startswith("gradient")):
        # A kernel that cannot be traced as it is compiled was told of elsewhere.
        with contextlib.suppress(Exception):
            wrote = _writer(claim, workload, seed, check.output, check.place)
    status, message = check.status, check.message.removeprefix("TpuCompileError: ")
    if " is nan, the reference" in message:
        message += " (memory that nothing wrote, and beyond an array's end, reads as NaN)"
    axes = dict(zip(claim.outputs, claim.copied)).get(check.output)
    if check.place is not None and axes:
        message += f"; the first index counts the devices along {' and '.join(axes)}"
    if status == ladder.FAILED and rounded:
        message, note = f"{message}: {rounded}. {WHOLE_ONES}", ""
    share = used if status != ladder.FAILED else None
    result = dict(status=status, message=plainly(message), wrote=wrote, used=share)
    return result | {"seconds": time.perf_counter() - start, "note": note if rounds_at else ""}


def _writer(claim: Claim, workload: Any, seed: int, output: str, place: tuple[int, ...]) -> str:
    """Which block of which program wrote an element of a result."""
    values = claim.workloads.arguments(workload, seed)
    function, arrays = at_places(
        claim.function, values, [i for i, a in enumerate(values) if hasattr(a, "shape")]
    )
    with jax_pallas.compiled():
        traced = calls(function, *arrays)
    index = claim.outputs.index(output)
    for call in reversed(traced):
        likely = *call.outputs[index : index + 1], *call.outputs
        operand = next((o for o in likely if len(o.shape) == len(place)), None)
        if not operand or not operand.known or any(p >= s for p, s in zip(place, operand.shape)):
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
        ids = [f"({', '.join(map(str, call.programs[p]))})" for p in programs]
        who = f"program {ids[-1]}"
        if len(ids) > 1:
            who += f" (and {len(ids) - 1} before it, from {ids[0]})"
        return f"written by {call.name}, {who}: block [{cut}] of {operand.name}"
    return ""


def explain(
    path: str, name: str, args: str, mesh: Mapping[str, int] | None = None, **options: Any
) -> dict[str, Any]:
    """Explain one function of a file on one chip, or as one device of several runs it. Under
    "files" is what the explanation depends on: each file that was loaded, with its time and size.
    """
    function, positional, named = target(path, name, args)
    known = _marked(path).get(name)
    if mesh and not known:
        fail("--mesh", mesh, "one of a function that @kernels.proves marks")
    spread = _on(known, mesh).spread if known else None
    asked = asked_of(function, positional, named, name, args, spread, **options)
    return {"explanation": machine(asked.chip).explain(asked), "files": cache.files()}


def asked_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    name: str,
    shown: str,
    spread: Devices | None,
    **options: Any,
) -> Asked:
    """A function with its arguments, `shown` in the title, and the rest of what is asked; over the
    devices of a mesh where there is one."""
    call, arrays = of_arrays(function, args, named, name)
    cut = spread.cut(args, named) if spread else {}
    call = over(call, **cut) if cut else call
    title = f"{name}  {shown}".strip() + (f"  on each of {spread}" if spread else "")
    return Asked(call, arrays, name=name, title=title, cut=cut, **options)


def of_arrays(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], name: str
) -> tuple[Callable[..., Any], list[Any]]:
    """A function as one of arrays alone, and these."""
    if not named and all(hasattr(value, "shape") for value in args):
        return function, list(args)  # as it is: a jitted one keeps what it donates
    takes("args", function, args, named)
    values = [*args, *named.values()]
    places = [i for i, value in enumerate(values) if hasattr(value, "shape")]
    split = lambda *all_: function(*all_[: len(args)], **dict(zip(named, all_[len(args) :])))
    traceable, arrays = at_places(split, values, places)
    traceable.__name__ = name
    names = names_of(function)[: len(args)]
    names += [f"argument{i}" for i in range(len(names), len(args))]
    names += named
    return with_names(traceable, [names[i] for i in places]), arrays


def target(path: str, name: str, args: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """A function of a file, and the arguments that a text or its declaration gives; ValueError for
    a file without it, and where nobody says what its arguments are."""
    loaded = module(path)
    own = _marked(path)
    function = getattr(loaded, name, None) or (own[name].function if name in own else None)
    if not callable(function):
        known = [n for n, v in vars(loaded).items() if callable(v) and not n.startswith("_")]
        fail("name", repr(name), ", ".join(known) or f"a function of {path}")
    if args:
        return function, *arguments(args)
    if name not in own:
        fail("--args", "left out", f'what {name} takes, such as "bf16[4096,4096] bf16[4096,4096]"')
    whole = own[name].function
    drawn, named = own[name].draw(np.random.default_rng(0))
    if named:
        return function, [], named
    leaves, tree = jax.tree.flatten(drawn)
    if len(leaves) == len(drawn):
        return whole, list(drawn), {}
    return lambda *flat, **more: whole(*jax.tree.unflatten(tree, flat), **more), leaves, {}


def tune(
    path: str, name: str, args: str, chip: str, tunings: list[dict[str, Any]], timeout: float
) -> dict[str, Any]:
    """Estimate a function with each of several keyword arguments. Of each, in order, "trials" has
    seconds (None where it is refused), those of them that are its kernels' "own", what binds, a
    note, how far such estimates were off, which data decide that were not given (then the seconds
    are the least), and whether the reason for a refusal may pass."""
    from kernels.machines.tpu.estimate import Estimate, estimate_all
    from kernels.machines.tpu.export import export
    from kernels.machines.tpu.tuner import TRANSIENT

    function, positional, named = target(path, name, args)
    if (known := _marked(path).get(name)) and known.spread:
        fail("function", f"{name}, on {known.spread}", "one for a single device; explain takes it")
    takes("--args", function, positional, named | tunings[0], tunings[0])
    refused = {"seconds": None, "bound": "", "band": "", "on_data": "", "passing": False}
    trials: dict[int, dict[str, Any]] = {}
    programs = {}
    for place, tuning in enumerate(tunings):
        words = " ".join([name, *(f"{k}={v}" for k, v in tuning.items())])
        tuned = functools.partial(function, **tuning)
        try:
            with jax_pallas.compiled():
                call, arrays = of_arrays(tuned, positional, named, name)
                programs[place] = export(call, *arrays, chip=chip, name=words)
        except Exception as error:  # a size that the function itself refuses
            note = in_a_line(error).removeprefix("TpuCompileError: ")
            trials[place] = refused | {"note": note}
    results = estimate_all(list(programs.values()), timeout=timeout, progress=False)
    for place, result in zip(programs, results, strict=True):
        if isinstance(result, Estimate):
            own = sum(op.cycles for op in result.ops if op.kind == "kernel")
            trial: dict[str, Any] = dict(seconds=result.seconds.low, bound=result.bound)
            trial |= dict(note=result.method, band=result.band_text, on_data=result.on_data)
            trial["own"] = own * result.seconds.low / result.cycles
            trials[place] = refused | trial
        else:
            trials[place] = refused | {"note": str(result), "passing": result.kind in TRANSIENT}
    return {"trials": [trials[i] for i in range(len(tunings))]}


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function for function in (load, weigh, climb, explain, tune)
}
