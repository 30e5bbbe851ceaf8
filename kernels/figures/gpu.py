"""Brackets of GPU programs beside the times that others measured: results/gpu_validation.csv.

An estimate for a GPU says the least and the most (kernels.gpu.estimate). Each row here is a
published time, and what a program's parts take on that chip as its compiled code tells. The bracket
itself is made from the parts whenever it is asked for. A hash of the operator and its sizes puts a
row into one of two halves: what the parts reach where they stand in line was fitted to one.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernels.figures import programs, store
from kernels.figures.bands import half
from kernels.figures.schema import FIELDS, Key, Named
from kernels.machines.checks import fail, one_of
from kernels.machines.gpu.estimate import IN_LINE, LAUNCH, Parts

FILE = "gpu_validation.csv"
INSIDE, WIDE = 0.8, 2.5  # the bars: the share of times inside, and the middle width
# What is told together: operator and implementation, and who wrote the kernels.
SORTS = {
    "attention, Pallas through Triton": ("dot_product_attention", "pallas_triton", "pallas"),
    "attention, Mosaic GPU": ("dot_product_attention", "pallas_mosaic_gpu", "pallas"),
    "attention, XLA": ("dot_product_attention", "xla", "xla"),
    "gated linear unit, Pallas through Triton": ("gated_linear_unit", "pallas_triton", "pallas"),
    "gated linear unit, XLA": ("gated_linear_unit", "xla", "xla"),
    "normalisation, Pallas through Triton": ("normalization", "pallas_triton", "pallas"),
    "normalisation, XLA": ("normalization", "xla", "xla"),
    "float32 product, CUDA C++": ("sgemm", "cuda", "cuda"),
    "product on Hopper, after fast.cu": ("matmul", "fast.cu", "pallas"),
    "sum, after fast.cu": ("sum", "fast.cu", "xla"),
    "product on Blackwell, Mosaic GPU": ("matmul", "mosaic_gpu", "pallas"),
}
# Too few for a half of them to be fitted to: all of their rows are a test.
TESTS = (
    "float32 product, CUDA C++",
    "product on Hopper, after fast.cu",
    "sum, after fast.cu",
    "product on Blackwell, Mosaic GPU",
)
DIGITS = 6
PARTS = tuple(f"{each.name}_ms" for each in fields(Parts))


@dataclass(frozen=True, kw_only=True)
class Bracketed(Key):
    """A published time on a GPU, and what the program is made of there.

    Args:
        published_ms: what was measured.
        memory_ms, products_ms, issue_ms, accesses_ms: as kernels.gpu.estimate.Parts has them.
        kernels: how many the program launches, libraries' among them.
        registers, spills: of the kernel with the most instructions.
        versions, date: of the compiler, and when the parts were found.
        source: who published the time.
    """

    published_ms: float
    memory_ms: float
    products_ms: float = 0.0
    issue_ms: float = 0.0
    accesses_ms: float = 0.0
    kernels: int = 1
    registers: int = 0
    spills: int = 0
    versions: str = ""
    date: str = ""
    source: str

    @property
    def half(self) -> str:
        """ "fit" or "test"."""
        return half(self)

    @property
    def sort(self) -> str:
        """One of SORTS."""
        known = {(operator, made): name for name, (operator, made, _) in SORTS.items()}
        return known[self.operator, self.implementation]

    @property
    def parts(self) -> Parts:
        """In seconds."""
        return Parts(*(getattr(self, name) / 1e3 for name in PARTS))

    @property
    def bracket_ms(self) -> tuple[float, float]:
        """The least and the most."""
        low, high = self.parts.bracket(SORTS[self.sort][2], self.kernels)
        return low * 1e3, high * 1e3

    @property
    def width(self) -> float:
        """The most over the least."""
        low, high = self.bracket_ms
        return high / low if low else math.inf

    @property
    def inside(self) -> bool:
        """Whether what was measured lies in the bracket."""
        low, high = self.bracket_ms
        return low <= self.published_ms <= high

    def cells(self) -> tuple[str, ...]:
        """The row as COLUMNS has it."""
        found = (getattr(self, FIELDS.get(name, name)) for name in COLUMNS)
        return tuple(f"{v:.{DIGITS}f}" if isinstance(v, float) else str(v) for v in found)

    @classmethod
    def of_cells(cls, row: Mapping[str, str]) -> Bracketed:
        """The row of its cells.

        Raises:
            ValueError: for a half that is not that of the row.
        """
        known: dict[str, Any] = {FIELDS.get(name, name): cell for name, cell in row.items()}
        said = known.pop("half")
        for name in ("sizes", "options", "tuning"):
            known[name] = Named.parse(known[name])
        for name in ("published_ms", *PARTS):
            known[name] = float(known[name])
        for name in ("kernels", "registers", "spills"):
            known[name] = int(known[name])
        found = cls(**known)
        if said != found.half:
            fail(f"the half of {found.operator} {found.text}", said, found.half)
        return found


COLUMNS = (
    *("operator", "implementation", "sizes", "dtype", "options", "tuning", "pass", "chip"),
    *("half", "published_ms", *PARTS, "kernels", "registers", "spills"),
    *("versions", "date", "source"),
)


def read(file: Path | None = None) -> list[Bracketed]:
    """The rows; none where there is no file.

    Args:
        file: by default that of results/.

    Raises:
        ValueError: for other columns, and for a row that contradicts itself.
    """
    file = file or store.RESULTS / FILE
    if not file.exists():
        return []
    with open(file, newline="", encoding="utf-8") as opened:
        rows = csv.DictReader(opened)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            fail(f"the columns of {file.name}", rows.fieldnames, ", ".join(COLUMNS))
        return [Bracketed.of_cells(row) for row in rows]


def write(rows: Iterable[Bracketed], file: Path | None = None) -> None:
    """Replace the file by these rows, sorted.

    Args:
        rows: of two with one key the last one is kept.
        file: by default that of results/.
    """
    file = file or store.RESULTS / FILE
    with store.locked(file):
        known = {row.key: row for row in rows}
        store.write_rows(file, COLUMNS, sorted(row.cells() for row in known.values()))


@dataclass(frozen=True)
class Held:
    """How good the brackets of some rows are.

    Args:
        rows: how many.
        inside: the share of measured times inside.
        width: the middle one, the most over the least.
        below, above: how many measured times lie on either side.
    """

    rows: int
    inside: float
    width: float
    below: int
    above: int

    @property
    def reached(self) -> bool:
        """Whether both bars are reached."""
        return self.inside >= INSIDE and self.width <= WIDE


def held(rows: Sequence[Bracketed]) -> Held:
    """How good the brackets are.

    Args:
        rows: one or more.
    """
    return Held(
        rows=len(rows),
        inside=sum(row.inside for row in rows) / len(rows),
        width=statistics.median(row.width for row in rows),
        below=sum(row.published_ms < row.bracket_ms[0] for row in rows),
        above=sum(row.published_ms > row.bracket_ms[1] for row in rows),
    )


def fitted(rows: Iterable[Bracketed], who: str) -> float:
    """What the parts reach in line, by the times of the fitting half.

    At least seven in eight of its times lie below the most, and all of them where the middle width
    stays within the bar.

    Args:
        rows: of any kind; those of the fitting half and of `who` count.
        who: one of IN_LINE.
    """
    one_of("who", who, IN_LINE)
    known = [
        (row, sum(getattr(row.parts, each.name) for each in fields(Parts)))
        for row in rows
        if row.half == "fit" and SORTS[row.sort][2] == who and row.sort not in TESTS
    ]
    shares = sorted(line * 1e3 / row.published_ms for row, line in known)
    eighth = len(shares) // 8
    for share in shares[:eighth]:
        widths = [
            (row.kernels * LAUNCH + line / share) / row.parts.bracket(who)[0] for row, line in known
        ]
        if statistics.median(widths) <= WIDE:
            return share
    return shares[eighth]


TITLES = ("program", "half", "rows", "inside", "below, above", "middle width", "the bar")


def lines(rows: Sequence[Bracketed]) -> list[tuple[str, ...]]:
    """The share of measured times inside their brackets, a line for each sort and half.

    Args:
        rows: as `read` gives them.

    Returns:
        Cells for each of TITLES.
    """
    made: list[tuple[str, ...]] = []
    for sort in SORTS:
        halves = [
            (part, [row for row in rows if row.sort == sort and row.half == part])
            for part in ("fit", "test")
        ]
        if sort in TESTS:
            halves = [("test", [row for _, those in halves for row in those])]
        for part, those in halves:
            if not those:
                continue
            found = held(those)
            bar = ("reached" if found.reached else "missed") if part == "test" else "–"
            made.append(
                (
                    sort,
                    part,
                    str(found.rows),
                    f"{found.inside:.0%}",
                    f"{found.below}, {found.above}",
                    f"{found.width:.2f}",
                    bar,
                )
            )
    return made


def told(rows: Sequence[Bracketed]) -> list[str]:
    """What the brackets are, and how good they are together, in paragraphs.

    Args:
        rows: as `read` gives them.
    """
    tests = [row for row in rows if row.half == "test" or row.sort in TESTS]
    found = held(tests)
    missed = [line for line in lines(rows) if line[-1] == "missed"]
    attention = Counter(
        row.sort.partition(", ")[2]
        for row in rows
        if row.sort.startswith("attention") and row.published_ms > row.bracket_ms[1]
    )
    slow = ", ".join(f"{who}: {count}" for who, count in sorted(attention.items()))
    where = "; ".join(f"{line[0]} ({line[3]} inside, {line[5]} wide)" for line in missed)
    return [
        "A GPU's compiler leaves to the hardware what runs at the same time as what, so an "
        "estimate is a bracket. The least: memory, products, the issue of instructions and the "
        "accesses to memory all overlap, and the longest of them binds. The most: they stand in "
        "line, at a share of their rates that was fitted to the half of the rows called fit. The "
        "parts themselves are read from the compiled program: bytes from XLA's text, instructions "
        "from the machine code of the loop that multiplies.",
        f"Of the {found.rows} times of the test half, {found.inside:.0%} lie inside their "
        f"bracket, whose middle width is a factor of {found.width:.2f}. The bar is {INSIDE:.0%} "
        f"inside and a middle width of {WIDE:g} at most"
        + (f"; it is missed by {where}." if where else ", for every sort of program.")
        + " The halves are not blind: both were in view while the model took its shape.",
        "Why some lie outside. Times below the bracket are of normalisations whose arrays the GPU "
        "still had in its cache when it was timed, and of the naive float32 product, whose card "
        "runs faster than the clock of its data sheet. Of the ladder on Blackwell the first four "
        "steps lie above it: they leave the tensor cores idle while they wait, for a copy, a "
        "product or the last byte of a tile, and no part that is read from code counts waiting. "
        "The last three wait for little, and lie inside. (The first five are read from kernels of "
        "ours, the last two from JAX's.)"
        + (f" Attention kernels lie above it too ({slow}); why is not found out." if slow else ""),
        "Why some brackets are wide. The bracket is widest where parts are nearly equal: all at "
        "once they take as long as one of them, in line as long as their sum. Triton's gated "
        "linear units are of this kind, with memory, products, issue and accesses within a factor "
        "of four of each other. Their times lie near the upper end, so that a compiler that did "
        "not overlap would explain them; but that was seen in the times, and is not in the code. "
        "The float32 products of CUDA C++ have no constant of their own, since six kernels of one "
        "size are too few to fit to.",
        "Of fast.cu its README has the last kernel's rates, at two sizes, and its sum's. Steps "
        "in between are told without times there, so they have no rows. Its kernels need headers "
        "of the CUDA toolkit, which this book does not install: what is read is ours, of the same "
        "shape. The two rates that nothing is taken to exceed, of the memory and of the tensor "
        "cores, are those of its sum and of its larger product: these two rows cannot lie below, "
        "and prove nothing at that end.",
        "Tokamax's gated linear units for Mosaic GPU need a newer JAX than this book's, and its "
        "ragged products depend on the sizes of their groups: neither is here.",
    ]


# --- what ran -------------------------------------------------------------------------------------

CHIPS = ("h100", "b200")
DEVICE = {  # as tokamax asks for it
    "device_kind": "NVIDIA H100 80GB HBM3",
    "core_count": 132,
    "compute_capability": "9.0",
}


@dataclass(frozen=True)
class Ran:
    """What a row ran.

    Args:
        function: of JAX.
        arguments: jax.ShapeDtypeStruct, or None.
        flops: of its products, a multiply-add counting two.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    flops: float


