"""python -m kernels validate"""

import csv
import datetime
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kernels.cli.options import TimeoutOption
from kernels.cli.terminal import console, note, progress, writable, write
from kernels.figures import store
from kernels.figures.report import name_of
from kernels.figures.schema import HALVES, Record
from kernels.figures.table import Table
from kernels.machines.checks import brief, fail, one_of
from kernels.machines.tpu.estimate import bands
from kernels.machines.tpu.estimate import fit as fitting
from kernels.machines.tpu.estimate.bands import FEWEST, SHARE, counts
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS, RATES
from kernels.machines.tpu.pool import libtpu_version
from kernels.proof.catalog import OPERATORS
from kernels.proof.ladder import Subject
from kernels.proof.workload import Workload

COLUMNS = ("chip", "regime", "rows", "median", "9 in 10", "bias", "the book's band", "")
RARE = 0.05  # so seldom are so few errors inside a band by chance


def validate(
    rows: Annotated[Path, typer.Option(help="Times, as `bench --record` keeps them.")],
    chip: Annotated[
        list[str] | None, typer.Option("--chip", "-c", help="May be repeated; all by default.")
    ] = None,
    fit: Annotated[Path | None, typer.Option(help="Write rates of that chip there.")] = None,
    timeout: TimeoutOption = 120.0,
    budget: Annotated[float, typer.Option(min=1, help="Seconds of simulation for each.")] = 20.0,
) -> None:
    """Set estimates beside times that you measured: does your TPU agree with the book?

    \b
    python -m kernels bench matmul --record
    python -m kernels validate --rows results/measured.csv --chip v5e --fit mine.json
    python -m kernels estimate matmul --chip v5e --rates mine.json
    """
    writable(fit)
    records = _read(rows, chip or ())
    timed, errors = [], defaultdict(list)
    with progress() as bar:
        task = bar.add_task("rows", total=len(records))
        for record, estimate in _estimated(records, timeout, budget):
            bar.advance(task)
            if isinstance(estimate, str):
                note(f"{record.implementation} {record.text}: {estimate}")
                continue
            timed.append((record, estimate))
            error = 1e3 * (estimate.seconds + _launch(record)) / record.value - 1
            errors[record.chip, estimate.regime, estimate.band].append(error)
    lines = []
    for (name, regime, band), some in errors.items():
        sizes = np.quantile(np.abs(some), (0.5, 0.9))
        figures = *(f"{size:.0%}" for size in sizes), f"{np.median(some):+.0%}"
        band_text = band.text if band else ""
        lines.append((name, regime, str(len(some)), *figures, band_text, _verdict(some, band)))
    title = "Errors of the estimates against your times"
    console.print(Table(COLUMNS, lines, title, right=COLUMNS[2:7]))
    inside, outside = (sum(line[-1] == w for line in lines) for w in ("within", "outside"))
    agrees = "disagrees with" if outside else "agrees with" if inside else "says nothing of"
    note(f"Your machine {agrees} the book: {inside} of {inside + outside} regimes within.")
    if fit:
        for words in _fitted(timed, fit):
            note(words)
    if outside:
        raise typer.Exit(1)


def _launch(record: Record) -> float:
    """Seconds of launch in a time: a queue of calls hides it, a wall clock around one does not."""
    return LAUNCH_SECONDS.get(record.chip, 0.0) if record.clock == "wall" else 0.0


