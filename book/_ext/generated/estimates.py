"""{estimates}: how far the estimates are off."""

import html
import io
import math
import re
from collections import Counter

import numpy as np
from docutils import nodes

from kernels.figures import report, store
from kernels.machines.tpu.estimate import bands
from kernels.machines.tpu.estimate.bands import FEWEST, LAUNCHED, VALIDATION, none
from validation import (
    comparisons,
    gpu_rates,
    gpu_times,
    scatter,
    tpu_times,
    trn1_times,
    trn1_units,
    tunings,
)
from validation.tpu_programs import BARS, BIAS, FAMILIES, OTHER
from validation.trn1_kernels import KERNELS

from .parts import DASH, Generated, fill, fold, table, text

UNKNOWN = "not found out"
TRUSTED = 0.2  # what nine errors in ten may be of a sort that somebody in a hurry may trust
ALIKE = 0.01  # of an estimate, by which another compiler's may differ and be the same
OUTCOMES = ("estimated", "another program", "refused", "not tried")


class Estimates(Generated):
    """How far the estimates are off, from results/validation.csv; "briefly", what to trust."""

    optional_arguments = 1

    def run(self):
        files = VALIDATION, tunings.SEARCHED, trn1_times.ESTIMATED, trn1_units.FILE, gpu_times.FILE
        self.depend(*(store.RESULTS / name for name in files))
        rows = comparisons.read()
        if not rows:
            return [self.section("Nothing was checked yet", text("python -m validation tpu"))]
        self.compiler = bands.compiler(rows[0].versions)
        if self.arguments:
            return [*self.briefly(rows)]
        sections = (
            ("Predicted against measured", self.drawn),
            ("How far off, by sort of program", self.sorts),
            ("Where a bar is missed", self.missed),
            ("The bands", self.bands),
            ("Ratios: who is ahead", self.ratios),
            ("Another compiler", self.compilers),
            ("The ten worst kinds of row", self.worst),
            ("What has an estimate, and what has none", self.unknown),
        )
        return [
            *(self.section(title, *content(rows)) for title, content in sections),
            self.section("The tuner's record", *self.tuner()),
            self.section("A NeuronCore", *self.neuron()),
            self.section("GPUs", *self.gpus()),
        ]

    def briefly(self, rows):
        """Two sentences for somebody in a hurry."""
        sorts = {True: {}, False: {}}
        for (chip, sort, half), those in tpu_times.sorts(rows).items():
            spread = comparisons.spread(those)
            if half == bands.TEST and spread and spread.rows >= FEWEST:
                sorts[spread.most <= TRUSTED].setdefault(sort, []).append(chip)
        good, poor = (
            "; ".join(f"{sort} ({', '.join(chips)})" for sort, chips in some.items()) or "nothing"
            for some in sorts.values()
        )
        leads = [
            f"{1 + band.high:.1f} times ({chip})"
            for chip in sorted({row.chip for row in rows})
            if (band := bands.ratio_band(chip, store.RESULTS / VALIDATION, self.compiler))
        ]
        yield text(
            fill(nodes.strong(), f"Trust to within {TRUSTED:.0%}, nine times in ten: "), f"{good}."
        )
        yield text(
            fill(nodes.strong(), "Do not trust: "),
            f"{poor}; any sort that is not named here, of which fewer than {FEWEST} programs were "
            "measured in the half that tests; and a lead of a kernel over XLA's program that is "
            f"estimated at less than {', '.join(leads) or 'nobody knows how much'}.",
        )

    def drawn(self, rows):
        known = [row for row in rows if row.error is not None]
        chips = Counter(row.chip for row in known)
        count = ", ".join(f"{n} on {chip}" for chip, n in sorted(chips.items()))
        yield text(
            f"{len(known)} published times: {count}. On the line, an estimate is what was "
            "measured; above it, too slow. Filled marks are of the half kept for testing; circles "
            "are Pallas kernels, squares are XLA's programs. A panel is one chip and one regime: "
            "who wrote what takes most of the time, and what the estimate says binds there."
        )
        yield pictures(scatter.predictions(known), "estimated over published times")

    def sorts(self, rows):
        lines, group = [], None
        for (chip, sort, half), those in tpu_times.sorts(rows).items():
            spread, bar = comparisons.spread(those), BARS[sort]
            if (chip, sort) != group:
                group = chip, sort
                limits = f"bars {bar[0]:.0%} and {bar[1]:.0%}" if bar else "no bar"
                lines.append((text(fill(nodes.strong(), f"{chip}, {sort}"), f": {limits}"),))
            errors, reached = (DASH,) * 3, DASH
            if spread:
                errors = f"{spread.median:.0%}", f"{spread.most:.0%}", self.signed(spread.bias)
                reached = self.reached(spread, bar) if bar and half == bands.TEST else DASH
            count = spread.rows if spread else 0
            counted = str(count) if count == len(those) else f"{count} of {len(those)}"
            lines.append((half, counted, *errors, reached))
        yield text(
            "An error is the estimate over the published time, less one. The middle of the errors' "
            "sizes, what nine in ten of them stay below, and the middle error with its sign, which "
            "is positive where estimates are too slow. A bar is for the half that is a test: the "
            f"most that the first two may be, with a bias of {BIAS:.0%} at most. “3 of 5” rows are "
            "those with an estimate."
        )
        yield table(("half", "rows", "middle", "9 in 10", "bias", "the bar"), lines, "sorts")

    def signed(self, share):
        return f"{round(100 * share) or 0:+d}%".replace("-", "−").replace("+0%", "0%")

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
        for (chip, sort, half), those in tpu_times.sorts(rows).items():
            spread, bar = comparisons.spread(those), BARS[sort]
            if half != bands.TEST or not spread or not bar:
                continue
            said = self.reached(spread, bar)
            if said == "reached":
                continue
            # A bias is made of rows that no other bar minds.
            most = BIAS if said == "missed: bias" else bar[0]
            beyond = [row for row in those if row.error is not None and abs(row.error) > most]
            beyond.sort(key=lambda row: -abs(row.error))
            reasons = {}
            for row in beyond:
                reasons.setdefault(tpu_times.why(row) or UNKNOWN, []).append(row)
            head = f"{said}; {len(beyond)} of {spread.rows} rows are off by more than {most:.0%}"
            lines.append((text(fill(nodes.strong(), f"{chip}, {sort}: "), head),))
            for why, affected in reasons.items():
                listed = nodes.bullet_list()
                for row in affected:
                    error = f"{row.error:+.0%}".replace("-", "−")
                    times = (report.digits(ms) for ms in (row.published_ms, row.estimated_ms))
                    named = self.named(row)
                    named += nodes.Text(f", published {' ms, estimated '.join(times)} ms: {error}")
                    listed += fill(nodes.list_item(), named)
                shown = fill(nodes.container(), text(why), fold("which", listed))
                lines.append((str(len(affected)), shown))
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
            kind = chip, regime, store.RESULTS / VALIDATION, self.compiler
            band, count = bands.band(*kind), len(bands.errors(*kind))
            lines.append((regime, str(count or DASH), band.text if band else none(count)))
        yield text(
            "Beside an estimate stands where four of five measured times would lie, by the errors "
            f"of its chip and regime, where {FEWEST} rows of the test half or more are of that "
            f"kind. A row whose launch is more than {LAUNCHED:.0%} of what was timed is left out: "
            "the launch was chosen by such rows. "
            "Of n errors in order, the ends are those at a tenth and at nine tenths of n + 1, "
            "between neighbours in proportion: a further error of the same sort falls into each of "
            "the n + 1 gaps equally often, whatever their distribution (split conformal "
            "prediction). Of five to eight errors the ends are the outermost two, which hold two "
            "thirds to seven ninths of further programs on average."
        )
        yield table(("regime", "test rows", "measured against estimated"), lines, "bands")

    def ratios(self, rows):
        lines, file = [], (store.RESULTS / VALIDATION, self.compiler)
        for chip in (*sorted({row.chip for row in rows}), bands.ALL):
            if band := bands.band(chip, bands.RATIO, *file):
                errors = bands.errors(chip, bands.RATIO, *file)
                middle, most = np.quantile(np.abs(errors), (0.5, 0.9))
                bias = self.signed(np.median(errors))
                figures = str(band.rows), f"{middle:.0%}", f"{most:.0%}", bias
                lines.append((chip, *figures, band.text))
        yield text(
            "XLA's programs and kernels err in different directions, so a comparison of the two "
            "has an error of its own. A pair is a kernel and the fastest XLA program of the same "
            "problem, both with a published time, of the test half; its error is that of the "
            "estimated ratio, XLA's time over the kernel's, against the measured one. A positive "
            "error flatters the kernel. The band says where a measured ratio would lie, seen from "
            f"the estimated one. It is a chip's own from {FEWEST} problems on, since pairs of one "
            "problem share XLA's row; else it is of all chips together. Where it holds a ratio of "
            "1, this book says “tie”."
        )
        titles = "chip", "pairs", "middle", "9 in 10", "bias", "measured ratio"
        yield table(titles, lines, "ratios") if lines else text("Too few pairs are known yet.")

    def compilers(self, rows):
        yield text(
            f"Every other error on this page is of {self.compiler}, and so are the programs that "
            "the rates were fitted to. An estimate of another compiler carries the band of its own "
            f"rows where {FEWEST} or more of the test half are of its chip and regime; else it "
            f"carries that of {self.compiler}, and says so."
        )
        for other in comparisons.compilers()[1:]:
            beside, kinds = {row.key: row for row in comparisons.read(compiler=other)}, {}
            for row in rows:
                twin = beside.get(row.key)
                if row.half == bands.TEST and twin and None not in (row.error, twin.error):
                    kinds.setdefault((row.chip, row.regime), []).append((row, twin))
            lines, group = [], None
            for (chip, regime), pairs in sorted(kinds.items()):
                if chip != group:
                    group = chip
                    lines.append((text(fill(nodes.strong(), chip)),))
                spreads = map(comparisons.spread, zip(*pairs, strict=True))
                errors = ((f"{s.median:.0%}", self.signed(s.bias)) for s in spreads)
                count, closer = self.moved(pairs)
                said = f"{count}, {closer} closer" if count else DASH
                lines.append((regime, str(len(pairs)), *sum(errors, ()), said))
            titles = f"{self.compiler}: middle", "bias", f"{other}: middle", "bias", "moved"
            count, closer = self.moved(pair for some in kinds.values() for pair in some)
            fewer = min(closer, count - closer)
            luck = min(1, 2 * sum(math.comb(count, k) for k in range(fewer + 1)) / 2**count)
            yield text(
                f"Of the problems that were compiled with {other} too, those of the test half, by "
                f"the regime that {self.compiler} gives them. An estimate has moved where the two "
                f"are more than {ALIKE:.0%} apart; it is closer where {other} is nearer to what "
                "was measured. "
                f"Of all of them, {count} moved, and {closer} of these are closer: a coin that is "
                f"tossed as often falls at least as unevenly in {luck:.0%} of cases."
            )
            yield table(("regime", "rows", *titles), lines, "compilers")

    def moved(self, pairs):
        """Of how many problems the second compiler's estimate is another, and how many of these
        are closer."""
        apart = [p for p in pairs if abs(p[1].estimated_ms / p[0].estimated_ms - 1) > ALIKE]
        return len(apart), sum(abs(second.error) < abs(first.error) for first, second in apart)

    def worst(self, rows):
        known = [row for row in rows if row.error is not None]
        known.sort(key=lambda row: abs(math.log(1 + row.error)), reverse=True)
        worst = {(row.operator, row.implementation, row.chip): row for row in reversed(known)}
        lines = []
        for row in sorted(worst.values(), key=known.index)[:10]:
            figures = report.digits(row.published_ms), report.digits(row.estimated_ms)
            why = tpu_times.why(row)
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
        for row in tpu_times.published():
            kinds.setdefault(
                (row.chip, FAMILIES[row.operator, row.implementation].name), []
            ).append(known.get(row.key))
        lines, group = [], None
        for (chip, kind), those in sorted(kinds.items()):
            if chip != group:
                group = chip
                lines.append((text(fill(nodes.strong(), chip)),))
            count = Counter(map(self.outcome, those))
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
        known = tunings.rankings()
        if not known:
            yield text(
                "Nobody has made it yet. ",
                fill(nodes.literal(), "python -m validation tuner"),
                " ranks tokamax's tunings among others of the same search space, as our tuner "
                "does; a tuning takes the compiler from seconds to a minute, and a problem has ten "
                "of them.",
            )
            return
        tried = {len(search.trials) for search in known}
        yield text(
            f"{len(known)} of {len(tunings.problems())} problems were searched so far; they are "
            "of the rows above that are kernels of tokamax. Of each problem "
            f"{' or '.join(map(str, sorted(tried)))} tunings were tried, drawn by a hash from the "
            "space of tokamax's own search, whose fastest one on the hardware is among them; a "
            "place counts only those that have an estimate, so it may be of fewer. "
            f"{' '.join(tunings.sentences(known))} As theirs was the fastest on the chip, such a "
            "difference is an error of the ranking; what our first choice would lose on the chip "
            "is not known."
        )
        if not tunings.current():
            command = fill(nodes.literal(), "python -m validation tuner --fresh")
            yield text("The model has changed since. To rank again: ", command, ".")
        lines = []
        for search in known:
            row, first = search.row, search.trials[0]
            place = f"{search.place} of {search.known}" if search.place else "no estimate"
            loss = DASH if search.loss is None else f"{search.loss:.1%}"
            theirs = report.digits(search.theirs) if search.place else DASH
            lines += [
                (self.named(row, f"theirs: {row.tuning}; our first: {first[0]}"),),
                (report.digits(row.value), theirs, report.digits(first[1]), place, loss),
            ]
        titles = ("published", "theirs, estimated", "our first", "place of theirs", "difference")
        yield text("Times are in ms.")
        yield table(titles, lines, "searched")

    def gpus(self):
        rows = gpu_times.read()
        if not rows:
            yield text("No published time of a GPU is known here.")
            return
        yield text(gpu_times.summary(rows))
        yield table(gpu_times.TITLES, gpu_times.lines(rows), "brackets")
        yield text(gpu_rates.summary(rows))
        yield table(gpu_rates.TITLES, list(gpu_rates.lines(rows)), "figures")
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
                kernel.text,
                report.digits(kernel.published_ms),
                report.digits(trn1_times.estimated(kernel).value),
                f"{trn1_times.error(kernel):+.0%}".replace("-", "−"),
                {"fit": "fitted to"}.get(kernel.part, kernel.part),
            )
            for kernel in sorted(KERNELS, key=lambda kernel: kernel.part)
        ]
        titles = ("kernel on Trn1", "published, ms", "estimated, ms", "error", "half")
        yield table(titles, lines, "calibration")
        if not (units := trn1_units.read()):
            return
        held_out = [unit for unit in units if unit.held_out]
        yield text(
            "AWS's own kernels, unchanged, against the latency that its unit tests state, on an "
            f"instance that they do not name: {len(held_out)} were held out, and the median of "
            f"their errors is {trn1_units.median(held_out):.0%}. A latency has a start-up that a "
            f"schedule has not: {trn1_units.START_US} µs, which the shortest of the other rows "
            f"says. Without it the median is {trn1_units.median(held_out, start=0):.0%}."
        )
        lines = [
            [
                *(f"{unit.kernel} {unit.sizes}", unit.dtype, unit.published_us),
                *(f"{unit.estimated_us():.1f}", f"{unit.error():+.0%}".replace("-", "−")),
                "held out" if unit.held_out else "",
            ]
            for unit in units
        ]
        titles = ("kernel of AWS", "dtype", "published, µs", "estimated, µs", "error", "")
        yield table(titles, lines, "units")


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
