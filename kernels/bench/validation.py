"""The estimate beside every published measurement that can be reproduced: how far to trust it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.bench.records import Record, add, estimated, read, versions

# What the published wall clock holds beside the chip's work: a Python call, its dispatch, and the
# wait for the result, on the v5e's host. One figure for all rows. The 1024³ rows of large blocks
# and of XLA, whose own work takes 0.02 ms, show it; so they test the model less than the others.
DISPATCH_SECONDS = {"v5e": 0.107e-3}

LONG = 150.0  # seconds of simulation for XLA's own 8192³ matmul, whose grid cannot be cut


@dataclass(frozen=True)
class Case:
    """A published measurement, the program that reproduces it, and how close it must come.

    band: the error allowed, relative. budget: seconds of simulation, None for the usual.
    """

    operator: str
    implementation: str
    workload: str
    chip: str
    program: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    band: float
    why: str
    budget: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table. published_ms: somebody's measurement; estimated_ms: the model's
    milliseconds and the dispatch. record: the estimate alone. source: of the measurement."""

    case: Case
    published_ms: float
    estimated_ms: float
    record: Record
    source: str

    @property
    def bound(self) -> str:
        """What binds the estimate."""
        return self.record.source.split(" binds;")[0]

    @property
    def error(self) -> float:
        """Relative; positive where the estimate is too slow."""
        return self.estimated_ms / self.published_ms - 1

    @property
    def holds(self) -> bool:
        """Whether the error is within the case's band."""
        return abs(self.error) <= self.case.band


def _square(n: int, dtype: str = "bfloat16") -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp

    return (jax.ShapeDtypeStruct((n, n), jnp.dtype(dtype)),) * 2


def _blocked(
    n: int, block: tuple[int, int, int], dtype: str = "bfloat16"
) -> tuple[Any, tuple[Any, ...]]:
    from kernels.matmul import matmul

    # The published kernel, which adds to an accumulator from zero: levels 2 and 3 of chapter 7.
    level = {(128, 128, 128): "v2", (512, 1024, 1024): "v3"}[block]
    function = functools.partial(matmul, implementation=level, interpret=False)
    return function, _square(n, dtype)


def _xla(n: int) -> tuple[Any, tuple[Any, ...]]:
    from kernels.matmul import matmul

    return functools.partial(matmul, implementation="xla"), _square(n)


def _activated(n: int) -> tuple[Any, tuple[Any, ...]]:
    import jax

    from kernels.matmul import BlockSizes, matmul

    block = BlockSizes(512, 1024, 1024)
    function = functools.partial(matmul, block=block, activation=jax.nn.relu, interpret=False)
    return function, _square(n)


