"""{estimates} WHAT …: how far the estimates are off, a method of Estimates for each word."""

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
ENDS = (1 - bands.SHARE) / 2, (1 + bands.SHARE) / 2  # of a band, as its rule has them
EXAMPLE = 1.3  # an estimated ratio
OUTCOMES = ("estimated", "another program", "refused", "not tried")


class Estimates(Generated):
    """How far the estimates are off, from results/validation.csv."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        files = VALIDATION, tunings.SEARCHED, trn1_times.ESTIMATED, trn1_units.FILE, gpu_times.FILE
        self.depend(*(store.RESULTS / name for name in files))
        rows = comparisons.read()
        if not rows:
            return [text("Nothing was checked yet: python -m validation tpu")]
        self.compiler = bands.compiler(rows[0].versions)
        parts = self.arguments[0].split()
        return [node for part in parts for node in getattr(self, part)(rows)]

    def tested(self, rows):
        """(sort, chip) → the spread of errors, where enough rows are of the half that tests."""
        spreads = {
            (sort, chip): comparisons.spread(those)
            for (chip, sort, half), those in tpu_times.sorts(rows).items()
            if half == bands.TEST
        }
        return {
            key: spreads[key]
            for key in sorted(spreads, key=lambda key: ([*BARS].index(key[0]), key[1]))
            if spreads[key] and spreads[key].rows >= FEWEST
        }

    def briefly(self, rows):
        """Two sentences for somebody in a hurry."""
        sorts, leads = {True: {}, False: {}}, {}
        for (sort, chip), spread in self.tested(rows).items():
            sorts[spread.most <= TRUSTED].setdefault(sort, []).append(chip)
        for chip in sorted({row.chip for row in rows}):
            if band := bands.ratio_band(chip, store.RESULTS / VALIDATION, self.compiler):
                leads.setdefault(f"{1 + band.high:.1f} times", []).append(chip)
        good, poor, least = (
            "; ".join(f"{name} ({', '.join(chips)})" for name, chips in some.items())
            for some in (sorts[True], sorts[False], leads)
        )
        yield text(
            fill(nodes.strong(), f"Trust to within {TRUSTED:.0%}, nine times in ten: "),
            f"{good or 'nothing'}.",
        )
        yield text(
            fill(nodes.strong(), "Do not trust: "),
            f"{poor or 'nothing'}; any sort that is not named here, of which fewer than {FEWEST} "
            "programs were measured in the half that tests; and a lead of a kernel over XLA's "
            f"program that is estimated at less than {least or 'nobody knows how much'}.",
        )

    def picture(self, rows):
        yield nodes.raw("", bars(self.tested(rows)), format="html")

    def programs(self, rows):
        """Which families of rows a sort holds."""
        sorts = {}
        for family in FAMILIES.values():
            sorts.setdefault(family.sort, []).append(family.name)
        lines = [(sort, ", ".join(sorted(sorts[sort]))) for sort in BARS]
        yield fold(
            "The programs of each sort, by name", table(("sort", "programs"), lines, "kinds")
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
            "The middle of the errors' sizes; what nine in ten of them stay below; and the bias, "
            "which is the middle error with its sign. A bar is what we want of the test half: the "
            f"most that the first two may be, and a bias of {BIAS:.0%} at most. “3 of 5” are the "
            "rows with an estimate."
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
            "Here are the sorts that miss their bar. Of each, the rows of the test half that are "
            "off by more than the middle error may be (or the bias, where only the bias is missed) "
            "stand together by what is known of the reason. Whether a chip could have moved the "
            "bytes in the published time, and whether a profile is missing, is computed from the "
            "row; the rest was found by looking at the compiled programs."
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
            f"A band needs {FEWEST} rows of the test half or more. A row whose launch is more than "
            f"{LAUNCHED:.0%} of what was timed is left out, because the launch was chosen by such "
            "rows. Where are the ends of a band? Put n errors in order: the next one falls into "
            "each of the n + 1 gaps equally often, whatever their distribution (split conformal "
            "prediction). So the ends are at a tenth and at nine tenths of n + 1, between "
            "neighbours in proportion. Of five to eight errors these are the outermost two, which "
            "hold only two thirds to seven ninths of further programs on average."
        )
        yield table(("regime", "test rows", "measured against estimated"), lines, "bands")
        (inside, of_test), (fit_inside, of_fit) = self.coverage(rows)
        if of_test and of_fit:
            yield text(
                "Do the bands hold what they promise? If each problem in turn is left out of its "
                f"band, the band holds {inside / of_test:.0%} of the test half's rows. Of the fit "
                f"half's, which make no band, it holds {fit_inside / of_fit:.0%}."
            )

    def coverage(self, rows):
        """How many rows lie in a band of other problems, and of how many, in the test and the fit
        half."""
        kinds, counts = {}, {half: [] for half in (bands.TEST, comparisons.FIT)}
        for row in rows:
            if row.error is not None:
                kinds.setdefault((row.chip, row.regime), []).append(row)
        for those in kinds.values():
            makers = [row for row in those if row.half == bands.TEST]
            makers = [row for row in makers if bands.counts(row.published_ms, row.launch_ms)]
            for row in makers + [row for row in those if row.half == comparisons.FIT]:
                problem = lambda row: (row.operator, row.sizes)
                known = [r.error for r in makers if problem(r) != problem(row)]
                if len(known) >= FEWEST:
                    low, high = np.quantile(known, ENDS, method="weibull")
                    counts[row.half].append(low <= row.error <= high)
        return [(sum(some), len(some)) for some in counts.values()]

    def ratios(self, rows):
        lines, file = [], (store.RESULTS / VALIDATION, self.compiler)
        for chip in (*sorted({row.chip for row in rows}), bands.ALL):
            if band := bands.band(chip, bands.RATIO, *file):
                errors = bands.errors(chip, bands.RATIO, *file)
                middle, most = np.quantile(np.abs(errors), (0.5, 0.9))
                bias = self.signed(np.median(errors))
                figures = str(band.rows), f"{middle:.0%}", f"{most:.0%}", bias
                lines.append((chip, *figures, band.text))
        ends = [f"{end:.2f}" for end in band.around(EXAMPLE)] if band else ()
        yield text(
            "XLA's programs and kernels err in different directions, so their ratio has an error "
            "of its own. A pair is a kernel and XLA's fastest program for the same problem, both "
            "timed by somebody and both of the test half. The error of a pair is that of the "
            "estimated ratio, XLA's time over the kernel's, against the measured one: a positive "
            "error flatters the kernel. The last column says where a measured ratio would lie, "
            "seen from the estimated one. "
            + f"By the last line an estimated {EXAMPLE} stands for {' to '.join(ends)}. "
            * bool(ends)
            + "Where that range holds 1, this book says “tie”. A chip has a band of its own from "
            f"{FEWEST} problems on, since pairs of one problem share XLA's row; else it has that "
            "of all chips."
        )
        titles = "chip", "pairs", "middle", "9 in 10", "bias", "measured ratio"
        yield table(titles, lines, "ratios") if lines else text("Too few pairs are known yet.")

    def compilers(self, rows):
        yield text(
            f"Every other error on this page is of {self.compiler}, and so are the programs that "
            "the rates were fitted to. An estimate of another compiler carries the band of its own "
            f"rows where {FEWEST} or more of the test half are of its chip and regime; else it "
            f"carries that of {self.compiler}, and says so. The error of ratios follows the same "
            "rule."
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

    def tuner(self, rows):
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
            f"{' or '.join(map(str, sorted(tried)))} tunings were tried, the fastest of "
            "tokamax's own search on the hardware among them; a place counts only those that have "
            "an estimate, so it may be of fewer. "
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

    def gpus(self, rows):
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

    def neuron(self, rows):
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


def bars(spreads):
    """A bar for each sort and chip, to the error that nine in ten stay below, as SVG."""
    left, width, step = 300, 640, 21
    longest = max([spread.most for spread in spreads.values()] + [TRUSTED])
    scale = (width - left - 50) / longest
    line, drawn = left + scale * TRUSTED, []
    for i, ((sort, chip), spread) in enumerate(spreads.items()):
        y, middle, most = 4 + step * i, scale * spread.median, scale * spread.most
        behind = left + most + 6
        behind = line + 6 if behind - 2 < line < behind + 34 else behind  # the line is not crossed
        words = f"{sort}, {chip}: {spread.most:.0%}, of {spread.rows} programs"
        drawn.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(sort)}, {chip}'
            f'</text><rect x="{left}" y="{y}" width="{most:.1f}" height="16" '
            'fill="currentColor" fill-opacity="0.25" stroke="currentColor">'
            f"<title>{html.escape(words)}</title></rect>"
            f'<rect x="{left}" y="{y}" width="{middle:.1f}" height="16" fill="currentColor"/>'
            f'<text x="{behind:.1f}" y="{y + 13}">{spread.most:.0%}</text>'
        )
    height = step * len(spreads) + 26
    drawn.append(
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="0" y2="{height - 20}" stroke="currentColor" '
        f'stroke-dasharray="4 3"/><text x="{line:.1f}" y="{height - 6}" text-anchor="middle">'
        f"{TRUSTED:.0%}</text>"
    )
    said = (f"{sort} on {chip} {spread.most:.0%}" for (sort, chip), spread in spreads.items())
    label = "The error that nine in ten estimates stay below: " + "; ".join(said)
    return (
        f'<figure class="standing" tabindex="0"><svg role="img" aria-label="{html.escape(label)}" '
        f'viewBox="0 0 {width} {height}">{"".join(drawn)}</svg><figcaption>A bar ends at the error '
        "that nine estimates in ten stay below; its dark part, at the middle error. Where the bar "
        f"ends before the line, this book trusts the sort. Each has {FEWEST} programs or more, of "
        "the half that tests.</figcaption></figure>"
    )
