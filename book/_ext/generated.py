"""The pages that nobody writes: {results} and {estimates} from results/, {status} from what the
tests found, {api} from the catalog and the modules themselves."""

import datetime
import html
import importlib
import inspect
import io
import math
import platform
import re
from collections import Counter
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.statemachine import StringList
from jupyter_cache import get_cache
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from kernels.figures import bands, calibration, plots, report, searched, status, store, validation
from kernels.figures import gpu as brackets
from kernels.figures.programs import BARS, BIAS, FAMILIES, OTHER
from kernels.machines.neuron.calibration import PROGRAMS
from kernels.machines.tpu.estimate.bands import FEWEST, LAUNCHED, VALIDATION, none
from kernels.proof.catalog import OPERATORS, RUNGS

DASH = "—"
UNKNOWN = "not found out"
OUTCOMES = ("estimated", "another program", "refused", "not tried")
WORDS = {"partial": "in part"} | {word: word for word in ("passed", "skipped", "failed")}


class details(nodes.General, nodes.Element):
    """What unfolds; its first child is a summary."""


class summary(nodes.General, nodes.TextElement):
    """What is seen of details that are folded."""


def text(*parts, classes=()):
    """A paragraph of strings and nodes."""
    return fill(nodes.paragraph(classes=list(classes)), *parts)


def fill(node, *parts):
    node += [nodes.Text(part) if isinstance(part, str) else part for part in parts]
    return node


def fold(title, *content):
    return fill(details(), fill(summary(), title), *content)


def explained(word, reason):
    """A word with a tooltip."""
    return fill(nodes.abbreviation(explanation=reason), word) if reason else nodes.Text(word)


def table(titles, rows, name):
    """A table; a row of a single cell spans all columns.

    Args:
        titles: strings or nodes, one for each column.
        rows: lists of cells, which are strings or nodes.
        name: its class, beside "generated".

    Returns:
        The node.
    """
    made = nodes.table(classes=["generated", name])
    group = nodes.tgroup(cols=len(titles))
    group += [nodes.colspec(colwidth=1) for _ in titles]
    head, body = nodes.thead(), nodes.tbody()
    for part, lines in ((head, [titles]), (body, rows)):
        for cells in lines:
            line = nodes.row()
            for cell in cells:
                entry = nodes.entry()
                if len(cells) == 1:
                    entry["morecols"] = len(titles) - 1
                    line["classes"] = ["group"]
                entry += cell if isinstance(cell, nodes.Element) else text(cell)
                line += entry
            part += line
    group += [head, body]
    made += group
    return made


class Generated(SphinxDirective):
    """A directive that fills its page with sections."""

    def section(self, title, *content):
        made = nodes.section(ids=[nodes.make_id(title)], names=[nodes.fully_normalize_name(title)])
        made += [fill(nodes.title(), title), *content]
        return made

    def link(self, chapter, words=None):
        """A link to the notebook of a chapter.

        Args:
            chapter: its name, without the number; "" for no link, as of what no chapter is about.
            words: what the link reads; by default the chapter's title.
        """
        return self.to(self.page(chapter), chapter, words) if chapter else nodes.Text(words or "")

    def said(self, operator):
        """What an operator computes, and the chapter about it where there is one."""
        known = (" Chapter: ", self.link(operator.chapter), ".") if operator.chapter else ()
        return f": {operator.summary}.", *known

    def page(self, chapter):
        """The document that is the notebook of a chapter."""
        pages = (name for name in self.env.found_docs if name.startswith("notebooks/"))
        named = (name for name in pages if name.partition("_")[2] == chapter)
        return next(named, f"notebooks/{chapter}")

    def to(self, page, name, words=None):
        """A link to a document.

        Args:
            page: the document, from the book's root.
            name: what it is called where it is not found.
            words: what the link reads; by default the page's title.
        """
        found = addnodes.pending_xref(
            "",
            refdoc=self.env.docname,
            refdomain="std",
            reftype="doc",
            reftarget=f"/{page}",
            refexplicit=bool(words),
            refwarn=True,
        )
        return fill(found, fill(nodes.inline(), words or name))

    def depend(self, *paths):
        for path in paths:
            self.env.note_dependency(str(path))


