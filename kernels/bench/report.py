"""Every figure of results/ beside the others of its problem: rows for tables, kinds kept apart."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kernels.bench.records import Record, read
from kernels.bench.wallclock import LIMIT
from kernels.catalog import OPERATORS
from kernels.checks import one_of
from kernels.pictures import Table
from kernels.workload import Workload

COLUMNS = ("published", "estimated", "measured")  # the kinds, in the order of a table
FIGURES = tuple(f"{kind}.csv" for kind in COLUMNS)
PARTS, TRIALS = "vit_step.csv", "tuned.csv"
COSTS = ("s", "ms", "GB")  # units of which less is better

# Part of an answer, not of the problem: it stands beside the implementation.
_TUNING = re.compile(r" (?:block|bn)=\S+")


@dataclass(frozen=True)
class Limit:
    """What nothing can beat. value: in the unit of the figures. why: in words."""

    value: float
    why: str


@dataclass(frozen=True)
class Row:
    """One implementation on one problem and chip. figures: kind → the newest record of that kind.
    others: kind → the best figure of another row, and whose. limits: kind → what bounds it."""

    implementation: str
    tuning: str
    figures: dict[str, Record]
    others: dict[str, tuple[float, str]] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The implementation, and how it was tuned where the record says so."""
        return f"{self.implementation} {self.tuning}".strip()

    def ratio(self, kind: str) -> float | None:
        """The figure over the best other one of the same kind; None where there is no other."""
        return self._over(kind, self.others[kind][0]) if kind in self.others else None

    def share(self, kind: str) -> float | None:
        """The limit over the figure: 1 at the limit; None where no limit is known."""
        ratio = self._over(kind, self.limits[kind].value) if kind in self.limits else None
        return 1 / ratio if ratio else None

    def _over(self, kind: str, other: float) -> float | None:
        value = self.figures[kind].value
        return value / other if other and math.isfinite(value) and math.isfinite(other) else None


@dataclass(frozen=True)
class Group:
    """All that is known of one problem on one chip, in one unit; the best row first."""

    operator: str
    workload: str
    chip: str
    unit: str
    rows: tuple[Row, ...]

    @property
    def limits(self) -> dict[str, Limit]:
        """Kind → the limit of its figures."""
        return {kind: limit for row in self.rows for kind, limit in row.limits.items()}

    @property
    def title(self) -> tuple[str, str]:
        """The workload's name, and its sizes, dtype and options; a name may be missing."""
        name, colon, sizes = self.workload.partition(": ")
        return (name, sizes) if colon and "=" not in name else ("", self.workload)


def figures() -> list[Group]:
    """The problems of results/published.csv, estimated.csv and measured.csv."""
    return groups(record for path in FIGURES for record in read(path))


def parts() -> list[Group]:
    """Where the time of whole programs goes, of results/vit_step.csv."""
    return groups(read(PARTS))


def trials() -> list[Group]:
    """The tuner's trials of results/tuned.csv; each row is a tuning."""
    return groups(
        Record(
            record.operator,
            f"{record.implementation} {tuning}".strip(),
            workload,
            *(getattr(record, name) for name in ("kind", "value", "unit", "chip", "versions")),
            record.date,
            record.source,
        )
        for record in read(TRIALS)
        for workload, _, tuning in [record.workload.partition(" | ")]
    )


def groups(records: Iterable[Record]) -> list[Group]:
    """Sort records into problems. Of two figures of one kind and row the newer one counts.

    A ratio is of figures of one problem, one chip, one unit and one kind. A record of what bounds
    the others (wallclock.LIMIT) is their limit and no row; where there is none, `floor` is.
    """
    found: dict[tuple[str, ...], dict[tuple[str, str], dict[str, Record]]] = {}
    limits: dict[tuple[str, ...], dict[str, Limit]] = {}
    for record in sorted(records, key=lambda record: record.date):
        tuning = "".join(_TUNING.findall(record.workload)).strip()
        workload = _TUNING.sub("", record.workload)
        problem = record.operator, workload, record.chip, record.unit
        if record.implementation.startswith(LIMIT):
            why = f"{record.implementation.removeprefix(LIMIT)}, {record.kind} beside them"
            limits.setdefault(problem, {})[record.kind] = Limit(record.value, why)
        else:
            row = found.setdefault(problem, {}).setdefault((record.implementation, tuning), {})
            row[record.kind] = record
    return sorted(
        (_group(problem, rows, limits.get(problem, {})) for problem, rows in found.items()),
        key=_order,
    )


def floor(operator: str, workload: str, chip: str) -> Limit | None:
    """The least milliseconds that a chip needs for a workload, as records name both.

    The larger of two: matrix products at the peak, and arguments and results moved once at the
    memory's bandwidth. None where the chip's rates, or what the problem needs, are not known.
    """
    problem, gradient = _problem(operator, workload)
    work = problem and OPERATORS[operator].workloads.work
    rates = problem and _rates(chip, problem.dtype)
    if not work or not rates:
        return None
    needs = zip(work(problem, gradient), rates, strict=True)
    bounds = [Limit(1e3 * need / rate, why) for need, (rate, why) in needs]
    return max(bounds, key=lambda limit: limit.value)


