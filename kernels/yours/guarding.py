"""Guard kernels in CI: fail when an estimate grows, or a rung is lost, against a baseline."""

import json
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from kernels.figures.table import Table, format_seconds
from kernels.machines.cache import digest
from kernels.machines.checks import fail, one_of, positive_int
from kernels.yours.explaining import explain_file
from kernels.yours.explanation import Refusal
from kernels.yours.machines import machine
from kernels.yours.proving import RUNGS as ALL
from kernels.yours.proving import declared_in, prove_file

RUNGS = ("interpret", "compile")
FORM = 1  # of the baseline


@dataclass(frozen=True)
class Guarded:
    """What guarding found."""

    # Of each kernel, bucket and chip: its name and shapes, the chip, seconds before and now (None
    # where there are none), and which rungs hold.
    lines: tuple[tuple[str, str, float | None, float | None, tuple[str, ...]], ...]
    losses: tuple[str, ...] = ()  # what fails, a sentence each
    notes: tuple[str, ...] = ()  # what is worth knowing besides

    def table(self, caption: str = "") -> Table:
        """What was and what is."""
        shown = lambda value: "" if value is None else format_seconds(value)
        change = lambda was, now: f"{now / was - 1:+.1%}" if was and now is not None else ""
        rows = [
            (name, chip, shown(was), shown(now), change(was, now), ", ".join(rungs))
            for name, chip, was, now, rungs in self.lines
        ]
        columns = ("kernel", "chip", "was", "is", "change", "rungs")
        return Table(columns, rows, caption, right=("was", "is", "change"))

    def markdown(self) -> str:
        """The table for a pull request."""
        lines = ["### Estimates and rungs against the baseline", "", self.table().markdown(), ""]
        lines += [f"- **FAILED** {words}" for words in self.losses]
        return "\n".join(lines).rstrip() + "\n"


def guard(
    baseline: Path,
    files: Sequence[tuple[str, str]] = (),
    *,
    shapes: Sequence[str] = (),
    update: bool = False,
    percent: float = 2.0,
    chips: Sequence[str] = (),
    rungs: Sequence[str] = RUNGS,
    timeout: float = 120.0,
    jobs: int = 1,
    progress: Callable[..., None] = lambda words, ended=False: None,
) -> Guarded:
    """Estimate and prove the kernels of a baseline again, and compare; ValueError for a baseline
    that cannot be read, or is not there and not to be written.

    An estimate that grew under another compiler, while the kernel's file and what it imports beside
    it stayed what they were, is the upgrade's doing: it is told, and is no loss.

    Args:
        baseline: a JSON file; the files in it are named from its folder.
        files: path and name each, of files that `kernels.proves` marks; where there are none, the
            kernels of the baseline, each for its chips there, and no others of their files.
        shapes: buckets, each as `--args` has it, of which each kernel is estimated; those of the
            baseline where there are none, or what the kernel's mark draws.
        update: write the baseline with what is found.
        percent: how much an estimate may grow.
        chips, rungs: that are guarded, those that each kernel names where empty, and proven.
        timeout: seconds for a compilation.
        jobs: how many estimates are made at a time.
        progress: hears what is tried next and, with ended=True, what a rung found.
    """
    for rung in rungs:
        one_of("rung", rung, ALL)
    positive_int("jobs", jobs)
    known = _read(baseline, update)
    folder = baseline.resolve().parent
    lines, losses, notes = [], [], []
    if as_it_was := not files:
        paths = dict.fromkeys(entry["file"] for entry in known.values())
        if not paths:
            fail("files", "left out", "FILE.py, since the baseline names none")
        missing = [path for path in paths if not (folder / path).is_file()]
        if not update:
            losses = [f"{path} is in the baseline, and is gone" for path in missing]
        files = [(str(folder / path), "") for path in paths if path not in missing]
    entries: dict[str, dict[str, Any]] = {}
    questions: list[tuple[str, str, str, str]] = []  # path, kernel, shapes and chip of each entry
    reasons: list[dict[str, str]] = []
    for path, name in files:
        inside = os.path.relpath(Path(path).resolve(), folder)
        kernels, source = declared_in(path, name), _source(Path(path).resolve())
        for kernel, own in kernels:
            stem = f"{inside}:{kernel}@"
            old = dict.fromkeys(k[len(stem) :].split()[0] for k in known if k.startswith(stem))
            if as_it_was and not old:
                continue
            limits: dict[str, Any] = dict(timeout=timeout, progress=progress)
            targets = tuple(chips or (as_it_was and old) or own)
            report = prove_file(path, kernel, rungs=tuple(rungs), chips=targets, **limits)
            statuses = ((rung, {r.status for r in report.of(kernel, rung)}) for rung in rungs)
            held = [rung for rung, those in statuses if those and those <= {"passed", "partial"}]
            why = {r.rung: r.message for r in report.findings if r.kernel == kernel and r.message}
            buckets = [e.get("shapes", "") for key, e in known.items() if key.startswith(stem)]
            for chip in targets:
                for bucket in dict.fromkeys(shapes or buckets or [""]):
                    questions.append((path, kernel, bucket, chip))
                    reasons.append(why)
                    entry = {"file": inside, "seconds": None, "rungs": held, "shapes": bucket}
                    entry |= {"source": source, "compiler": machine(chip).ready()}
                    entries[f"{stem}{chip} {bucket}".rstrip()] = entry

    def explained(question: tuple[str, str, str, str]) -> Any:
        path, kernel, bucket, chip = question
        progress(f"{kernel} {bucket}: estimated for {chip}")
        return explain_file(path, kernel, bucket, chip=chip, timeout=timeout).facts

    with ThreadPoolExecutor(jobs) as threads:
        everything = zip(entries.items(), questions, reasons, threads.map(explained, questions))
        for (key, entry), (_, kernel, bucket, chip), why, facts in everything:
            now, refusal = getattr(facts, "seconds", None), getattr(facts, "on_data", "")
            name = f"{kernel} {bucket}".rstrip()
            title, held = f"{name} on {chip}", entry["rungs"]
            if isinstance(facts, Refusal):
                refusal = f"compiles no more: {facts.error['message']}"
            elif refusal:
                notes.append(f"{title} has no estimate to guard: {refusal}")
            was = known.get(key, {})
            before = was.get("seconds")
            lines.append((name, chip, before, now, tuple(held)))
            entry["seconds"] = now
            if update:
                continue
            if not was:
                notes.append(f"{title} is not in the baseline; --update adds it")
                continue
            losses += [
                f"{title} lost the rung {rung}: {why.get(rung, 'not climbed')}"
                for rung in was["rungs"]
                if rung in rungs and rung not in held
            ]
            if before is None:
                continue
            if now is None:
                losses.append(f"{title} {refusal or 'has no estimate any more'}")
            elif now > before * (1 + percent / 100):
                words = f"{title} is estimated {now / before - 1:.1%} slower"
                compilers = was.get("compiler"), entry["compiler"]
                if None in compilers or compilers[0] == compilers[1]:
                    losses.append(f"{words}, {percent:g}% is allowed")
                    continue
                words += f" by {compilers[1]} than by {compilers[0]}"
                if was.get("source") == entry["source"]:
                    notes.append(
                        f"{words}: an upgrade, its source is as it was; --update accepts it"
                    )
                else:
                    losses.append(f"{words}, and its source has changed too: guard one at a time")
    whole = {os.path.relpath(Path(path).resolve(), folder) for path, _ in files}
    for key in known.keys() - entries.keys():
        gone = known[key]["file"] in whole and not any(name for _, name in files)
        asked = not chips or key.rpartition("@")[2].split()[0] in chips
        if gone and asked and not (update or shapes):
            losses.append(f"{key} is in the baseline, and is gone")
    if update:
        others = {
            key: entry
            for key, entry in known.items()
            if entry["file"] not in whole and (folder / entry["file"]).is_file()
        }
        _store(baseline, others | entries)
    return Guarded(tuple(lines), tuple(losses), tuple(notes))


