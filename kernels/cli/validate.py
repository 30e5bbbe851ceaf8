"""python -m kernels validate"""

from __future__ import annotations

import csv
import datetime
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kernels.cli.options import TimeoutOption
from kernels.cli.terminal import console, note, progress, reported, writable, write
from kernels.figures import store
from kernels.figures.schema import HALVES, Named, Record
from kernels.figures.table import Table
from kernels.machines.checks import brief, fail, one_of
from kernels.machines.tpu.estimate.bands import FEWEST, SHARE, counts, quantile
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS, RATES
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

if TYPE_CHECKING:
    from kernels.machines.tpu.estimate.bands import Band

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
    with reported():
        writable(fit)
        records = _read(rows, chip or ())
        timed, errors = [], defaultdict(list)
        with progress() as bar:
            task = bar.add_task("rows", total=len(records))
            for row in _estimated(records, timeout, budget):
                bar.advance(task)
                if isinstance(row.estimate, str):
                    note(f"{row.record.implementation} {row.record.text}: {row.estimate}")
                else:
                    timed.append(row)
                    kind = row.record.chip, row.estimate.regime, row.estimate.band
                    errors[kind].append(row.error)
        lines = []
        for (name, regime, band), some in errors.items():
            sizes, bias = sorted(map(abs, some)), quantile(sorted(some), 0.5)
            figures = f"{quantile(sizes, 0.5):.0%}", f"{quantile(sizes, 0.9):.0%}", f"{bias:+.0%}"
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


class _Row(NamedTuple):
    """A measured time beside its estimate, or beside why there is none."""

    record: Record
    estimate: Any

    @property
    def launch_seconds(self) -> float:
        """The launch in the time: a queue of calls hides it, a wall clock around one does not."""
        return LAUNCH_SECONDS.get(self.record.chip, 0.0) if self.record.clock == "wall" else 0.0

    @property
    def error(self) -> float:
        """Of the estimate, relative."""
        return 1e3 * (self.estimate.seconds + self.launch_seconds) / self.record.value - 1


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
        known = [c for c in RATES if c in operator[record.implementation].backend.chips]
        if record.chip not in known:
            accepted = f"{', '.join(known)}; --chip leaves the rows of others out"
            fail(f"the chip {name}", repr(record.chip), accepted)
        if record.sizes.keys() != (sizes := operator.workloads.named[0].sizes).keys():
            fail(f"the sizes {name}", record.sizes, f"a number for each of {', '.join(sizes)}")
    return records


def _estimated(records: Sequence[Record], timeout: float, budget: float) -> Iterator[_Row]:
    """The estimate beside each time, one after another."""
    from kernels.proof.ladder import Subject

    for record in records:
        operator, gradient = OPERATORS[record.operator], record.pass_ == "gradient"
        entry = operator[record.implementation]
        try:
            job = Subject.of(operator, entry).job(_workload(record), gradient=gradient)
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
        yield _Row(record, estimate)


def _workload(record: Record) -> Workload:
    """What was solved: the catalog's own where it has it."""
    known = OPERATORS[record.operator].workloads
    for workload in (*known.figures, *known.named):
        if record.solves(workload) and Named(workload.tuning) == record.tuning:
            return workload
    options, tuning = record.options.typed(), record.tuning.typed()
    drawn = options.pop("values", "normal")
    return Workload("measured", {**record.sizes}, record.dtype, drawn, options, tuning)


def _verdict(errors: Sequence[float], band: Band | None) -> str:
    """Whether errors are "within" the book's band, or "outside": fewer than chance explains."""
    if band is None or len(errors) < FEWEST:
        return "too few" if band else "no band"
    rows, inside = len(errors), sum(band.low <= error <= band.high for error in errors)
    ways = (math.comb(rows, k) * SHARE**k * (1 - SHARE) ** (rows - k) for k in range(inside + 1))
    return "within" if sum(ways) > RARE else "outside"


def _fitted(rows: Sequence[_Row], file: Path) -> Iterator[str]:
    """Fit rates to one half of the rows, and write them; they and the errors of both in words."""
    from kernels.machines.tpu.estimate import fit
    from kernels.machines.tpu.pool import libtpu_version

    halves: dict[str, list[fit.TimedCost]] = {half: [] for half in HALVES}
    for row in rows:
        timed = fit.TimedCost(row.estimate.cost, row.record.value, row.launch_seconds)
        halves[row.record.half].append(timed)
    for half, some in halves.items():
        if sum(timed.same for timed in some) < FEWEST:
            accepted = f"{FEWEST} or more in each half that the chip can have moved its bytes in"
            fail(f'--fit, with the rows of the half "{half}",', len(some), accepted)
    chips = sorted({row.record.chip for row in rows})
    if len(chips) > 1:
        fail("--fit", f"for rows of {' and '.join(chips)}", "for those of one --chip")
    rates = fit.fit(chips[0], halves[HALVES[0]])
    constants = {name: value for name, value in asdict(rates).items() if name != "source"}
    held = {
        "chip": chips[0],
        "libtpu": libtpu_version(),
        "jax": version("jax"),
        "rows": sum(timed.same for timed in halves[HALVES[0]]),
        "date": datetime.date.today().isoformat(),
        "rates": constants,
    }
    write(file, json.dumps(held, indent=2) + "\n")
    yield f"{file}: {constants}"
    yield from fit.described(halves, rates)
