"""Every figure of results/ beside the others of its problem: rows for tables, kinds kept apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernels.figures.schema import PASSES, QUANTITIES, Named, Problem, Record
from kernels.figures.store import TUNED, read
from kernels.figures.table import Table
from kernels.machines.checks import one_of
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

__all__ = ["COLUMNS", "Group", "Limit", "Line", "Standing", "cell", "compare", "digits", "figures"]
__all__ += ["floor", "groups", "name_of", "parts", "percent", "sources", "trials"]
COLUMNS = ("published", "estimated", "measured")  # the kinds, in the order of a table
FIGURES = tuple(f"{kind}.csv" for kind in COLUMNS)
PARTS, TRIALS = "vit_step.csv", TUNED
COSTS = ("s", "ms", "GB")  # units of which less is better


Subject = tuple[Problem, str, Named, str]  # a problem; quantity, part and unit of its figures


@dataclass(frozen=True)
class Limit:
    """What nothing can beat, in the unit of the figures, and why."""

    value: float
    why: str


@dataclass(frozen=True)
class Standing:
    """One implementation on one problem and chip.

    Args:
        implementation, tuning: whose figures they are, and how it was tuned where that is said.
        figures: kind → the newest record of that kind.
        others: kind → the best figure of another row, and whose.
        limits: kind → what bounds it.
    """

    implementation: str
    tuning: Named
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
    """All that is known of one quantity of one problem on one chip, the best row first.

    Args:
        problem: what the figures are of.
        name: the problem's, in the records or else in the catalog; may be empty.
        quantity, part, unit: as in a Record.
        rows: one for each implementation and tuning.
    """

    problem: Problem
    name: str
    quantity: str
    part: Named
    unit: str
    rows: tuple[Standing, ...]

    @property
    def operator(self) -> str:
        """The problem's operator."""
        return self.problem.operator

    @property
    def chip(self) -> str:
        """Where the problem is solved."""
        return self.problem.chip

    @property
    def limits(self) -> dict[str, Limit]:
        """Kind → the limit of its figures."""
        return {kind: limit for row in self.rows for kind, limit in row.limits.items()}

    @property
    def details(self) -> str:
        """Sizes, dtype and options, and what the figures are of where it is not the time of a
        forward pass."""
        said = "gradient", "backward", "own estimate", "slowdown"
        kinds = [kind for kind in (self.problem.pass_, self.quantity) if kind in said]
        return ", ".join((self.problem.text, *kinds, *map(str, self.part.values())))

    @property
    def label(self) -> str:
        """The workload in a word or two."""
        if not self.name:
            return self.details
        way = self.problem.pass_
        return f"{self.name}, {way}" if way in ("gradient", "backward") else self.name


def figures() -> list[Group]:
    """The problems of results/published.csv, estimated.csv and measured.csv that are an operator's
    of the catalog; programs of others are what the estimates are held against, and no figure."""
    known = (record for path in FIGURES for record in read(path, missing_ok=True))
    own = [record for record in known if record.operator in OPERATORS]
    for place, record in enumerate(own):
        names = OPERATORS[record.operator].workloads.published
        if record.kind == "published" and names:  # its sizes are called as the operator calls them
            sizes = Named({names.get(n, n): v for n, v in record.sizes.items()})
            own[place] = replace(record, sizes=sizes)
    return groups(own)


def parts() -> list[Group]:
    """Where the time of whole programs goes, of results/vit_step.csv."""
    return groups(read(PARTS, missing_ok=True))


def trials() -> list[Group]:
    """The tuner's trials of results/tuned.csv; each row is a tuning."""
    return groups(read(TRIALS, missing_ok=True))


