"""python -m validation COMMAND: tpu, tuner, trn1, vit-step, decoder-layer, nms-rounds,
xla-int4, rates, gpu-rates or judged.

Runs what proves the estimators, and keeps what comes out in results/. Exit codes: 0 it ran, 1 a
compiler refused, 2 the command line was wrong, or a package is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernels.cli import terminal
from kernels.cli.terminal import console, reported
from kernels.figures.report import digits
from kernels.figures.table import Table
from kernels.machines.tpu.chips import CHIPS
from kernels.machines.tpu.pool import libtpu_version
from validation import (
    comparisons,
    decoder_layer,
    nms_rounds,
    tpu_times,
    trn1_times,
    trn1_units,
    tunings,
    vit_step,
    xla_int4,
)
from validation import judged as judged_

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Chips = Annotated[
    list[str] | None, typer.Option("--chip", "-c", help="May be repeated; all by default.")
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", "-k", help="OPERATOR or OPERATOR/IMPLEMENTATION; all by default."),
]
Fresh = Annotated[bool, typer.Option(help="Estimate again what is kept.")]


@app.command()
def tpu(
    chip: Chips = None,
    kind: Kinds = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Rows of each kind, chip and half.")
    ] = None,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that a row may take.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Rows side by side.")] = 1,
    fresh: Fresh = False,
) -> None:
    """Set estimates beside published times, in results/validation.csv; a stopped run goes on.

    \b
    python -m validation tpu --chip v6e --kind linear_cross_entropy
    """
    with reported():
        libtpu_version()
        rows = tpu_times.published(chip or (), kind or (), most)
        with terminal.progress() as bar:
            task = bar.add_task("rows", total=len(rows))

            def progress(row: comparisons.Comparison | None, done: int, whole: int) -> None:
                bar.update(task, completed=done, total=whole)
                if row is not None and row.error is None:
                    bar.console.print(f"{row.chip} {row.operator} {row.text}: {row.reason}")

            compared = tpu_times.validate(
                rows, seconds=limit, jobs=jobs, fresh=fresh, progress=progress
            )
        lines = []
        for key, some in tpu_times.sorts(compared).items():
            spread = comparisons.spread(some)
            figures = (
                (f"{spread.median:.0%}", f"{spread.most:.0%}", f"{spread.bias:+.0%}")
                if spread
                else ()
            )
            refused = sum(row.error is None for row in some)
            lines.append((*key, str(len(some)), str(refused or ""), *figures))
        titles = ("chip", "sort", "half", "rows", "no estimate", "median", "9 in 10", "bias")
        _show("Estimates against published times", titles, lines, left=3)


@app.command()
def tuner(
    chip: Chips = None,
    kind: Kinds = None,
    most: Annotated[int | None, typer.Option(min=1, help="Problems.")] = None,
    fresh: Fresh = False,
) -> None:
    """Rank tunings that a search on the hardware found among others, in results/searched.csv.

    \b
    python -m validation tuner --most 3
    """
    with reported():
        libtpu_version()
        problems = tunings.problems(most, chip or (), kind or ())
        ranked = []
        with terminal.progress() as bar:
            rows = bar.add_task("problems", total=len(problems))
            tried = bar.add_task("tunings")
            progress = lambda row, done, whole: bar.update(tried, completed=done, total=whole)
            for row in problems:
                ranked += tunings.search([row], fresh=fresh, progress=progress)
                bar.advance(rows)
        lines = []
        for ranking in ranked:
            name = f"{ranking.row.operator} {ranking.row.sizes} {ranking.row.tuning}"
            figures: tuple[str, ...] = ("refused",)
            if ranking.place is not None:
                first, place = ranking.trials[0][1], f"{ranking.place} of {ranking.known}"
                figures = digits(ranking.theirs), digits(first), place, f"{ranking.loss:.1%}"
            lines.append((name, ranking.row.chip, *figures))
        title = "Tunings that were the fastest on the hardware, among others, by estimate"
        columns = ("theirs, ms", "our first, ms", "place of theirs", "difference")
        _show(title, ("problem", "chip", *columns), lines, left=2)
        for sentence in tunings.sentences(ranked):
            console.print(sentence, highlight=False, soft_wrap=True)


@app.command()
def trn1() -> None:
    """Estimate the kernels that others timed on a NeuronCore, in results/neuron_calibration.csv."""
    for kernel, record in trn1_times.record():
        off = record.value / kernel.published_ms - 1
        times = f"{kernel.published_ms:.3f} ms published, {record.value:.3f} estimated"
        console.print(f"{kernel.text}: {times}, {off:+.0%}, {kernel.part}", highlight=False)


@app.command()
def units(
    samples: Annotated[Path, typer.Argument(help="A checkout of aws-neuron/nki-samples.")],
) -> None:
    """Estimate the kernels whose latency AWS's unit tests state, in results/neuron_units.csv."""
    for row in trn1_units.measure(samples):
        console.print(f"{row.kernel} {row.sizes}: {row.error():+.0%}", highlight=False)


