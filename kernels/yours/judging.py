"""Judge kernels that a program or a stranger wrote: refused, wrong, or right as far as rungs reach.

A kernel at its full size is compiled and weighed for each chip; at sizes that a laptop bears it is
interpreted and simulated. What a chip's compiler refuses on every chip is not run at all.
"""

import ast
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail, one_of, positive, positive_int
from kernels.yours import proving, shapes
from kernels.yours.declared import ENDED, OWN, Declared
from kernels.yours.report import FAILED, PARTIAL, PASSED, Report
from kernels.yours.sandbox import walls
from kernels.yours.verdict import REFUSED, RIGHT, UNDECIDED, WRONG, Judgement, OnChip

CHIPS = ("v6e",)
RUNGS = ("interpret", "simulate")
TIMEOUT = 300.0  # seconds for a kernel, all that is done with it together
SHARE = 0.6  # of that, at most for one question: what is left is the interpreters'
# Words of a failure that says nothing of the kernel.
UNTOLD = ("not done after", "not begun", "want of memory", "ran out of memory", ENDED)


@dataclass(frozen=True)
class Entry:
    """A kernel of a file: `name` is the function that it marks with `kernels.proves`, "" of one in
    KernelBench's form, and `reference` the file of its reference, in that form; `why_not` says why
    it cannot be judged."""

    path: str
    name: str = ""
    reference: str = ""
    why_not: str = ""


def judge(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    *,
    arguments: Callable[..., Any],
    full: Any = None,
    chips: Sequence[str] = CHIPS,
    values: Sequence[str] = ("given", "ties"),
    budget: float = 1.0,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    seed: int = 0,
    timeout: float = TIMEOUT,
    memory: float | None = None,
) -> Judgement:
    """Judge a kernel against a reference, for each chip.

    Args:
        function: the kernel's wrapper, as its users call it.
        reference: the same in plain JAX or NumPy, of the same arguments.
        arguments: arguments(rng) draws a tuple of arguments, or a dict of named ones, of sizes that
            this machine bears, from a NumPy generator.
        full: a tuple of jax.ShapeDtypeStruct or arrays, or a dict of named ones, for compiler,
            memory and estimate; a text such as "bf16[4096,4096] f32[128]" will do. What
            `arguments` draws, if left out.
        chips: TPUs; a verdict for each.
        values, budget, mesh, in_specs, out_specs, seed: as `kernels.prove` takes them; on a mesh
            the opponent is the reference as XLA spreads it, and memory is that of one device.
        timeout: seconds for all of it.
        memory: GiB that the process may have that runs it; a share of what is free if left out.

    Returns:
        The verdict, with `passed` and `as_json`; shown as a table.

    Raises:
        ValueError: for a wrong argument, and for functions that no other process can be handed.
    """
    spread = (mesh, in_specs, out_specs)
    declared = Declared(function, reference, arguments, (), (), chips, values, budget, *spread)
    check(chips, timeout, memory)
    if isinstance(full, str):
        positional, named = shapes.arguments(full)
        declared = replace(declared, full=(tuple(positional), named))
    elif isinstance(full, dict):
        declared = replace(declared, full=((), full))
    elif isinstance(full, (tuple, list)):
        declared = replace(declared, full=(tuple(full), {}))
    elif full is not None:
        fail("full", repr(full), "a tuple of shapes, a dict of named ones, or a text")
    pickled, why_not = proving._pickled(declared)
    if pickled is None:
        fail("function", f"{declared.name}: {why_not}", "one that can be pickled")
    return _judged({"pickled": pickled}, declared.name, "", chips, seed, timeout, memory)


def judge_all(
    entries: Sequence[Entry],
    *,
    chips: Sequence[str] = CHIPS,
    mesh: Mapping[str, int] | None = None,
    seed: int = 0,
    timeout: float = TIMEOUT,
    memory: float | None = None,
    jobs: int = 1,
    sandbox: bool = False,
) -> Iterator[Judgement]:
    """Judge kernels of files, as `entries` lists them, several at a time, each in a process of its
    own; yields each verdict once it is there. ValueError for a wrong argument.

    `mesh` stands in place of the files' own, `jobs` is how many at a time, `sandbox` whether
    bubblewrap confines each (see `sandbox.walls`); the rest as `judge`
    takes it.
    """
    check(chips, timeout, memory)
    positive_int("jobs", jobs)
    if sandbox:
        walls()

    def one(entry: Entry) -> Judgement:
        source: dict[str, Any] = {"path": entry.path, "name": entry.name}
        source |= {"reference": entry.reference, "mesh": mesh}
        name = entry.name or Path(entry.path).stem
        if entry.why_not:
            undecided = [OnChip(chip, UNDECIDED, "load", entry.why_not) for chip in chips]
            return Judgement(name, tuple(undecided), entry.path)
        return _judged(source, name, entry.path, chips, seed, timeout, memory, sandbox)

    with ThreadPoolExecutor(jobs) as threads:
        for done in as_completed([threads.submit(one, entry) for entry in entries]):
            yield done.result()


