"""The estimate beside every published measurement that can be reproduced: how far to trust it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.catalog import OPERATORS
from kernels.checks import fail
from kernels.records.report import name_of
from kernels.records.schema import Key, Record, versions
from kernels.records.store import add, read
from kernels.workload import Workload

# What the published wall clock holds beside the chip's work: a Python call, its dispatch, and the
# wait for the result, on the v5e's host. One figure for all rows. The 1024³ rows of large blocks
# and of XLA, whose own work takes 0.02 ms, show it; so they test the model less than the others.
DISPATCH_SECONDS = {"v5e": 0.107e-3}

LONG = 150.0  # seconds of simulation for XLA's own 8192³ matmul, whose grid cannot be cut
PUBLISHED = "published kernel"  # the one that is printed with the measurements
ESTIMATED = "estimated.csv"


@dataclass(frozen=True)
class Case:
    """A published measurement, what reproduces it here, and how close that must come.

    Args:
        key: what runs: its record is named so.
        published: what was measured.
        shapes: of the arguments; their dtype is the key's.
        function: builds what runs, where the catalog has it at another tuning only.
        options: of the function: those of the key, as Python has them.
        band: the error allowed, relative.
        why: why so much.
        budget: seconds of simulation, None for the usual.
    """

    key: Key
    published: Key
    shapes: tuple[tuple[int, ...], ...]
    band: float
    why: str
    function: Callable[[], Callable[..., Any]] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    budget: float | None = None

    def program(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function that the key names, compiled for a chip and not interpreted, and what it
        takes."""
        import jax

        function = self.function and self.function()
        if function is None:
            function = functools.partial(
                OPERATORS[self.key.operator].function,
                implementation=self.key.implementation,
                interpret=False,
                **dict(self.options),
            )
        return function, tuple(jax.ShapeDtypeStruct(s, self.key.dtype) for s in self.shapes)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        published: somebody's measurement.
        record: the estimate alone.
        published_ms: as measured, dispatch included.
        estimated_ms: the model's milliseconds, and the dispatch.
    """

    case: Case
    published: Record
    record: Record
    published_ms: float
    estimated_ms: float

    @property
    def error(self) -> float:
        """Relative; positive where the estimate is too slow."""
        return self.estimated_ms / self.published_ms - 1

    @property
    def holds(self) -> bool:
        """Whether the error is within the case's band."""
        return abs(self.error) <= self.case.band


def _matmul(
    implementation: str, n: int, dtype: str = "bfloat16", block: str = "", **more: Any
) -> Case:
    """A square product; block: of the published kernel, which has blocks whoever runs here."""
    from kernels.matmul import BlockSizes

    options = {name: more.pop(name) for name in ("activation",) if name in more}
    tunable = OPERATORS["matmul"][implementation].tunable and bool(block)
    tuning = {"block": BlockSizes(*map(int, block.split("×")))} if tunable else {}
    sizes = dict.fromkeys("mkn", n)
    measured = Workload("", sizes, dtype, options=options, tuning={"block": block} if block else {})
    runs = Workload("", sizes, dtype, options=options, tuning=tuning)
    return Case(
        Key.of("matmul", implementation, runs, "v5e"),
        Key.of("matmul", PUBLISHED if block else implementation, measured, "v5e"),
        ((n, n), (n, n)),
        options=(*options.items(), *tuning.items()),
        **more,
    )


def _default_flash() -> Callable[..., Any]:
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    return functools.partial(flash_attention)


def _flash(n: int, **more: Any) -> Case:
    """JAX's own kernel at its default blocks, 32 × 8 heads of 64."""
    sizes = {"b": 32, "h": 8, "n": n, "m": n, "d": 64}
    workload = Workload("", sizes, "bfloat16", tuning={"block": 128})
    key = Key.of("attention", "jax_flash", workload, "v5e")
    return Case(key, key, ((32, 8, n, 64),) * 3, function=_default_flash, **more)