def compare(
    operator: str,
    workloads: Sequence[str] = (),
    implementations: Sequence[str] = (),
    chips: Sequence[str] = (),
) -> Table | Line:
    """What was measured, beside what was published and estimated of the same problem and chip.

    workloads: names of the operator's workloads; chips, implementations: of records; all if empty.
    Only problems with a measurement are shown. Where there is none, the line says how to make one.
    Raises ValueError for an operator that the catalog has not.
    """
    one_of("operator", operator, OPERATORS)
    rows = []
    for group in figures():
        name = group.title[0] or group.workload
        wanted = group.operator == operator and group.unit == "ms"
        if (
            not wanted
            or (workloads and name not in workloads)
            or (chips and group.chip not in chips)
        ):
            continue
        if not any("measured" in row.figures for row in group.rows):
            continue
        training = ", gradient" * group.workload.endswith(" gradient")
        for row in group.rows:
            if not implementations or row.implementation in implementations:
                values = [told(row.figures.get(kind)) for kind in COLUMNS]
                rows.append((name + training, group.chip, row.name, *values))
    if rows:
        kinds = (f"{kind}, ms" for kind in COLUMNS)
        return Table(("workload", "on", "implementation", *kinds), tuple(rows))
    where = f" on {' or '.join(chips)}" if chips else ""
    return Line(f"Not measured{where} yet; there: python -m kernels bench {operator} --record")


class Line(str):
    """A line that a notebook shows as it is."""

    __repr__ = str.__str__


def digits(value: float) -> str:
    """Three digits, or as many as a whole number has."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def told(record: Record | None, none: str = "–") -> str:
    """A figure of a table, with its unit where it is not ms."""
    if record is None:
        return none
    if not math.isfinite(record.value):
        return "refused"
    return digits(record.value) + (f" {record.unit}" if record.unit != "ms" else "")


def _group(
    problem: tuple[str, ...],
    rows: dict[tuple[str, str], dict[str, Record]],
    limits: dict[str, Limit],
) -> Group:
    operator, workload, chip, unit = problem
    least = floor(operator, workload, chip) if unit == "ms" else None
    bounds = {kind: limits.get(kind, least) for kind in COLUMNS}
    made = []
    for key, figures in rows.items():
        others = {}
        for kind in figures if unit in COSTS else ():
            rest = [
                (each[kind].value, " ".join(name).strip())
                for name, each in rows.items()
                if name != key and kind in each and math.isfinite(each[kind].value)
            ]
            if rest:
                others[kind] = min(rest)
        known = {kind: bounds[kind] for kind in figures if bounds[kind]}
        made.append(Row(*key, figures, others, known))
    return Group(operator, workload, chip, unit, tuple(sorted(made, key=_rank)))


def _rank(row: Row) -> tuple[float, ...]:
    """By figures of one kind: the measured ones first, then the estimated, then the published."""
    for place, kind in enumerate(reversed(COLUMNS)):
        if kind in row.figures:
            return place, row.figures[kind].value
    return len(COLUMNS), 0.0


def _order(group: Group) -> tuple[object, ...]:
    """As the catalog has operators and workloads; what it has not, behind, numbers by value."""
    operator = OPERATORS.get(group.operator)
    named = (
        [str(w) for w in (*operator.workloads.figures, *operator.workloads.named)]
        if operator
        else []
    )
    problem = group.workload.removesuffix(" gradient")
    return (
        list(OPERATORS).index(group.operator) if operator else len(OPERATORS),
        named.index(problem) if problem in named else len(named),
        [(int(d), "") if d.isdigit() else (0, d) for d in re.findall(r"\d+|\D+", problem)],
        group.workload != problem,
        group.chip,
        group.unit,
    )


def _problem(operator: str, text: str) -> tuple[Workload | None, bool]:
    """The workload that a record names, and whether it is of the gradients as well; None for what
    is no problem of the operator."""
    if operator not in OPERATORS:
        return None, False
    known = OPERATORS[operator].workloads
    gradient = text.endswith(" gradient")
    text = text.removesuffix(" gradient").removesuffix(" forward")
    for workload in (*known.figures, *known.named):
        if text == str(workload):
            return workload, gradient
    sizes, dtype, options = {}, "", {}
    for word in text.partition(": ")[2].split() or text.split():
        name, equal, value = word.partition("=")
        if equal and value.isdigit():
            sizes[name.lower()] = int(value)
        elif equal:
            options[name] = value
        elif re.fullmatch(r"\d+(×\d+)+", word):
            sizes |= zip(known.named[0].sizes, map(int, word.split("×")))
        elif re.fullmatch(r"(bfloat|float|u?int)\d+\w*", word) and not dtype:
            dtype = word
        else:
            return None, gradient
    missing = set(known.named[0].sizes) - set(sizes)
    one_length = missing == {"m"} and "d" in sizes  # queries and keys of one length, said once
    surplus = set(sizes) - set(known.named[0].sizes) or set(options) - {"activation"}
    if not dtype or surplus or (missing and not one_length):
        return None, gradient
    return Workload("recorded", sizes, dtype), gradient


def _rates(chip: str, dtype: str) -> tuple[tuple[float, str], tuple[float, str]] | None:
    """Operations of matrix products and bytes a second, each with its name."""
    from kernels import neuron, tpu

    if chip in tpu.CHIPS:
        known = tpu.CHIPS[chip]
        peak = f"{chip}'s peak, {known.peak(dtype) / 1e12:g} T operations/s"
        memory = f"{chip}'s memory, {known.hbm_bytes_per_second / 1e9:g} GB/s"
        return (known.peak(dtype), peak), (known.hbm_bytes_per_second, memory)
    if chip in neuron.CHIPS:
        rate = neuron.CHIPS[chip].dma_peak_bytes_per_second
        return (math.inf, ""), (rate, f"a core's DMA queues, {rate / 1e9:.0f} GB/s")
    return None


def sources(group: Group) -> Iterator[tuple[str, str, str]]:
    """(names of rows, kind, versions and date and source) of a group's figures, equal ones once."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in group.rows:
        for kind, record in row.figures.items():
            told = "; ".join((record.versions, record.date, record.source))
            found.setdefault((kind, told), []).append(row.name)
    for (kind, said), names in found.items():
        yield ", ".join(names), kind, said