def entries(paths: Sequence[str], reference: str = "", sandbox: bool = False) -> list[Entry]:
    """The kernels of files and folders, in the order of the paths, those of a folder by name; a
    file without kernels or a reference has an entry that says so. ValueError for what is no such
    file, for --reference that is not there, and where not one can be judged.

    Args:
        paths: a file that marks kernels with `kernels.proves`, one in KernelBench's form, or a
            folder of such files; FILE.py:NAME is one of those that it marks.
        reference: the file or folder with the references, in KernelBench's form, under the same
            names. Without, a file's `ModelNew` is held against its own `Model`.
        sandbox: as `judge_all` takes it: a file that marks kernels runs to tell which.
    """
    listed: list[Entry] = []
    if reference and not Path(reference).exists():
        fail("--reference", reference, "a file or a folder that there is")
    for text in paths:
        head, colon, name = text.rpartition(".py:")
        path = Path(head + ".py" if colon else text)
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not files or not path.exists() or not text:
            fail("file", text, "a Python file, FILE.py:NAME, or a folder of Python files")
        for file in files:
            try:
                listed += _of_file(file, name if colon else "", reference, sandbox)
            except ValueError as error:
                if colon:
                    raise
                listed.append(Entry(str(file), why_not=str(error)))
    if listed and all(entry.why_not for entry in listed):  # the command line is wrong
        raise ValueError(listed[0].why_not)
    return listed


def _of_file(file: Path, name: str, reference: str, sandbox: bool) -> list[Entry]:
    if "get_inputs" not in (own_names := names(file)):
        return [Entry(str(file), own) for own, _ in proving.declared_in(str(file), name, sandbox)]
    beside = Path(reference) if reference else file
    beside = beside / file.name if beside.is_dir() else beside
    if not beside.is_file() or "get_inputs" not in names(beside):
        value = f"{beside}, which has no get_inputs" if beside.is_file() else f"no file {beside}"
        fail("--reference", value, f"a file in KernelBench's form for {file.name}")
    if "ModelNew" not in own_names and beside.samefile(file):
        accepted = f"where the original of {file} is, which has no ModelNew itself"
        fail("--reference", beside if reference else "left out", accepted)
    return [Entry(str(file), "", str(beside))]


