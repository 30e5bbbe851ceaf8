"""{status}: what the tests found, how long the notebooks take, and what is installed."""

import datetime
import platform
from collections import Counter
from pathlib import Path

import nbformat
from docutils import nodes
from failures import failures
from jupyter_cache import get_cache

from kernels.figures import status
from kernels.proof.catalog import OPERATORS, RUNGS

from .parts import DASH, Generated, explained, fill, fold, table, text

WORDS = {"partial": "in part"} | {word: word for word in ("passed", "skipped", "failed")}


class Status(Generated):
    """What the tests found, how long the notebooks take, and what is installed."""

    def run(self):
        self.env.note_reread()  # notebooks and tests run between two builds
        return [
            self.section("Rungs", *self.rungs()),
            self.section("Notebooks", *self.notebooks()),
            self.section("Packages", *self.packages()),
        ]

    def rungs(self):
        findings, notes, rows = status.results(), {}, []
        for operator in OPERATORS.values():
            rows.append((text(fill(nodes.strong(), operator.name)),))
            for entry in operator.implementations:
                cells = [self.cell(findings, notes, operator, entry, rung) for rung in RUNGS]
                name = text(self.link(entry.chapter or operator.chapter, entry.name))
                rows.append((name, entry.backend.name, *cells))
        listed = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
        listed += [fill(nodes.list_item(), self.note(message)) for message in notes]
        return [
            text(self.counted(findings)),
            table(("implementation", "written in", *RUNGS), rows, "rungs"),
            *([text("The numbers in the table:"), listed] if notes else []),
        ]

    def counted(self, findings):
        """How many rungs ended how, when, where and on what machine, in a sentence or two."""
        claims, here = status.claims(), status.here()
        known = [findings[claim] for claim in claims if claim in findings]
        count = Counter(finding.outcome for finding in known)
        count["not run"] = len(claims) - len(known)
        said = ", ".join(f"{number} {name}" for name, number in count.items() if number)
        if not known:
            return f"{len(claims)} rungs are claimed: {said}."
        days = sorted(finding.date for finding in known)
        when = " to ".join(dict.fromkeys((days[0], days[-1])))
        machines = "; ".join(dict.fromkeys(finding.machine for finding in known))
        local = sum(claim in here for claim in claims)
        where = {0: "kept with the book", len(known): "by the tests of this checkout"}.get(
            local, f"{local} by the tests of this checkout, the others kept with the book"
        )
        return f"{len(claims)} rungs are claimed: {said}. {machines}; {when}; {where}."

    def cell(self, findings, notes, operator, implementation, rung):
        finding = findings.get((operator.name, implementation.name, rung))
        if finding is None:
            reason = status.why_empty(implementation, rung)
            word = reason.partition(":")[0]
            return text(explained(word, reason), f" [{self.number(notes, reason)}]")
        counts = ", ".join(f"{WORDS[name]} {n}" for name, n in finding.counts.items() if n)
        number = f" [{self.number(notes, finding.message)}]" if finding.message else ""
        classes = [finding.outcome]
        return text(explained(counts, finding.message), number, classes=classes)

    def note(self, message):
        """A reason; a command in it is set as one."""
        said, python, command = message.partition("python -m")
        return text(said, *([fill(nodes.literal(), python + command)] if python else []))

    def number(self, notes, message):
        return notes.setdefault(message, len(notes) + 1)

    def notebooks(self):
        root = Path(self.env.srcdir)
        cache = get_cache(
            self.config.nb_execution_cache_path or str(root / "_build/.jupyter_cache")
        )
        failed = failures(self.env.app)
        rows, total = [], 0.0
        for name in sorted(n for n in self.env.found_docs if n.startswith("notebooks/")):
            try:
                path = self.env.doc2path(name)
                record = cache.match_cache_notebook(nbformat.read(path, as_version=4))
            except KeyError:
                error = failed.get(name)
                time = f"failed at code cell {error['cell']}" if error else "not run"
                when = DASH
            else:
                seconds = record.data.get("execution_seconds")
                time = "lacks an optional package" if seconds is None else f"{seconds:.1f} s"
                total += seconds or 0.0
                when = f"{record.created:%Y-%m-%d %H:%M}"
            rows.append((text(self.to(name, name.partition("/")[2])), time, when))
        return [
            text(f"{len(rows)} notebooks, {total:.0f} s in all, each in a process of its own."),
            table(("notebook", "time", "run"), rows, "times"),
        ]

    def same(self, pinned, installed):
        """What follows a plus, as in 2.13.0+cpu, is a build of the same version."""
        return installed.partition("+")[0] == pinned.partition("+")[0]

    def packages(self):
        packages = status.packages()
        self.depend(status.ROOT / "constraints.txt")
        differing = [row for row in packages if row[2] and not self.same(*row[1:])]
        missing = sum(not installed for *_, installed in packages)
        rows = []
        for name, pinned, installed in packages:
            same = self.same(pinned, installed)
            mark = "" if same else "differs" if installed else "not installed"
            rows.append((name, pinned, installed or DASH, mark))
        named = "; ".join(f"{n} {i} instead of {p}" for n, p, i in differing) or "none"
        today = datetime.date.today().isoformat()
        return [
            text(
                f"Python {platform.python_version()}, {status.machine()}, {today}. Of "
                f"{len(packages)} pinned packages {missing} are not installed here: extras that "
                "were not asked for, or packages for other machines. Other versions than pinned: "
                f"{named}."
            ),
            fold(
                f"All {len(packages)} packages",
                table(("package", "pinned", "installed", ""), rows, "packages"),
            ),
        ]