class Results(Generated):
    """Every figure of results/, a section for each operator."""

    def run(self):
        files = (*report.FIGURES, report.PARTS, report.TRIALS)
        self.depend(*(store.RESULTS / name for name in files))
        known = report.figures()
        parts, trials = report.parts(), report.trials()
        found = []
        for name in dict.fromkeys(group.operator for group in known):
            content = [self.figures([g for g in known if g.operator == name])]
            for title, groups in (("Where the time goes", parts), ("The tuner's trials", trials)):
                own = [group for group in groups if group.operator == name]
                if own:
                    count = sum(len(group.rows) for group in own)
                    content.append(fold(f"{title}: {count} figures", self.figures(own)))
            found.append(self.section(name, self.about(name), *content))
        return found

    def about(self, name):
        operator = OPERATORS[name]
        return text(name, *self.said(operator))

    def figures(self, groups):
        titles = ("implementation", *report.COLUMNS, "against the best other", "of the limit")
        rows = []
        for group in groups:
            rows.append((self.group(group),))
            rows += [self.row(group, row) for row in group.rows]
        return table(titles, rows, "figures")

    def group(self, group):
        words = [fill(nodes.strong(), group.name), " "] if group.name else []
        unit = "" if group.unit == "ms" else f", {group.unit}"
        words += [fill(nodes.inline(classes=["sizes"]), group.details), " on "]
        words += [fill(nodes.strong(), group.chip), unit]
        bounds = dict.fromkeys(group.limits.values())
        for limit in bounds:
            words.append(f". Limit: {report.digits(limit.value)} ms, {limit.why}")
        listed = nodes.bullet_list()
        for rows, kind, said in report.sources(group):
            listed += fill(nodes.list_item(), text(f"{rows}, {kind}: {said}"))
        folded = fold(f"versions and sources, {self.dates(group)}", listed)
        return fill(nodes.container(classes=["problem"]), text(*words), folded)

    def dates(self, group):
        dates = sorted({r.date for row in group.rows for r in row.figures.values()})
        return " to ".join(dict.fromkeys((dates[0], dates[-1])))

    def row(self, group, row):
        figures = [report.told(row.figures.get(kind), DASH) for kind in report.COLUMNS]
        return self.implementation(group, row), *figures, self.ratios(row), self.shares(row)

    def implementation(self, group, row):
        operator = OPERATORS[group.operator]
        entries = {i.name: i for i in operator.implementations}
        entry = entries.get(row.implementation)
        chapter = (entry and entry.chapter) or operator.chapter
        tuning = f" {row.tuning}" if row.tuning else ""
        return text(self.link(chapter, row.implementation), tuning)

    def ratios(self, row):
        def words(kind):
            ratio = row.ratio(kind)
            return ratio and f"{report.digits(ratio)} × {row.others[kind][1]}"

        return self.each(row, words)

    def shares(self, row):
        return self.each(row, lambda kind: report.percent(row.share(kind), ""))

    def each(self, row, words):
        """What there is to say of each kind of figure; the kind is named where there are two."""
        told = {kind: said for kind in row.figures if (said := words(kind))}
        named = len(row.figures) > 1
        cell = nodes.container()
        for kind in report.COLUMNS:
            if kind in told:
                cell += text(f"{kind}: {told[kind]}" if named else told[kind])
        return cell if told else text(DASH)