def groups(records: Iterable[Record]) -> list[Group]:
    """Sort records into problems. Of two figures of one kind and row the newer one counts.

    A ratio is of figures of one problem, one chip, one unit and one kind. A record of what bounds
    the others is their limit and no row; where there is none, `floor` is.

    Returns:
        A group for each quantity of each problem on each chip, in the catalog's order.
    """
    subjects: dict[Subject, dict[tuple[str, Named], dict[str, Record]]] = {}
    limits: dict[Problem, dict[str, Limit]] = {}
    names: dict[Problem, str] = {}
    for record in sorted(records, key=lambda record: record.date):
        problem = record.problem
        names[problem] = names.get(problem) or record.workload
        if record.quantity == "limit":
            why = f"{record.implementation}, {record.kind} beside them"
            limits.setdefault(problem, {})[record.kind] = Limit(record.value, why)
        else:
            subject = problem, record.quantity, record.part, record.unit
            row = record.implementation, record.tuning
            subjects.setdefault(subject, {}).setdefault(row, {})[record.kind] = record
    grouped = [
        _group(subject, rows, names[subject[0]], **limits.get(subject[0], {}))
        for subject, rows in subjects.items()
    ]
    return sorted(grouped, key=_order)


def floor(problem: Problem) -> Limit | None:
    """The least milliseconds that a chip needs for a problem.

    Returns:
        The larger of two: matrix products at the peak, and arguments and results moved once at the
        memory's bandwidth. None where the chip's rates, or what the problem needs, are not known.
    """
    if problem.operator not in OPERATORS or problem.pass_ not in ("forward", "gradient"):
        return None
    known = OPERATORS[problem.operator].workloads
    rates = _rates(problem.chip, problem.dtype)
    if not known.work or not rates or set(problem.sizes) != set(known.named[0].sizes):
        return None
    workload = Workload("recorded", problem.sizes, problem.dtype, options=problem.options.typed())
    needs = zip(known.work(workload, problem.pass_ == "gradient"), rates, strict=True)
    devices = problem.sizes.get("devices", 1)  # share the work
    bounds = [Limit(1e3 * need / rate / devices, why) for need, (rate, why) in needs]
    return max(bounds, key=lambda limit: limit.value)


def compare(
    operator: str,
    workloads: Sequence[str] = (),
    implementations: Sequence[str] = (),
    chips: Sequence[str] = (),
) -> Table | Line:
    """What was measured, beside what was published and estimated of the same problem and chip.

    Args:
        operator: of the catalog.
        workloads: names of the operator's workloads; all if empty.
        implementations, chips: of records; all if empty.

    Returns:
        A table of the problems that have a measurement; where there is none, a line that says how
        to make one.

    Raises:
        ValueError: for an operator that the catalog has not.
    """
    one_of("operator", operator, OPERATORS)
    among = lambda name, wanted: not wanted or name in wanted
    beside = [
        (group, row)
        for group in figures()
        if (group.operator, group.quantity, group.unit) == (operator, "time", "ms")
        and among(group.name, workloads)
        and among(group.chip, chips)
        and any("measured" in row.figures for row in group.rows)
        for row in group.rows
        if among(row.implementation, implementations)
    ]
    if not beside:
        where = f"on {' or '.join(chips) or 'a device'}"
        command = f"python -m kernels bench {operator} --record"
        return Line(f"Run this {where} to see its figures here: {command}")
    kinds = [kind for kind in COLUMNS if any(kind in row.figures for _, row in beside)]
    rows = [
        (
            *(group.label, group.chip, row.name),
            *(cell(row.figures.get(kind)) for kind in kinds),
            percent(row.share("measured")) if "measured" in row.figures else "–",
        )
        for group, row in beside
    ]
    titles = ("workload", "on", "implementation", *(f"{kind}, ms" for kind in kinds))
    return Table((*titles, "of the limit, measured"), tuple(rows))


class Line(str):
    """A line that a notebook shows as it is."""

    __repr__ = str.__str__


