"""{judged}: how good the judge is, by rung, against what a chip said of the same kernels."""

from collections import Counter
from statistics import median

from kernels.figures import store
from validation import judged

from .parts import DASH, Generated, fold, table, text


class JudgeRecord(Generated):
    """The judge's verdicts beside a v6e's, from results/judged.csv."""

    def run(self):
        self.depend(store.RESULTS / judged.FILE)
        rows = judged.read()
        if not rows:
            return [self.section("Nothing was judged yet", text("python -m validation judged"))]
        sections = (
            ("By rung", self.by_rung),
            ("What was missed, and what was refused though right", self.against),
            ("What the set's own verdict is worth", self.worth),
            ("How long it would take", self.times),
            ("Every kernel", self.every),
        )
        return [self.section(title, *content(rows)) for title, content in sections]

    def by_rung(self, rows):
        counts = judged.by_rung(rows)
        seen = [words for words in judged.OUTCOMES if any(c[words] for c in counts.values())]
        lines = [[rung, *[str(count[w] or DASH) for w in seen]] for rung, count in counts.items()]
        whole = Counter(row.outcome for row in rows)
        lines.append(["all", *[str(whole[words]) for words in seen]])
        open_ = judged.OPEN, judged.ALONE, judged.LATER
        decided = [row for row in rows if row.outcome not in open_]
        with_chip = sum(row.outcome in (judged.CAUGHT, judged.AGREED) for row in decided)
        caught = [row for row in rows if row.outcome == judged.CAUGHT]
        refused = sum(row.ours == judged.REFUSED for row in caught)
        yield text(
            f"Of {len(rows)} kernels the chip and the judge both decided {len(decided)}; they "
            f"agree on {with_chip}. Of the {len(caught)} caught, {refused} are refused when they "
            f"are traced, lowered or compiled (wrong results: {len(caught) - refused}); "
            f"{whole[judged.AGREED]} kernels are right on both. "
            f"{whole[judged.OPEN]} the judge did not decide, and {whole[judged.ALONE]} only the "
            "judge did: the set's harness ran out of memory or of time, or another process held "
            "the chip." + f" {whole[judged.LATER]} were not judged yet." * bool(whole[judged.LATER])
        )
        yield table(["rung", *seen], lines, "judged")

    def against(self, rows):
        kinds = judged.MISSED, judged.ALARM, judged.OPEN
        lines = [
            [row.outcome, row.kernel, row.theirs, f"{row.ours}, {row.rung}", why(row)]
            for kind in kinds
            for row in rows
            if row.outcome == kind
        ]
        if not lines:
            yield text("Nothing was.")
            return
        yield table(["", "kernel", "on the chip", "the judge", "why"], lines, "against")

    def worth(self, rows):
        right = [row for row in rows if row.theirs == judged.RIGHT]
        zeros = [row for row in rows if row.zeros]
        hidden = [row.kernel for row in rows if row.changes]
        of_right = sum(row in zeros for row in right)
        yield text(
            f"The set calls {len(right)} of these kernels right. Of {of_right} of them the problem "
            "has weights that are all zeros, so that a kernel passes which ignores its input; of "
            f"all that the judge could run, it is {len(zeros)}. The judge draws weights and "
            "values, and its verdict is another one than on the file's own values for "
            f"{len(hidden)}" + (f": {', '.join(hidden)}." if hidden else ".")
        )

    def times(self, rows):
        fields = "ours_ms", "their_ms", "reference_ms", "their_reference_ms"
        timed = [row for row in rows if all(getattr(row, field) for field in fields)]
        if not timed:
            yield text("None was timed.")
            return
        shares = [float(row.ours_ms) / float(row.their_ms) for row in timed]
        by_xla = [float(row.reference_ms) / float(row.their_reference_ms) for row in timed]
        yield text(
            f"Estimated and measured times are known of {len(timed)} kernels. Estimated too "
            f"short: {sum(share < 1 for share in shares)} of them, at {spread(shares)}. XLA's "
            f"programs for the same problems are at {spread(by_xla)}. This verdict is the judge's "
            f"weakest: a kernel took up to {1 / min(shares):.1f} times as long as estimated."
        )

    def every(self, rows):
        ms = lambda value: f"{float(value):.3g}" if value else DASH
        lines = [
            [
                *(row.kernel, row.theirs, ", ".join(filter(None, (row.ours, row.rung))) or DASH),
                *(ms(row.ours_ms), ms(row.their_ms), ms(row.reference_ms)),
                ms(row.their_reference_ms),
            ]
            for row in rows
        ]
        titles = ["kernel", "on the chip", "the judge", "estimated, ms", "measured, ms"]
        titles += ["XLA estimated, ms", "XLA measured, ms"]
        yield text(
            "The times that were measured are of a wall clock around a Python call, so that a "
            "launch is in each; the estimates are of the chip's own time."
        )
        yield fold(f"All {len(rows)} kernels", table(titles, lines, "judged-all"))


def spread(shares):
    """The least, the largest and the middle, in words."""
    ends = f"{min(shares):.2f} to {max(shares):.2f} of what was measured"
    return f"{ends}, in the middle {median(shares):.2f}"


def why(row):
    """The judge's reason, and names that are gone, where they are it."""
    if row.gone and row.rung == "trace":
        return f"our JAX has no {row.gone.rpartition('.')[2]} any more, and theirs had"
    return row.reason or "the interpreters pass it"