class Estimates(Generated):
    """How far the estimates are off, from results/validation.csv."""

    def run(self):
        files = VALIDATION, searched.SEARCHED, calibration.ESTIMATED, brackets.FILE
        self.depend(*(store.RESULTS / name for name in files))
        rows = bands.read()
        if not rows:
            return [self.section("Nothing was checked yet", text("python -m kernels validate"))]
        sections = (
            ("Predicted against measured", self.drawn),
            ("How far off, by sort of program", self.sorts),
            ("Where a bar is missed", self.missed),
            ("The bands", self.bands),
            ("The ten worst kinds of row", self.worst),
            ("What has an estimate, and what has none", self.unknown),
        )
        made = [self.section(title, *content(rows)) for title, content in sections]
        made.append(self.section("The tuner's record", *self.tuner()))
        made.append(self.section("A NeuronCore", *self.neuron()))
        return [*made, self.section("GPUs", *self.gpus())]

    def drawn(self, rows):
        told = [row for row in rows if row.error is not None]
        chips = Counter(row.chip for row in told)
        count = ", ".join(f"{n} on {chip}" for chip, n in sorted(chips.items()))
        yield text(
            f"{len(told)} published times: {count}. On the line, an estimate is what was measured; "
            "above it, too slow. Filled marks are of the half kept for testing; circles "
            "are Pallas kernels, squares are XLA's programs. A panel is one chip and one regime: "
            "who wrote what takes most of the time, and what the estimate says binds there."
        )
        yield pictures(plots.predictions(told), "estimated over published times")

    def sorts(self, rows):
        lines, group = [], None
        for (chip, sort, half), of in validation.sorts(rows).items():
            spread, bar = bands.spread(of), BARS[sort]
            if (chip, sort) != group:
                group = chip, sort
                limits = f"bars {bar[0]:.0%} and {bar[1]:.0%}" if bar else "no bar"
                lines.append((text(fill(nodes.strong(), f"{chip}, {sort}"), f": {limits}"),))
            told, reached = (DASH,) * 3, DASH
            if spread:
                bias = f"{round(100 * spread.bias) or 0:+d}%".replace("-", "−").replace("+0", "0")
                told = f"{spread.median:.0%}", f"{spread.most:.0%}", bias
                reached = self.reached(spread, bar) if bar and half == bands.TEST else DASH
            count = spread.rows if spread else 0
            counted = str(count) if count == len(of) else f"{count} of {len(of)}"
            lines.append((half, counted, *told, reached))
        yield text(
            "An error is the estimate over the published time, less one. The middle of the errors' "
            "sizes, what nine in ten of them stay below, and the middle error with its sign, which "
            "is positive where estimates are too slow. A bar is for the half that is a test: the "
            f"most that the first two may be, with a bias of {BIAS:.0%} at most. “3 of 5” rows are "
            "those with an estimate."
        )
        yield table(("half", "rows", "middle", "9 in 10", "bias", "the bar"), lines, "sorts")

    def reached(self, spread, bar):
        kept = (
            ("middle", spread.median <= bar[0]),
            ("9 in 10", spread.most <= bar[1]),
            ("bias", abs(spread.bias) <= BIAS),
        )
        missed = [name for name, held in kept if not held]
        return f"missed: {', '.join(missed)}" if missed else "reached"

    def missed(self, rows):
        lines = []
        for (chip, sort, half), of in validation.sorts(rows).items():
            spread, bar = bands.spread(of), BARS[sort]
            if half != bands.TEST or not spread or not bar:
                continue
            said = self.reached(spread, bar)
            if said == "reached":
                continue
            # A bias is made of rows that no other bar minds.
            most = BIAS if said == "missed: bias" else bar[0]
            beyond = [row for row in of if row.error is not None and abs(row.error) > most]
            beyond.sort(key=lambda row: -abs(row.error))
            reasons = {}
            for row in beyond:
                reasons.setdefault(validation.why(row) or UNKNOWN, []).append(row)
            head = f"{said}; {len(beyond)} of {spread.rows} rows are off by more than {most:.0%}"
            lines.append((text(fill(nodes.strong(), f"{chip}, {sort}: "), head),))
            for why, those in reasons.items():
                told = nodes.bullet_list()
                for row in those:
                    error = f"{row.error:+.0%}".replace("-", "−")
                    times = (report.digits(ms) for ms in (row.published_ms, row.estimated_ms))
                    named = self.named(row)
                    named += nodes.Text(f", published {' ms, estimated '.join(times)} ms: {error}")
                    told += fill(nodes.list_item(), named)
                shown = fill(nodes.container(), text(why), fold("which", told))
                lines.append((str(len(those)), shown))
        if not lines:
            yield text("Every bar is reached.")
            return
        yield text(
            "Of each sort whose bar is missed, the rows of the test half that are off by more than "
            "the middle error may be, or the bias where that alone is missed, by what is known of "
            "the reason. What the chip could not have moved in the published time, or a profile "
            "that is missing, is computed from the row; the rest was found by looking at the "
            "compiled programs."
        )
        yield table(("rows", "why"), lines, "missed")

    def bands(self, rows):
        lines, group = [], None
        for chip, regime in sorted({(row.chip, row.regime) for row in rows if row.regime}):
            if chip != group:
                group = chip
                lines.append((text(fill(nodes.strong(), chip)),))
            found = bands.band(chip, regime, rows)
            count = len(bands.errors(chip, regime, rows))
            lines.append((regime, str(count or DASH), found.text if found else none(count)))
        yield text(
            "Beside an estimate stands where the measured time would lie: between the tenth and "
            f"the ninetieth of a hundred errors of its chip and regime, where {FEWEST} rows "
            "of the test half or more are of that kind. A row whose launch is more than "
            f"{LAUNCHED:.0%} of what was timed is left out: the launch was chosen by such rows. "
            "Of five rows such a band covers on average about half of further programs, of "
            "twenty-six about three quarters."
        )
        yield table(("regime", "test rows", "measured against estimated"), lines, "bands")

    def worst(self, rows):
        told = [row for row in rows if row.error is not None]
        told.sort(key=lambda row: abs(math.log(1 + row.error)), reverse=True)
        worst = {(row.operator, row.implementation, row.chip): row for row in reversed(told)}
        lines = []
        for row in sorted(worst.values(), key=told.index)[:10]:
            figures = report.digits(row.published_ms), report.digits(row.estimated_ms)
            why = validation.why(row)
            error = f"{row.error:+.0%}".replace("-", "−")
            lines += [(self.named(row),), (*figures, error, why or UNKNOWN)]
        yield text("Of each program and chip the worst row, and of these the ten worst, by ratio.")
        yield table(("published, ms", "estimated, ms", "error", "why"), lines, "worst")

    def named(self, row, tuning=None):
        options = {n: v for n, v in row.options.items() if len(str(v)) < 20}
        said = " ".join(f"{n}={v}" for n, v in (*row.sizes.items(), *options.items()))
        return text(
            fill(nodes.strong(), f"{row.operator}, {row.implementation} on {row.chip}: "),
            fill(
                nodes.inline(classes=["sizes"]),
                f"{said} {row.dtype} {row.tuning if tuning is None else tuning}",
            ),
        )

    def counted(self, rows):
        """Per chip and kind: how many rows there are, estimated, refused and left out."""
        known = {row.key: row for row in rows}
        kinds = {}
        for row in validation.published():
            kinds.setdefault(
                (row.chip, FAMILIES[row.operator, row.implementation].name), []
            ).append(known.get(row.key))
        lines, chip = [], None
        for (of, kind), found in sorted(kinds.items()):
            if of != chip:
                chip = of
                lines.append((text(fill(nodes.strong(), chip)),))
            count = Counter(map(self.outcome, found))
            lines.append((kind, *(str(count[name] or DASH) for name in OUTCOMES)))
        yield table(("kind", *OUTCOMES), lines, "counted")

    def outcome(self, row):
        if row is None:
            return "not tried"
        if row.error is not None:
            return "estimated"
        return "another program" if row.reason.startswith(OTHER) else "refused"

    def unknown(self, rows):
        reasons = Counter((row.chip, row.operator, row.reason) for row in rows if row.error is None)
        yield text(
            "“Another program” is the rule above; “refused” is a row without an estimate; “not "
            "tried” a published row that has not been estimated for this page. The order was that "
            "of a hash, but what had been compiled before came first: programs that compile fast "
            "have more than their share."
        )
        yield from self.counted(rows)
        if reasons:
            listed = nodes.bullet_list()
            for (chip, operator, reason), count in sorted(reasons.items()):
                line = text(f"{operator} on {chip}, {count} ×: {reason}")
                listed += fill(nodes.list_item(), line)
            yield fold(f"Why {sum(reasons.values())} rows have no estimate", listed)

    def tuner(self):
        known = searched.found()
        if not known:
            yield text(
                "Nobody has made it yet. ",
                fill(nodes.literal(), "python -m kernels validate --tuner"),
                " ranks tokamax's tunings among others of the same search space, as our tuner "
                "does; a tuning takes the compiler from seconds to a minute, and a problem has ten "
                "of them.",
            )
            return
        tried = {len(each.trials) for each in known}
        yield text(
            f"{len(known)} of {len(searched.problems())} problems were searched so far; they are "
            "of the rows above that are kernels of tokamax. Of each problem "
            f"{' or '.join(map(str, sorted(tried)))} tunings were tried, drawn by a hash from the "
            "space of tokamax's own search, whose fastest one on the hardware is among them; a "
            "place counts only those that have an estimate, so it may be of fewer. "
            f"{' '.join(searched.told(known))} As theirs was the fastest on the chip, such a "
            "difference is an error of the ranking; what our first choice would lose on the chip "
            "is not known."
        )
        if not searched.current():
            command = fill(nodes.literal(), "python -m kernels validate --tuner --fresh")
            yield text("The model has changed since. To rank again: ", command, ".")
        lines = []
        for each in known:
            row, first = each.row, each.trials[0]
            place = f"{each.place} of {each.known}" if each.place else "no estimate"
            loss = DASH if each.loss is None else f"{each.loss:.1%}"
            theirs = report.digits(each.theirs) if each.place else DASH
            lines += [
                (self.named(row, f"theirs: {row.tuning}; our first: {first[0]}"),),
                (report.digits(row.value), theirs, report.digits(first[1]), place, loss),
            ]
        titles = ("published", "theirs, estimated", "our first", "place of theirs", "difference")
        yield text("Times are in ms.")
        yield table(titles, lines, "searched")

    def gpus(self):
        rows = brackets.read()
        if not rows:
            yield text("No published time of a GPU is known here.")
            return
        yield from map(text, brackets.told(rows))
        yield table(brackets.TITLES, brackets.lines(rows), "brackets")
        sources = nodes.bullet_list()
        for source, count in sorted(Counter(row.source for row in rows).items()):
            sources += fill(nodes.list_item(), text(f"{source}: {count} rows"))
        yield fold("Whose times these are", sources)

    def neuron(self):
        yield text(
            "The cost model of a NeuronCore is held against published times of Trn1. A hash of "
            "each kernel settles the half here too. The test is not blind either: the rate of its "
            "DMA engines was known before the halves were made."
        )
        lines = [
            (
                program.text,
                report.digits(program.published_ms),
                report.digits(calibration.estimated(program).value),
                f"{calibration.error(program):+.0%}".replace("-", "−"),
                {"fit": "fitted to"}.get(program.part, program.part),
            )
            for program in sorted(PROGRAMS, key=lambda program: program.part)
        ]
        titles = ("kernel on Trn1", "published, ms", "estimated, ms", "error", "half")
        yield table(titles, lines, "calibration")


