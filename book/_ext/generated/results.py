"""{results}: who is ahead, operator by operator; {results} FOLDER: its ledger, all figures."""

import html
import math

from docutils import nodes

from kernels import tpu
from kernels.figures import report, store
from kernels.proof.catalog import OPERATORS

from .parts import DASH, Generated, fill, fold, table, text

VERDICTS = {1: "ahead", 0: "behind", None: "a tie"}  # of our kernel: where it stands
LEAST, MOST = 0.25, 16  # ratios that the picture shows


def folder(name):
    """The folder of an operator, which its ledger is called after."""
    return OPERATORS[name].package.rpartition(".")[2]


def bests(group):
    """The estimate of the best program of a compiler or library that is no hand-written kernel, and
    of our best kernel; None where the group has not both."""
    entries = {i.name: i for i in OPERATORS[group.operator].implementations}
    known = {False: [], True: []}
    for row in group.rows:
        entry, record = entries.get(row.implementation), row.figures.get("estimated")
        if entry and not entry.shipped_with and record and math.isfinite(record.value):
            known[entry.is_own].append(record)
    best = lambda records: min(records, key=lambda record: record.value)
    return tuple(map(best, known.values())) if all(known.values()) else None


def standings(groups):
    """(group, estimated time of XLA's best program over our best kernel's, verdict), where one rule
    tells who is ahead: the error of such ratios."""
    for group in groups:
        pair = group.unit == "ms" and group.chip in tpu.CHIPS and bests(group)
        if pair and group.quantity == "time" and not group.part:
            times = [record.value for record in pair]
            band = tpu.ratio_band(group.chip, compiler=pair[1].versions)
            yield group, times[0] / times[1], tpu.ahead(times, band)


class Results(Generated):
    """Every figure of results/ of one folder's operators, or where each operator stands."""

    optional_arguments = 1

    def run(self):
        files = (*report.FIGURES, report.PARTS, report.TRIALS, "validation.csv")
        self.depend(*(store.RESULTS / name for name in files))
        known = report.figures()
        names = dict.fromkeys(group.operator for group in known)
        if not self.arguments:
            return [self.overview(name, [g for g in known if g.operator == name]) for name in names]
        (wanted,) = self.arguments
        own = [name for name in OPERATORS if folder(name) == wanted]
        return [self.ledger(name, [g for g in known if g.operator == name]) for name in own]

    def overview(self, name, groups):
        place = f"book/ledger/{folder(name)}"
        link = self.to(place, "ledger", f"The ledger has all {sum(len(g.rows) for g in groups)}.")
        return self.section(name, self.about(name), *self.standing(name, groups), text(link))

    def ledger(self, name, groups):
        content = [self.about(name), *self.standing(name, groups)]
        if not groups:
            content.append(text("No figure is known yet: ", self.command(name), " makes one."))
        for chip in dict.fromkeys(group.chip for group in groups):
            content.append(text(fill(nodes.strong(), chip)))
            content += [self.problem(group) for group in groups if group.chip == chip]
        for title, more in (
            ("Where the time goes", report.parts()),
            ("The tuner's trials", report.trials()),
        ):
            own = [self.problem(group) for group in more if group.operator == name]
            content += [fold(f"{title}: {len(own)} problems", *own)] if own else []
        return self.section(name, *content)

    def command(self, name):
        return fill(nodes.literal(), f"python -m kernels bench {name} --record")

    def about(self, name):
        return text(name, *self.said(OPERATORS[name]))

    def standing(self, name, groups):
        """A sentence and a picture: our kernel beside XLA's best program, on every problem."""
        known = list(standings(groups))
        if not known:
            return
        verdicts = [verdict for *_, verdict in known]
        ahead, behind, ties = (sum(v is verdict for v in verdicts) for verdict in VERDICTS)
        yield text(
            f"Our kernel against XLA's best program on {len(known)} problems that were estimated "
            f"for a TPU: ahead on {ahead}, behind on {behind}, a tie on {ties}, by the ",
            self.to("book/estimates", "", "error of such ratios"),
            ".",
        )
        yield nodes.raw("", strip(name, known), format="html")

    def problem(self, group):
        """A problem in a line, which unfolds to its figures."""
        titles = ("implementation", *report.COLUMNS, "against the best other", "of the limit")
        words = [fill(nodes.strong(), group.name), " "] if group.name else []
        unit = "" if group.unit == "ms" else f", {group.unit}"
        words.append(fill(nodes.inline(classes=["sizes"]), f"{group.details}{unit}"))
        best = group.rows[0]
        kind = next(k for k in reversed(report.COLUMNS) if k in best.figures)
        ratio = best.ratio(kind)
        figure = report.cell(best.figures[kind])
        if figure[-1].isdigit() or figure[-1] == ".":
            figure += " ms"
        words.append(f": {best.name} {figure} {kind}")
        words.append(f", {self.over(best, kind, ratio)}" if ratio else "")
        bounds = dict.fromkeys(group.limits.values())
        limits = [text(f"Limit: {report.digits(b.value)} ms, {b.why}") for b in bounds]
        listed = nodes.bullet_list()
        for rows, sort, said in report.sources(group):
            listed += fill(nodes.list_item(), text(f"{rows}, {sort}: {said}"))
        folded = fold(f"versions and sources, {self.dates(group)}", listed)
        rows = table(titles, [self.row(group, row) for row in group.rows], "figures")
        node = fold("", *limits, rows, folded)
        node["classes"] += ["generated", "problem"]
        fill(node[0], *words)
        return node

    def over(self, row, kind, ratio):
        return f"{report.digits(ratio)} × {row.others[kind][1]}"

    def dates(self, group):
        dates = sorted({r.date for row in group.rows for r in row.figures.values()})
        return " to ".join(dict.fromkeys((dates[0], dates[-1])))

    def row(self, group, row):
        figures = [report.cell(row.figures.get(kind), DASH) for kind in report.COLUMNS]
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
            return ratio and self.over(row, kind, ratio)

        return self.by_kind(row, words)

    def shares(self, row):
        return self.by_kind(row, lambda kind: report.percent(row.share(kind), ""))

    def by_kind(self, row, words):
        """What there is to say of each kind of figure; the kind is named where there are two."""
        remarks = {kind: remark for kind in row.figures if (remark := words(kind))}
        named = len(row.figures) > 1
        cell = nodes.container()
        for kind in report.COLUMNS:
            if kind in remarks:
                cell += text(f"{kind}: {remarks[kind]}" if named else remarks[kind])
        return cell if remarks else text(DASH)