def _flash(length: int) -> tuple[Any, tuple[Any, ...]]:
    """JAX's own kernel at its default blocks, 32 × 8 heads of 64."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    heads = jax.ShapeDtypeStruct((32, 8, length, 64), jnp.bfloat16)
    return functools.partial(flash_attention), (heads, heads, heads)


def _cases() -> Iterator[Case]:
    well = "well-blocked, compute binds"
    short = "a step takes some 550 cycles, most of them the latency of a DMA"
    for n in (1024, 4096, 8192):
        size = f"{n}×{n}×{n} bfloat16"
        make = functools.partial(_blocked, n, (512, 1024, 1024))
        yield Case("matmul", "pallas", f"{size} block=512×1024×1024", "v5e", make, 0.06, well)
        make = functools.partial(_xla, n)
        budget = LONG if n == 8192 else None
        yield Case("matmul", "xla", size, "v5e", make, 0.06, "XLA's own", budget)
        make = functools.partial(_blocked, n, (128, 128, 128))
        yield Case("matmul", "pallas", f"{size} block=128×128×128", "v5e", make, 0.45, short)
    yield Case(
        "matmul",
        "pallas",
        "8192×8192×8192 bfloat16 block=512×1024×1024 activation=relu",
        "v5e",
        functools.partial(_activated, 8192),
        0.06,
        well,
    )
    yield Case(
        "matmul",
        "pallas",
        "8192×8192×8192 int8 block=512×1024×1024",
        "v5e",
        functools.partial(_blocked, 8192, (512, 1024, 1024), "int8"),
        0.12,
        "the publication gives a ratio to bfloat16; HBM is nearly full beside the MXUs",
    )
    for n in (512, 1024, 2048, 4096):
        yield Case(
            "attention",
            "jax flash_attention",
            f"B=32 H=8 N={n} D=64 bfloat16",
            "v5e",
            functools.partial(_flash, n),
            0.45,
            "short steps; the measurement is of a compiler of 2024",
        )


CASES = tuple(_cases())


def published(case: Case) -> Record:
    """The published record of a case; ValueError where results/ has none."""
    for record in read("published.csv"):
        if _same(record, case):
            return record
    raise ValueError(f"case is {case.workload!r}; accepted: one that results/published.csv has")


def validate(
    cases: Sequence[Case] = CASES, *, timeout: float = 600.0, stored: bool = True
) -> list[Row]:
    """Estimate each case and set it beside its published measurement.

    timeout: seconds for one compilation. stored: take the estimate of a case that simulates for
    minutes from results/estimated.csv, where that was made with the installed versions.
    Raises as kernels.tpu.estimate does.
    """
    rows = []
    for case in cases:
        record = published(case)
        kept = _stored(case) if stored and case.budget else None
        rows.append(_row(case, record, kept or _estimate(case, timeout)))
    return rows


def recorded(cases: Sequence[Case] = CASES) -> list[Row]:
    """The table from results/ alone, without compiling anything.

    Raises ValueError where the estimate of a case was not recorded with any versions.
    """
    rows = []
    for case in cases:
        kept = [r for r in read("estimated.csv") if _same(r, case)]
        if not kept:
            raise ValueError(f"case is {case.workload!r}; accepted: one in results/estimated.csv")
        rows.append(_row(case, published(case), kept[-1]))
    return rows


def _same(record: Record, case: Case) -> bool:
    wanted = (case.operator, case.implementation, case.workload, case.chip)
    return wanted == (record.operator, record.implementation, record.workload, record.chip)


def save(rows: Sequence[Row]) -> None:
    """Keep the estimates of `rows`, without dispatch, in results/estimated.csv."""
    add("estimated.csv", [row.record for row in rows])


def _row(case: Case, measured: Record, modelled: Record) -> Row:
    scale = {"s": 1e3, "ms": 1.0}
    return Row(
        case,
        measured.value * scale[measured.unit],
        modelled.value * scale[modelled.unit] + DISPATCH_SECONDS[case.chip] * 1e3,
        modelled,
        measured.source,
    )


def _estimate(case: Case, timeout: float) -> Record:
    from kernels.tpu import estimate
    from kernels.tpu.estimate.profile import BUDGET

    function, args = case.program()
    budget = case.budget or BUDGET
    found = estimate(function, *args, chip=case.chip, timeout=timeout, budget=budget)
    return estimated(case.operator, case.implementation, case.workload, found)


def _stored(case: Case) -> Record | None:
    here = versions("jax", "libtpu")
    for record in read("estimated.csv"):
        if _same(record, case) and record.versions == here:
            return record
    return None


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, each figure with its kind."""
    lines = [
        "| workload | implementation | published (ms) | estimated (ms) | error | binds |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.case.workload} | {row.case.implementation} | {row.published_ms:.3f} "
            f"| {row.estimated_ms:.3f} | {row.error:+.1%} | {row.bound} |"
        )
    chips = sorted({row.case.chip for row in rows})
    spent = ", ".join(f"{DISPATCH_SECONDS[c] * 1e3:g} ms on {c}" for c in chips)
    lines.append("")
    lines.append(f"Each estimate includes the dispatch that the published wall clock has: {spent}.")
    lines.append(
        "The estimates are the compiler's own model; only the published ones are measured."
    )
    return "\n".join(lines)