def pictures(figures, words):
    """Matplotlib figures as SVG in the page, as many in a line as its width takes.

    Args:
        figures: each with a title.
        words: what all of them show, for who does not see it.
    """
    drawn = "".join(f"<figure>{picture(figure, words)}</figure>" for figure in figures)
    return nodes.raw("", f'<div class="predictions">{drawn}</div>', format="html")


def picture(figure, words):
    """A matplotlib figure as SVG, named by its title and `words`."""
    import matplotlib
    import matplotlib.pyplot as plt

    title = " ".join(figure.axes[0].get_title().split())
    drawn = io.StringIO()
    # The salt keeps the names of clip paths apart: they are of the whole page.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = re.sub(r"<metadata>.*?</metadata>", "", drawn.getvalue(), flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # nobody refers to these, and each figure has them
    label = html.escape(f"{title}: {words}")
    return svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


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
        found, notes, rows = status.findings(), {}, []
        for operator in OPERATORS.values():
            rows.append((text(fill(nodes.strong(), operator.name)),))
            for each in operator.implementations:
                cells = [self.cell(found, notes, operator, each, rung) for rung in RUNGS]
                chapter = each.chapter or operator.chapter
                rows.append((text(self.link(chapter, each.name)), each.backend.name, *cells))
        listed = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
        listed += [fill(nodes.list_item(), self.note(message)) for message in notes]
        return [
            text(self.counted(found)),
            table(("implementation", "written in", *RUNGS), rows, "rungs"),
            *([text("The numbers in the table:"), listed] if notes else []),
        ]

    def counted(self, found):
        """How many rungs ended how, when, where and on what machine, in a sentence or two."""
        claims, here = status.claims(), status.here()
        known = [found[claim] for claim in claims if claim in found]
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

    def cell(self, found, notes, operator, implementation, rung):
        finding = found.get((operator.name, implementation.name, rung))
        if finding is None:
            reason = status.why_empty(implementation, rung)
            word = reason.partition(":")[0]
            return text(explained(word, reason), f" [{self.number(notes, reason)}]")
        told = ", ".join(f"{WORDS[name]} {n}" for name, n in finding.counts.items() if n)
        number = f" [{self.number(notes, finding.message)}]" if finding.message else ""
        classes = [finding.outcome]
        return text(explained(told, finding.message), number, classes=classes)

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
        rows, total = [], 0.0
        for name in sorted(n for n in self.env.found_docs if n.startswith("notebooks/")):
            try:
                path = self.env.doc2path(name)
                record = cache.match_cache_notebook(nbformat.read(path, as_version=4))
            except KeyError:
                told, when = "not run", DASH
            else:
                seconds = record.data.get("execution_seconds")
                told = "lacks an optional package" if seconds is None else f"{seconds:.1f} s"
                total += seconds or 0.0
                when = f"{record.created:%Y-%m-%d %H:%M}"
            rows.append((text(self.to(name, name.partition("/")[2])), told, when))
        return [
            text(f"{len(rows)} notebooks, {total:.0f} s in all, each in a process of its own."),
            table(("notebook", "time", "run"), rows, "times"),
        ]

    def same(self, pinned, installed):
        """What follows a plus, as in 2.13.0+cpu, is a build of the same version."""
        return installed.partition("+")[0] == pinned.partition("+")[0]

    def packages(self):
        found = status.packages()
        self.depend(status.ROOT / "constraints.txt")
        differing = [each for each in found if each[2] and not self.same(*each[1:])]
        missing = sum(not installed for *_, installed in found)
        rows = []
        for name, pinned, installed in found:
            same = self.same(pinned, installed)
            mark = "" if same else "differs" if installed else "not installed"
            rows.append((name, pinned, installed or DASH, mark))
        named = "; ".join(f"{n} {i} instead of {p}" for n, p, i in differing) or "none"
        today = datetime.date.today().isoformat()
        return [
            text(
                f"Python {platform.python_version()}, {status.machine()}, {today}. Of "
                f"{len(found)} pinned packages {missing} are not installed here: extras that were "
                f"not asked for, or packages for other machines. Other versions than pinned: "
                f"{named}."
            ),
            fold(
                f"All {len(found)} packages",
                table(("package", "pinned", "installed", ""), rows, "packages"),
            ),
        ]


