"""{results}: every figure of results/, a section for each operator."""

from docutils import nodes

from kernels.figures import report, store
from kernels.proof.catalog import OPERATORS

from .parts import DASH, Generated, fill, fold, table, text


class Results(Generated):
    """Every figure of results/, a section for each operator."""

    def run(self):
        files = (*report.FIGURES, report.PARTS, report.TRIALS)
        self.depend(*(store.RESULTS / name for name in files))
        known = report.figures()
        parts, trials = report.parts(), report.trials()
        sections = []
        for name in dict.fromkeys(group.operator for group in known):
            content = [self.figures([g for g in known if g.operator == name])]
            for title, groups in (("Where the time goes", parts), ("The tuner's trials", trials)):
                own = [group for group in groups if group.operator == name]
                if own:
                    count = sum(len(group.rows) for group in own)
                    content.append(fold(f"{title}: {count} figures", self.figures(own)))
            sections.append(self.section(name, self.about(name), *content))
        return sections

    def about(self, name):
        return text(name, *self.said(OPERATORS[name]))

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
            return ratio and f"{report.digits(ratio)} × {row.others[kind][1]}"

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