def digits(value: float) -> str:
    """Three digits, or as many as a whole number has."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def percent(share: float | None, none: str = "–") -> str:
    """A share of a table."""
    if share is None:
        return none
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def cell(record: Record | None, none: str = "–") -> str:
    """A figure of a table, with its unit where it is not ms."""
    if record is None:
        return none
    if not math.isfinite(record.value):
        return "refused"
    return digits(record.value) + (f" {record.unit}" if record.unit != "ms" else "")


def _group(
    subject: Subject, rows: dict[tuple[str, Named], dict[str, Record]], name: str, **limits: Limit
) -> Group:
    problem, quantity, part, unit = subject
    timed = unit == "ms" and quantity == "time" and not part
    least = floor(problem) if timed else None
    bounds = {kind: limits.get(kind, least) if timed else None for kind in COLUMNS}
    standings = []
    for key, figures in rows.items():
        others = {}
        for kind in figures if unit in COSTS else ():
            rest = [
                (other[kind].value, " ".join(map(str, name)).strip())
                for name, other in rows.items()
                if name != key and kind in other and math.isfinite(other[kind].value)
            ]
            if rest:
                others[kind] = min(rest)
        known = {kind: limit for kind in figures if (limit := bounds[kind])}
        standings.append(Standing(*key, figures, others, known))
    ordered = tuple(sorted(standings, key=_rank))
    return Group(problem, name or name_of(problem), quantity, part, unit, ordered)


def _rank(row: Standing) -> tuple[float, ...]:
    """By figures of one kind: the measured ones first, then the estimated, then the published."""
    for place, kind in enumerate(reversed(COLUMNS)):
        if kind in row.figures:
            return place, row.figures[kind].value
    return len(COLUMNS), 0.0


def _named(problem: Problem) -> list[Workload]:
    """The workloads of the problem's operator, those of the figures first."""
    operator = OPERATORS.get(problem.operator)
    return [*operator.workloads.figures, *operator.workloads.named] if operator else []


def name_of(problem: Problem) -> str:
    """The name that the catalog has for a problem; empty where it has none."""
    return next((w.name for w in _named(problem) if problem.solves(w)), "")


def _order(group: Group) -> tuple[object, ...]:
    """As the catalog has operators and workloads; what it has not, behind, numbers by value."""
    problem, known = group.problem, _named(group.problem)
    place = next((i for i, w in enumerate(known) if problem.solves(w)), len(known))
    return (
        list(OPERATORS).index(group.operator) if known else len(OPERATORS),
        group.operator,
        place,
        list(problem.sizes.values()),
        problem.text,
        PASSES.index(problem.pass_),
        problem.chip,
        QUANTITIES.index(group.quantity),
        str(group.part),
        group.unit,
    )


def _rates(chip: str, dtype: str) -> tuple[tuple[float, str], tuple[float, str]] | None:
    """Operations of matrix products and bytes a second, each with its name."""
    from kernels.machines import neuron, tpu

    if chip in tpu.CHIPS:
        known = tpu.CHIPS[chip]
        peak = f"{chip}'s peak, {known.peak(dtype) / 1e12:g} T operations/s"
        memory = f"{chip}'s memory, {known.hbm_bytes_per_second / 1e9:g} GB/s"
        return (known.peak(dtype), peak), (known.hbm_bytes_per_second, memory)
    if chip in neuron.CHIPS:
        rate = neuron.CHIPS[chip].dma_peak_bytes_per_second
        return (math.inf, ""), (rate, f"a core's DMA engines, {rate / 1e9:.0f} GB/s")
    return None


def sources(group: Group) -> Iterator[tuple[str, str, str]]:
    """(names of rows, kind, versions, date, method and source in a line) of a group's figures,
    equal ones once."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in group.rows:
        for kind, record in row.figures.items():
            how = f"{record.bound} binds" if record.bound else ""
            known = (record.versions, record.date, how, record.method, record.source)
            said = "; ".join(filter(None, known))
            names.setdefault((kind, said), []).append(row.name)
    for (kind, said), rows in names.items():
        yield ", ".join(rows), kind, said