def names(file: Path) -> set[str]:
    """Functions and classes of a file, which is not run: get_inputs, if in KernelBench's form."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError:  # it is judged as if it were, and refused
        return {"get_inputs", "ModelNew"}
    except (OSError, UnicodeDecodeError) as error:
        fail("file", file, f"a Python file ({error})")
    return {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def shard(listed: Sequence[Entry], text: str) -> list[Entry]:
    """Every N-th kernel of a list, from the K-th on, for "K/N" with K from 1 to N: what one machine
    of N judges. ValueError for another text."""
    head, _, tail = text.partition("/")
    if not (head.isdigit() and tail.isdigit() and 1 <= int(head) <= int(tail)):
        fail("--shard", repr(text), "K/N, such as 3/8")
    return list(listed[int(head) - 1 :: int(tail)])


def check(chips: Sequence[str], timeout: float, memory: float | None) -> None:
    """ValueError for what is no TPU, and for limits that are none."""
    from kernels.machines.tpu.chips import CHIPS as known

    positive("timeout", timeout)
    if memory is not None:
        positive("memory", memory)
    for chip in chips:
        one_of("chips", chip, known)


def _judged(
    source: dict[str, Any],
    name: str,
    path: str,
    chips: Sequence[str],
    seed: int,
    timeout: float,
    memory: float | None,
    sandbox: bool = False,
) -> Judgement:
    """Weigh a kernel, run it where a chip would, and decide."""
    start = time.monotonic()
    most = None if memory is None else int(memory * 2**30)
    notes: list[str] = []
    gone: tuple[Any, ...] = ()
    sizes: dict[str, int] = {}
    faithful, report, not_run = True, Report(()), ""
    share = timeout * SHARE
    with proving.asking(share, memory=most, whole=timeout, sandbox=sandbox) as ask:
        try:
            weighed = ask({"what": "weigh", **source, "chips": tuple(chips), "timeout": share})
            gone, on_chips = tuple(weighed["gone"]), weighed["chips"]
        except (proving.Lost, ValueError) as reason:
            untold = {"verdict": UNDECIDED, "rung": "compile", "why": str(reason)}
            on_chips = [{"chip": chip, **untold} for chip in chips]
        for on in on_chips:
            notes += on.pop("notes", ())
            fails = on.pop("reference_fails", "")
            notes += [f"the reference itself fails: {fails}"] * bool(fails)
            if on.get("verdict") == REFUSED and any(words in on["why"] for words in UNTOLD):
                on["verdict"] = UNDECIDED
            if fails and on.get("verdict") == REFUSED and on["rung"] == "trace":
                on |= {"verdict": UNDECIDED, "why": f"it fails as its reference does: {on['why']}"}
        # Not of a problem that fails by itself, nor of a kernel that no chip would run.
        if any(
            on.get("verdict") in (None, UNDECIDED) and on.get("rung") != "trace" for on in on_chips
        ):
            try:
                loaded = ask({"what": "load", **source})
                sizes, faithful = loaded.get("sizes", {}), loaded.get("faithful", True)
                notes += loaded.get("notes", ())
                report = proving._climb(
                    ask, source, RUNGS, tuple(chips), seed, kernels=loaded["kernels"]
                )
            except (proving.Lost, ValueError) as reason:
                not_run = str(reason)
    decision = _decided(report, name, faithful, not_run)
    notes += [*report.notes, *decision.pop("notes")]
    decided = tuple(_on_chip(on, decision) for on in on_chips)
    seconds = time.monotonic() - start
    return Judgement(name, decided, path, sizes, gone, tuple(dict.fromkeys(notes)), seconds)


def _decided(report: Report, name: str, faithful: bool, not_run: str) -> dict[str, Any]:
    """What the interpreters say of a kernel: fields of OnChip, and notes. `faithful` is whether the
    smaller problem runs the very kernel of the full one, on fewer blocks; `not_run`: why not."""
    failed = [r for r in report.findings if r.status == FAILED and r.rung != "load"]
    wrong = [r for r in failed if not any(words in r.message for words in UNTOLD)]
    ran = {r.kernel for r in report.findings if r.rung != "load"}
    notes = [r.message for r in report.findings if r.status == PARTIAL]
    if ran == {name, name + OWN} and len(missed := {r.kernel for r in wrong}) == 1:
        one, other = (name, name + OWN) if name in missed else (name + OWN, name)
        said = {name: "on values that the judge drew", name + OWN: OWN.strip()}
        notes.append(f"its verdict changes with the values: wrong {said[one]}, right {said[other]}")
    if wrong:
        first = wrong[0]
        failure = {"rung": first.rung, "why": first.message, "where": first.wrote, "notes": notes}
        if faithful:
            return {"verdict": WRONG, **failure}
        words = (
            "it could not be shrunk by whole blocks, and the smaller problem is another one for "
            f"the kernel; it may be right at its one size alone. There: {first.message}"
        )
        return {"verdict": UNDECIDED, **failure, "why": words}
    passed = {r.rung for r in report.findings if r.status in (PASSED, PARTIAL)}
    notes += [f"{r.rung}: {r.message}" for r in report.findings if r.rung not in passed]
    if passed:
        last = max(passed, key=RUNGS.index)
        return {"verdict": RIGHT, "rung": last, "why": "", "where": "", "notes": notes}
    why = next((r.message for r in report.findings), f"it was not run: {not_run}")
    return {"verdict": UNDECIDED, "rung": "interpret", "why": why, "where": "", "notes": notes}


def _on_chip(weighed: dict[str, Any], decision: dict[str, Any]) -> OnChip:
    """The verdict for one chip: the compiler's where it decided, and else the interpreters'."""
    open_ = weighed.get("verdict") == UNDECIDED and decision["verdict"] != WRONG
    if weighed.get("verdict") in (REFUSED, WRONG) or open_:
        return OnChip(**weighed)
    if decision["verdict"] == WRONG:  # a wrong result is no rival, however soon it is there
        weighed = weighed | {"ratio": None, "ahead": ""}
    return OnChip(**(weighed | decision))