def program(key: Key) -> Ran:
    """The program of a row: tokamax's own kernel at the row's configuration, or its plain JAX; of
    what others wrote in CUDA C++ or in a guide, ours of the same shape.

    Args:
        key: of the row; its chip is one of CHIPS.

    Raises:
        ValueError: for an operator that nothing here runs.
        MissingPackage: without tokamax, where the kernel is its own.
    """
    from kernels.machines import optional

    one_of("chip", key.chip, CHIPS)
    one_of("operator", key.operator, _MADE)
    if key.operator in TOKAMAX:
        optional.require("tokamax", f"the kernels of {key.operator}/{key.implementation}")
    return _MADE[key.operator](key)


TOKAMAX = ("dot_product_attention", "gated_linear_unit", "normalization")


def _matmul(key: Key) -> Ran:
    """A step of the ladder on Blackwell; on Hopper the product that fast.cu's is held against."""
    import functools

    size = key.sizes
    if key.chip == "b200":
        from kernels.matmul import blackwell

        step = blackwell.STEPS.index(str(key.options["step"]).replace("_", " "))
        made = functools.partial(blackwell.product, step=step)
    else:
        from kernels.matmul import matmul

        made = functools.partial(matmul, implementation="mosaic_gpu")
    left = programs._array((size["m"], size["k"]), key.dtype)
    right = programs._array((size["k"], size["n"]), key.dtype)
    return Ran(made, (left, right), 2 * size["m"] * size["k"] * size["n"])


