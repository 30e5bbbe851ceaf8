"""{judged} WHAT …: how good the judge is against what a chip said of the same kernels, a method of
JudgeRecord for each word."""

import html
from collections import Counter
from statistics import median

from docutils import nodes

from kernels.figures import store
from validation import judged

from .parts import DASH, Generated, fill, fold, table, text

SHADES = {  # of the outcomes that the picture shows
    judged.CAUGHT: 1.0,
    judged.AGREED: 0.72,
    judged.MISSED: 0.52,
    judged.HIDDEN: 0.38,
    judged.ALARM: 0.25,
    judged.OPEN: 0.1,
    judged.ALONE: 0.0,
}
LAUNCH = 0.1  # milliseconds of a launch, which a clock around a Python call measures too


class JudgeRecord(Generated):
    """The judge's verdicts beside a v6e's, from results/judged.csv."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        self.depend(store.RESULTS / judged.FILE)
        rows = judged.read()
        if not rows:
            return [text("Nothing was judged yet: python -m validation judged")]
        parts = self.arguments[0].split()
        return [node for part in parts for node in getattr(self, part)(rows)]

    def briefly(self, rows):
        """Three verdicts, and how often the chip said the same."""
        count = Counter(row.outcome for row in rows)
        bad = count[judged.CAUGHT] + count[judged.HIDDEN] + count[judged.ALARM]
        good = count[judged.AGREED] + count[judged.MISSED]
        yield text(
            fill(nodes.strong(), "Trust its “refused” and its “wrong”: "),
            f"of {bad} kernels that the chip decided too, it agrees on {count[judged.CAUGHT]}. ",
            fill(nodes.strong(), "Trust its “right” almost as much: "),
            f"of {good}, the chip agrees on {count[judged.AGREED]}, though these are few.",
        )
        shares, _ = shorter(rows)
        yield text(
            fill(nodes.strong(), "Do not trust its times: "),
            f"of {len(shares)} estimates {sum(share < 1 for share in shares)} are too short"
            + f", down to {min(shares):.2f} of what was measured." * bool(shares),
        )

    def picture(self, rows):
        yield nodes.raw("", bars(judged.by_rung(rows)), format="html")

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
            "judge did, because the set's harness ran out of memory or of time, or another process "
            "held the chip. "
            f"Of {sum(row.reason.startswith(judged.LATE) for row in rows)} that the judge did not "
            "decide, the compiler was not done in its time, on a machine that had other work."
            + f" {whole[judged.LATER]} were not judged yet."
            * bool(whole[judged.LATER])
        )
        yield table(["rung", *seen], lines, "judged")

    def against(self, rows):
        kinds = judged.MISSED, judged.ALARM, judged.HIDDEN, judged.OPEN
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
        zeros = [row for row in right if row.zeros]
        hidden = [row.kernel for row in rows if row.changes]
        ours = Counter(row.ours for row in zeros)
        yield text(
            f"The set calls {len(right)} of these kernels right. Its harness sets no weights: they "
            "are what the constructor of a problem makes, and the constructors of "
            f"{sum(bool(row.zeros) for row in rows) or 'none'} of the {len(rows)} problems make "
            "zeros alone. There a kernel passes that ignores its input. Of the kernels called "
            f"right, {len(zeros) or 'none'} had such weights. The judge draws weights itself: it "
            f"finds {ours[judged.WRONG] or 'none'} of these wrong and "
            f"{ours['right'] or 'none'} right, and did not decide {ours[judged.UNDECIDED]}."
        )
        yield text(
            "Of a kernel that it ran on the values of the file and on its own, the verdict changed "
            f"with the values for {len(hidden) or 'none'}"
            + (f": {', '.join(hidden)}. " if hidden else ". ")
            + f"{sum(row.alone for row in rows) or 'None'} failed at a smaller size that is no "
            "whole number of its blocks, and nowhere else; of such a kernel the judge says that it "
            "may be right at its one size alone, and decides nothing."
        )

    def times(self, rows):
        shares, by_xla = shorter(rows)
        if not shares:
            yield text("None was timed.")
            return
        yield text(
            f"Estimated and measured times are known of {len(shares)} kernels. Estimated too "
            f"short: {sum(share < 1 for share in shares)} of them, at {spread(shares)}. XLA's "
            f"programs for the same problems are at {spread(by_xla)}. A kernel took up to "
            f"{1 / min(shares):.1f} times as long as estimated."
        )
        shares, by_xla = shorter(rows, LAUNCH)
        yield text(
            "The measured times are of a clock around a Python call, so each includes a launch. "
            f"Were that {LAUNCH} ms in each, the middle would be {median(shares):.2f} for the "
            f"kernels and {median(by_xla):.2f} for XLA's programs."
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
        yield fold(f"All {len(rows)} kernels", table(titles, lines, "judged-all"))


def shorter(rows, launch=0.0):
    """Estimated over measured times, of kernels and of XLA's programs for the same problems; from
    the measured ones `launch` is taken off, in milliseconds."""
    fields = "ours_ms", "their_ms", "reference_ms", "their_reference_ms"
    timed = [row for row in rows if all(getattr(row, field) for field in fields)]
    shares = [float(row.ours_ms) / (float(row.their_ms) - launch) for row in timed]
    by_xla = [float(r.reference_ms) / (float(r.their_reference_ms) - launch) for r in timed]
    return shares, by_xla


def spread(shares):
    """The least, the largest and the middle, in words."""
    ends = f"{min(shares):.2f} to {max(shares):.2f} of what was measured"
    return f"{ends}, in the middle {median(shares):.2f}"


def why(row):
    """The judge's reason, and names that are gone, where they are it."""
    if row.gone and row.rung == "trace":
        return f"our JAX has no {row.gone.rpartition('.')[2]} any more, and theirs had"
    return row.reason or "the interpreters pass it"


def bars(counts):
    """A bar for each rung, cut by outcome, as SVG."""
    left, width, step = 100, 640, 26
    longest = max(sum(count.values()) for count in counts.values())
    drawn, said, y = [], [], 4
    for rung, count in counts.items():
        x = left
        drawn.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{rung}</text>')
        for outcome, shade in SHADES.items():
            if not count[outcome]:
                continue
            wide = (width - left - 10) * count[outcome] / longest
            words = f"{rung}, {outcome}: {count[outcome]}"
            said.append(words)
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="20" fill="currentColor" '
                f'fill-opacity="{shade}" stroke="currentColor"><title>{html.escape(words)}</title>'
                "</rect>"
            )
            x += wide
        y += step
    seen = [name for name in SHADES if any(count[name] for count in counts.values())]
    for outcome in seen:
        drawn.append(
            f'<rect x="{left}" y="{y + 4}" width="14" height="14" fill="currentColor" '
            f'fill-opacity="{SHADES[outcome]}" stroke="currentColor"/>'
            f'<text x="{left + 20}" y="{y + 16}">{outcome}</text>'
        )
        y += 20
    label = "How many kernels were decided at each rung: " + "; ".join(said)
    return (
        f'<figure class="standing" tabindex="0"><svg role="img" aria-label="{html.escape(label)}" '
        f'viewBox="0 0 {width} {y + 4}">{"".join(drawn)}</svg><figcaption>The rung at which each '
        "kernel was decided, and what the chip said of it.</figcaption></figure>"
    )