def _source(path: Path) -> str:
    """A digest of a file and of what it imports that is not installed."""
    installed = ("-packages", ".zip", "lib-dynload", sysconfig.get_path("stdlib"))
    folders = [str(path.parent), *(p for p in sys.path if not p.endswith(installed))]
    finder = ModuleFinder(folders, excludes=["kernels"])
    finder.run_script(str(path))
    files = (vars(module)["__file__"] for _, module in sorted(finder.modules.items()))
    return digest(*(Path(file).read_bytes() for file in files if file))


def _read(baseline: Path, update: bool) -> dict[str, dict[str, Any]]:
    if not baseline.exists():
        if update:
            return {}
        fail("--baseline", baseline, "a file that there is; --update writes one")
    try:
        content = json.loads(baseline.read_text(encoding="utf-8"))
        entries = content["kernels"]
        if content["form"] != FORM or not all(map(_is_entry, entries.values())):
            raise KeyError
        return entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        fail("--baseline", baseline, "a file that guard --update wrote")


def _is_entry(value: Any) -> bool:
    """Whether a value of a baseline has what _store writes of a kernel."""
    rungs, seconds = value["rungs"], value.get("seconds")
    return (
        isinstance(value["file"], str)
        and isinstance(rungs, list)
        and all(isinstance(rung, str) for rung in rungs)
        and all(isinstance(value.get(k, ""), str) for k in ("shapes", "source", "compiler"))
        and (seconds is None or (type(seconds) in (int, float) and seconds >= 0))
    )


def _store(baseline: Path, entries: dict[str, dict[str, Any]]) -> None:
    content = {"form": FORM, "kernels": dict(sorted(entries.items()))}
    part = baseline.with_suffix(".part")
    try:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(part, baseline)
    except OSError as error:
        fail("--baseline", baseline, f"one that can be written ({error.strerror})")