@app.command()
def judged(
    verdicts: Annotated[Path, typer.Argument(help="What `kernels judge --json` printed.")],
    theirs: Annotated[Path, typer.Argument(help="The set's record of what a v6e said, as JSON.")],
    problems: Annotated[Path, typer.Argument(help="A folder: the set's originals.")],
) -> None:
    """Set the judge's verdicts beside a chip's, in results/judged.csv.

    \b
    python -m kernels judge SET/ --reference PROBLEMS/ --json > verdicts.jsonl
    python -m validation judged verdicts.jsonl eval_gpt53.json PROBLEMS/
    """
    with reported():
        import jax

        versions = f"jax {jax.__version__}, libtpu {libtpu_version()}"
        rows = judged_.record(verdicts, theirs, problems, versions)
        for rung, counts in judged_.by_rung(rows).items():
            console.print(f"{rung}: " + ", ".join(f"{n} {words}" for words, n in counts.items()))


@app.command("vit-step")
def vit_step_(
    attentions: Annotated[
        list[str] | None, typer.Argument(help=", ".join(vit_step.ATTENTIONS))
    ] = None,
    depth: int = vit_step.DEPTH,
    batch: int = vit_step.BATCH,
    chip: str = "v5e",
) -> None:
    """Estimate a vision transformer's training step for each attention, in results/vit_step.csv."""
    with reported():
        steps = vit_step.estimate_steps(
            attentions or vit_step.ATTENTIONS, depth=depth, batch=batch, chip=chip
        )
        vit_step.save(steps)
        for step in steps:
            places = (), ("attention",), ("attention", "relayout")
            whole, attention, relayouts = (f"{1e3 * step.spent(*place):.1f} ms" for place in places)
            said = f"{whole}, attention {attention}, its relayouts {relayouts}"
            console.print(f"{step.name}: {said}", highlight=False)


@app.command("decoder-layer")
def decoder_layer_(
    forms: Annotated[list[str] | None, typer.Argument(help=", ".join(decoder_layer.FORMS))] = None,
    chip: str = "v5e",
    pass_: Annotated[str, typer.Option("--pass", help="forward, gradient or decode.")] = "forward",
) -> None:
    """Estimate a decoder layer in each of its forms, in results/decoder_layer.csv."""
    with reported():
        layers = decoder_layer.estimate_forms(forms or (), chip=chip, pass_=pass_)
        decoder_layer.save(layers)
        for program in layers:
            whole, attention = 1e3 * program.seconds, 1e3 * program.spent("attention")
            said = f"{whole:.3f} ms, attention {attention:.3f} ms"
            console.print(f"{program.name}: {said}", highlight=False)


@app.command("nms-rounds")
def nms_rounds_(
    implementations: Annotated[
        list[str] | None, typer.Argument(help=", ".join(nms_rounds.IMPLEMENTATIONS))
    ] = None,
    chip: Chips = None,
) -> None:
    """Estimate nms at the sizes of its chapter, in results/estimated.csv."""
    with reported():
        names = implementations or nms_rounds.IMPLEMENTATIONS
        for estimate, timely in nms_rounds.record(names, chip or ("v5e", "v6e")):
            late = "" if timely else "; not kept: the profile ran out of time"
            name = f"{estimate.implementation} {estimate.workload.name} {estimate.chip}"
            times = f"{1e6 * estimate.seconds:.4g} µs, at worst {1e6 * estimate.worst:.4g} µs"
            console.print(f"{name}: {times}, {estimate.rounds} rounds{late}", highlight=False)


@app.command("xla-int4")
def xla_int4_(chip: Chips = None) -> None:
    """Estimate a product with weights that XLA packs as int4, in results/estimated.csv."""
    with reported():
        for kept in xla_int4.record(chip or ("v5e", "v6e")):
            console.print(f"{kept.chip}: {1e3 * kept.value:.4g} µs", highlight=False)


@app.command()
def rates(
    folder: Annotated[Path, typer.Argument(help="Of compiled programs, kept from run to run.")],
    chips: Annotated[list[str] | None, typer.Argument(help="All by default.")] = None,
) -> None:
    """Fit the constants of XLA's programs to the half of the published times that is for it."""
    from validation import rates as fitting  # scipy

    with reported():
        for chip in chips or CHIPS:
            for line in fitting.report(folder, chip):
                console.print(line, highlight=False, soft_wrap=True)


@app.command("gpu-rates")
def gpu_rates_() -> None:
    """Fit the factors of figures for a GPU, and their bands; print them, and what they miss."""
    from validation import gpu_rates, gpu_times  # scipy

    rows = gpu_times.read()
    fitted = gpu_rates.factors(gpu_rates.timed(rows, comparisons.FIT))
    console.print(f"FACTORS {fitted}", highlight=False, soft_wrap=True)
    console.print(f"BANDS {gpu_rates.bands(rows)}", highlight=False, soft_wrap=True)
    lines = list(gpu_rates.lines(rows))
    _show("Figures against published times, as they are in use", gpu_rates.TITLES, lines, left=2)


def _show(title: str, columns: tuple[str, ...], lines: list[tuple[str, ...]], left: int) -> None:
    """A table, whose first `left` columns are words; a line may lack cells at its end."""
    console.print(Table(columns, lines, title, right=columns[left:]))


if __name__ == "__main__":
    app(prog_name="python -m validation")