def _cases() -> Iterator[Case]:
    import jax

    well = "well-blocked, compute binds"
    short = "a step takes some 550 cycles, most of them the latency of a DMA"
    large, small = "512×1024×1024", "128×128×128"
    # The published kernel adds to an accumulator from zero: levels 2 and 3 of our own matmul.
    for n in (1024, 4096, 8192):
        yield _matmul("v3", n, block=large, band=0.06, why=well)
        budget = LONG if n == 8192 else None
        yield _matmul("xla", n, band=0.06, why="XLA's own", budget=budget)
        yield _matmul("v2", n, block=small, band=0.45, why=short)
    # The levels take no activation.
    yield _matmul("pallas", 8192, block=large, activation=jax.nn.relu, band=0.06, why=well)
    ratio = "the publication gives a ratio to bfloat16; HBM is nearly full beside the MXUs"
    yield _matmul("v3", 8192, "int8", block=large, band=0.12, why=ratio)
    old = "short steps; the measurement is of a compiler of 2024"
    for n in (512, 1024, 2048, 4096):
        yield _flash(n, band=0.45, why=old)


@functools.cache
def cases() -> tuple[Case, ...]:
    """Every published measurement that can be reproduced here."""
    return tuple(_cases())


def published(case: Case) -> Record:
    """The published record of a case; ValueError where results/ has none."""
    for record in read("published.csv"):
        if record.key == case.published and record.quantity == "time":
            return record
    fail("case", f"{case.published}", "one that results/published.csv has")
    raise AssertionError


def validate(
    chosen: Sequence[Case] | None = None, *, timeout: float = 600.0, stored: bool = True
) -> list[Row]:
    """Estimate cases and set each beside its published measurement.

    Args:
        chosen: all of them if None.
        timeout: seconds for one compilation.
        stored: take the estimate of a case that simulates for minutes from results/estimated.csv,
            where that was made with the installed versions.

    Raises:
        TpuCompileError: as kernels.tpu.estimate does.
    """
    rows = []
    for case in cases() if chosen is None else chosen:
        kept = _stored(case, versions("jax", "libtpu")) if stored and case.budget else None
        rows.append(_row(case, published(case), kept or _estimate(case, timeout)))
    return rows


def recorded(chosen: Sequence[Case] | None = None) -> list[Row]:
    """The table from results/ alone, without compiling anything.

    Raises:
        ValueError: where the estimate of a case was not recorded with any versions.
    """
    rows = []
    for case in cases() if chosen is None else chosen:
        kept = _stored(case)
        if kept is None:
            fail("case", f"{case.key}", "one in results/estimated.csv")
            raise AssertionError
        rows.append(_row(case, published(case), kept))
    return rows


def save(rows: Sequence[Row]) -> None:
    """Keep the estimates of `rows`, without dispatch, in results/estimated.csv."""
    add(ESTIMATED, [row.record for row in rows])


def _row(case: Case, measured: Record, modelled: Record) -> Row:
    scale = {"s": 1e3, "ms": 1.0}
    return Row(
        case,
        measured,
        modelled,
        measured.value * scale[measured.unit],
        modelled.value * scale[modelled.unit] + DISPATCH_SECONDS[case.key.chip] * 1e3,
    )


def _estimate(case: Case, timeout: float) -> Record:
    from kernels.tpu import estimate
    from kernels.tpu.estimate.profile import BUDGET

    function, args = case.program()
    budget = case.budget or BUDGET
    found = estimate(function, *args, chip=case.key.chip, timeout=timeout, budget=budget)
    return case.key.estimated(found, name_of(case.key))


def _stored(case: Case, of: str = "") -> Record | None:
    """The newest record of a case, of some versions or of any."""
    kept = [
        record
        for record in read(ESTIMATED)
        if record.key == case.key and record.quantity == "time" and of in ("", record.versions)
    ]
    return max(kept, key=lambda record: record.date, default=None)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, each figure with its kind."""
    lines = [
        "| problem | measured | estimated of | published (ms) | estimated (ms) | error | binds |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for row in rows:
        of = f"{row.published.implementation} {row.published.tuning}".strip()
        lines.append(
            f"| {row.case.key.text} | {of} | {row.record.implementation} "
            f"| {row.published_ms:.3f} | {row.estimated_ms:.3f} | {row.error:+.1%} "
            f"| {row.record.bound} |"
        )
    chips = sorted({row.case.key.chip for row in rows})
    spent = ", ".join(f"{DISPATCH_SECONDS[c] * 1e3:g} ms on {c}" for c in chips)
    lines.append("")
    lines.append(f"Each estimate includes the dispatch that the published wall clock has: {spent}.")
    lines.append(
        "The estimates are the compiler's own model; only the published ones are measured."
    )
    return "\n".join(lines)