def _sum(key: Key) -> Ran:
    import jax.numpy as jnp

    return Ran(jnp.sum, (programs._array((key.sizes["n"],), key.dtype),), 0.0)


def _attention(key: Key) -> Ran:
    import jax
    import jax.numpy as jnp

    from kernels.machines.compat import tokamax_gpu as tokamax

    size, options = key.sizes, key.options.typed()
    causal, residuals = options.get("causal", False), options.get("residuals", False)
    op = tokamax.attention(key.implementation, _tuning(key))
    product: Any = jax.lax.Precision.DEFAULT
    if options.get("precision"):
        product = jax.lax.DotAlgorithmPreset[str(options["precision"])]

    def attention(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
        return tokamax.call(
            op,
            DEVICE,
            *(q, k, v),
            precision=(product, product),
            logits_dtype=jnp.float32,
            logits_scale=1 / math.sqrt(size["d"]),
            bias=bias,
            mask=tokamax.mask(mask, causal),
            dropout_mask=None,
            dropout_rate=0.0,
            paging_info=None,
            q_indices=None,
            k_indices=None,
            normalize_output=True,
            return_residuals=residuals,
        )

    pairs = size["b"] * size["h"] * size["n"] * size["m"]
    if causal and key.implementation != "xla":  # XLA multiplies what the mask hides as well
        pairs *= 0.5
    return Ran(attention, programs._attention_arguments(key), 2 * pairs * (size["d"] + size["e"]))


def _gated(key: Key) -> Ran:
    import jax

    from kernels.machines.compat import tokamax_gpu as tokamax

    size, options = key.sizes, key.options.typed()
    op = tokamax.gated_linear_unit(key.implementation, _tuning(key))

    def gated_linear_unit(x: Any, weights: Any) -> Any:
        return tokamax.call(
            op,
            DEVICE,
            *(x, weights),
            activation=getattr(jax.nn, options["activation"]),
            precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32,
            return_residuals=False,
        )

    x = programs._array((*programs._leading(options, size["m"]), size["k"]), key.dtype)
    weights = programs._array((size["k"], 2, size["n"]), key.dtype)
    return Ran(gated_linear_unit, (x, weights), 4 * size["m"] * size["k"] * size["n"])


def _normalization(key: Key) -> Ran:
    from kernels.machines.compat import tokamax_gpu as tokamax

    size, options = key.sizes, key.options.typed()
    op = tokamax.normalization(key.implementation, _tuning(key))

    def normalization(x: Any, scale: Any, offset: Any) -> Any:
        return tokamax.call(
            op,
            DEVICE,
            *(x, scale, offset),
            axis=-1,
            epsilon=1e-6,
            scale_offset=0.0,
            subtract_mean=options.get("subtract_mean", False),
            return_residuals=options.get("residuals", False),
        )

    shape = (*programs._leading(options, size["m"]), size["n"])
    one = programs._array((size["n"],), "float32")
    offset = one if options.get("subtract_mean") else None
    return Ran(normalization, (programs._array(shape, key.dtype), one, offset), 0.0)


_MADE: dict[str, Callable[[Key], Ran]] = {
    "dot_product_attention": _attention,
    "gated_linear_unit": _gated,
    "normalization": _normalization,
    "matmul": _matmul,
    "sum": _sum,
}


def _tuning(key: Key) -> dict[str, Any]:
    """The fields of tokamax's Config."""
    return dict(key.tuning.typed())


def found(key: Key, published_ms: float, source: str, *, timeout: float = 60.0) -> Bracketed:
    """Compile what a row ran, and read its parts from the code.

    Args:
        key: of the row.
        published_ms: what was measured.
        source: who published it.
        timeout: seconds for the compiler.

    Raises:
        GpuCompileError: for what a compiler refuses.
        ValueError: for what nothing here runs.
        MissingPackage: without tokamax, the plugin or NVIDIA's tools.
    """
    import time

    from kernels.figures.schema import versions
    from kernels.machines.gpu.compiler import compile_program
    from kernels.machines.gpu.estimate import parts
    from kernels.machines.gpu.export import export
    from kernels.machines.gpu.operations import operations

    ran = program(key)
    compiled = compile_program(export(ran.function, *ran.arguments, chip=key.chip), timeout=timeout)
    steps = operations(compiled.module)
    moved = sum(step.bytes for step in steps)
    largest = max(compiled.kernels, key=lambda each: len(each.instructions), default=None)
    pallas = SORTS[Bracketed(**_key(key), published_ms=1, memory_ms=1, source="-").sort][2]
    if pallas == "pallas" and largest is not None:
        made = parts(largest, ran.flops, moved)
    else:
        from kernels.machines.gpu.chips import chip

        made = Parts(moved / chip(key.chip).bytes_per_second, ran.flops / chip(key.chip).bf16_flops)
    return Bracketed(
        **_key(key),
        published_ms=published_ms,
        **{f"{each.name}_ms": 1e3 * getattr(made, each.name) for each in fields(Parts)},
        kernels=len(steps),
        registers=largest.registers if largest else 0,
        spills=largest.spills if largest else 0,
        versions=versions("jax"),
        date=time.strftime("%Y-%m-%d"),
        source=source,
    )


def _key(key: Key) -> dict[str, Any]:
    return {each.name: getattr(key, each.name) for each in fields(Key)}