def strip(name, known):
    """A dot for each problem, a line of them for each chip and pass, as SVG: how many times as long
    as our kernel XLA's best program takes. Filled where one of the two is surely ahead."""
    lines = {}
    for group, ratio, verdict in known:
        lines.setdefault((group.chip, group.problem.pass_), []).append((group, ratio, verdict))
    left, width, step = 130, 560, 26
    height = step * len(lines) + 34

    def place(ratio):
        inside = min(max(ratio, LEAST), MOST)
        return left + (width - left - 20) * math.log(inside / LEAST) / math.log(MOST / LEAST)

    drawn = []
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        x, weight = place(tick), 1.5 if tick == 1 else 0.5
        drawn.append(
            f'<path d="M{x:.1f} 4V{height - 28}" stroke="currentColor" stroke-width="{weight}"/>'
            f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{tick:g}×</text>'
        )
    for index, ((chip, way), dots) in enumerate(lines.items()):
        y = 18 + step * index
        drawn.append(f'<text x="0" y="{y + 4}">{html.escape(f"{chip}, {way}")}</text>')
        for group, ratio, verdict in dots:
            fill_in = "none" if verdict is None else "currentColor"
            said = html.escape(f"{group.label}, {chip}: {ratio:.2f}×, {VERDICTS[verdict]}")
            drawn.append(
                f'<circle cx="{place(ratio):.1f}" cy="{y}" r="5" fill="{fill_in}" '
                f'fill-opacity="0.7" stroke="currentColor"><title>{said}</title></circle>'
            )
    label = (
        f"{name}: the time of XLA's best program over that of our kernel, a dot a problem; right "
        "of 1× our kernel takes less; a hollow dot is a tie"
    )
    return (
        f'<figure class="standing" tabindex="0"><svg role="img" aria-label="{html.escape(label)}" '
        f'viewBox="0 0 {width} {height}">{"".join(drawn)}</svg>'
        "<figcaption>Estimated time of XLA’s best program over that of our best kernel, a dot a "
        "problem. Right of 1× our kernel takes less; a hollow dot is a tie.</figcaption></figure>"
    )