def _read(file: Path, chips: Sequence[str]) -> list[Record]:
    """The times of a file. Raises ValueError for what cannot be estimated."""
    for name in chips:
        one_of("--chip", name, RATES)
    written = "times that `python -m kernels bench --record` wrote on a TPU"
    try:
        records = store.read(file.resolve(strict=True))
    except (OSError, ValueError, TypeError, csv.Error) as error:
        fail("--rows", file, f"{written} ({error})")
    records = [r for r in records if r.quantity == "time" and r.chip in (chips or (r.chip,))]
    if not records:
        fail("--rows", f"{file}, without a time", written)
    for record in records:
        name = f"of {record.operator}/{record.implementation} {record.text}"
        if record.kind != "measured" or record.unit != "ms" or not 0 < record.value < math.inf:
            fail(f"the time {name}", f"{record.value:g} {record.unit}", "measured, more than 0 ms")
        one_of(f"the operator {name}", record.operator, OPERATORS)
        one_of(f"the pass {name}", record.pass_, ("forward", "gradient"))
        operator = OPERATORS[record.operator]
        other = record.chip not in RATES
        known = [c for c in RATES if other or c in operator[record.implementation].backend.chips]
        if record.chip not in known:
            accepted = f"{', '.join(known) or 'none'}; --chip leaves the rows of others out"
            fail(f"the chip {name}", repr(record.chip), accepted)
        if record.sizes.keys() != (sizes := operator.workloads.named[0].sizes).keys():
            fail(f"the sizes {name}", record.sizes, f"a number for each of {', '.join(sizes)}")
    return records


def _estimated(
    records: Sequence[Record], timeout: float, budget: float
) -> Iterator[tuple[Record, Any]]:
    """Each time and its estimate, or why there is none; one after another."""
    for record in records:
        operator, gradient = OPERATORS[record.operator], record.pass_ == "gradient"
        entry = operator[record.implementation]
        options, tuning = record.options.typed(), record.tuning.typed()
        drawn = options.pop("values", "normal")
        if name := name_of(record):
            options = operator.workloads[name].options
        workload = Workload("measured", {**record.sizes}, record.dtype, drawn, options, tuning)
        try:
            job = Subject.of(operator, entry).job(workload, gradient=gradient)
            if gradient and not job.wanted:
                fail("the pass", "gradient", "forward, since it has no gradients")
            question = [(job, record.chip)]
            [estimate] = entry.backend.estimate(question, timeout=timeout, budget=budget)
        except (ValueError, TypeError, MemoryError) as error:  # sizes or options that it refuses
            estimate = error
        launch = 1e3 * LAUNCH_SECONDS.get(record.chip, max(LAUNCH_SECONDS.values()))
        if isinstance(estimate, Exception):
            estimate = brief(estimate)
        elif estimate.depends:
            estimate = estimate.band_text
        elif record.clock != "device" and not counts(record.value, launch):
            estimate = "mostly launch, so it says little of the chip"
        yield record, estimate


def _verdict(errors: Sequence[float], band: bands.Band | None) -> str:
    """Whether errors are "within" the book's band, or "outside": fewer than chance explains."""
    if band is None or len(errors) < FEWEST:
        return "too few" if band else "no band"
    rows, inside = len(errors), sum(band.low <= error <= band.high for error in errors)
    ways = (math.comb(rows, k) * SHARE**k * (1 - SHARE) ** (rows - k) for k in range(inside + 1))
    return "within" if sum(ways) > RARE else "outside"


def _fitted(rows: Sequence[tuple[Record, Any]], file: Path) -> Iterator[str]:
    """Fit rates to one half of the rows, and write them; they and the errors of both in words."""
    halves: dict[str, list[fitting.TimedCost]] = {half: [] for half in HALVES}
    for record, estimate in rows:
        timed = fitting.TimedCost(estimate.cost, record.value, _launch(record))
        halves[record.half] += [timed] if timed.same else []
    for half, some in halves.items():
        if len(some) < FEWEST:
            accepted = f"{FEWEST} or more in each half that the chip can have moved its bytes in"
            fail(f'--fit, with the rows of the half "{half}",', len(some), accepted)
    chips = sorted({record.chip for record, _ in rows})
    if len(chips) > 1:
        fail("--fit", f"for rows of {' and '.join(chips)}", "for those of one --chip")
    rates = asdict(fitted := fitting.fit(chips[0], halves[HALVES[0]]))
    del rates["source"]
    held: dict[str, Any] = {"chip": chips[0], "libtpu": libtpu_version(), "jax": version("jax")}
    held |= {"rows": len(halves[HALVES[0]]), "date": f"{datetime.date.today()}", "rates": rates}
    write(file, json.dumps(held, indent=2) + "\n")
    yield f"{file}: {rates}"
    yield from fitting.described(halves, fitted)