# Section → modules; what is in them is found.
AROUND = {
    "The catalog, the ladder and the budget": (
        "kernels.proof.catalog",
        "kernels.proof.ladder",
        "kernels.proof.budget",
        "kernels.proof.workload",
        "kernels.lessons.exercises",
        "kernels.lessons.gallery",
    ),
    "Looking into kernels": (
        "kernels.machines.pallas",
        "kernels.lessons.pictures",
        "kernels.lessons.pictures.plots",
    ),
    "Machines": (
        "kernels.machines.tpu",
        "kernels.machines.tpu.estimate.bands",
        "kernels.machines.gpu",
        "kernels.machines.neuron",
        "kernels.machines.neuron.api",
        "kernels.machines.neuron.linter",
        "kernels.machines.neuron.gpsimd",
        "kernels.machines.taichi",
        "kernels.machines.taichi.assembly",
    ),
    "Records and times": (
        "kernels.figures",
        "kernels.figures.report",
        "kernels.figures.bands",
        "kernels.figures.plots",
        "kernels.figures.programs",
        "kernels.figures.validation",
        "kernels.figures.status",
        "kernels.machines.timing",
        "kernels.figures.wallclock",
    ),
}


class Api(Generated):
    """Every public name: of the operators in the catalog's order, then of what is around them."""

    def run(self):
        folders = dict.fromkeys(operator.package for operator in OPERATORS.values())
        made = [self.section("Operators", *map(self.operators, folders))]
        for title, modules in AROUND.items():
            made.append(self.section(title, *map(self.module, modules)))
        return made

    def operators(self, package):
        """What a folder's operators do, and its public names, the operators first."""
        own = [operator for operator in OPERATORS.values() if operator.package == package]
        listed = nodes.bullet_list()
        for each in own:
            name = fill(nodes.literal(), each.name)
            listed += fill(nodes.list_item(), text(name, *self.said(each)))
        names = dict.fromkeys([each.name for each in own])
        return self.section(package, listed, *self.described(package, names))

    def module(self, name):
        said = inspect.getdoc(importlib.import_module(name)) or ""
        return self.section(name, *self.parsed(said), *self.described(name))

    def described(self, module, first=()):
        """What autodoc says of a module's public names."""
        found = importlib.import_module(module)
        self.depend(found.__file__)
        lines = ["```{eval-rst}"]
        for name in dict.fromkeys([*first, *public(found)]):
            lines += [*documented(f"{module}.{name}", getattr(found, name)), ""]
        return self.parsed("\n".join([*lines, "```"]))

    def parsed(self, source):
        """The nodes of Markdown."""
        made = nodes.container()
        self.state.nested_parse(StringList(source.splitlines(), self.env.docname), 0, made)
        return made.children


def public(module):
    """The names of `__all__`, or else those of the functions and classes that a module defines."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = (
            n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        )
        names = [n for n in own if not n.startswith("_") and inspect.getdoc(getattr(module, n))]
    return names


def documented(path, value):
    """The lines that let autodoc describe a name."""
    if inspect.isclass(value):
        return [f".. autoclass:: {path}", "   :members:"]
    if callable(value):
        return [f".. autofunction:: {path}"]
    told = ", ".join(map(str, value)) if isinstance(value, dict | tuple) else str(value)
    return [f".. py:data:: {path}", "", f"   {told}"]


def _enter(tag):
    return lambda self, node: self.body.append(self.starttag(node, tag, ""))


def _leave(tag):
    return lambda self, node: self.body.append(f"</{tag}>\n")


def setup(app):
    for node in (details, summary):
        app.add_node(node, html=(_enter(node.__name__), _leave(node.__name__)))
    app.add_css_file("generated.css")
    app.add_directive("results", Results)
    app.add_directive("estimates", Estimates)
    app.add_directive("status", Status)
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
