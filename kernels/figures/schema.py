"""What a figure is of, and where it comes from: one record, a column for each thing that is known.

Imports nothing of the catalog: operators may make records too.
"""

from __future__ import annotations

import ast
import datetime
import functools
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kernels.machines import optional
from kernels.machines.checks import fail, one_of

if TYPE_CHECKING:
    from kernels.proof.workload import Workload

KINDS = ("measured", "estimated", "published")
# "gradient" is of the gradients, forward pass included; "backward" of the way back alone; "step" of
# a whole training step.
PASSES = ("forward", "backward", "gradient", "step")
# "traffic" is bytes between memory and chip; "limit" what nothing can beat, measured beside the
# others; "own estimate" the compiler's own; "slowdown" against the framework's own form.
QUANTITIES = ("time", "traffic", "limit", "own estimate", "slowdown")
HALVES = ("fit", "test")  # constants may be fitted on one, and the other says how good the fit is
LATE = "had not finished"  # what a method says of a profile that ran out of time

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Named(Mapping[str, Any]):
    """Names and their values, which never change, with one text: "m=4096 k=4096 n=4096".

    Equal to any mapping of the same names and values, in whatever order; the text keeps the order.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """Take names and values: whole numbers stay numbers, everything else is kept as its text.
        ValueError for a name or a value whose text cannot be told from the others."""
        self._values = {name: _plain(value) for name, value in (values or {}).items()}
        for name, value in self._values.items():
            if not re.fullmatch(r"[^=\s]+", name):
                fail("name", repr(name), "a word without =")
            if not re.fullmatch(r"[^=\s]+", str(value)):
                fail(name, repr(value), "a value without =")

    @classmethod
    @functools.lru_cache(4096)  # a file says the same again and again
    def parse(cls, text: str) -> Named:
        """The names and values of their text. Raises ValueError where a word lacks its "="."""
        pairs = [word.partition("=") for word in text.split()]
        for name, equal, value in pairs:
            if not (name and equal and value):
                fail("text", repr(text), "words such as m=4096")
        return cls({name: value for name, _, value in pairs})

    def typed(self) -> dict[str, Any]:
        """The values as Python has them: True, 0.5, (2048, 4096); words stay words."""
        return {name: _value(value) for name, value in self.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._values.items())

    def __repr__(self) -> str:
        return f"Named({self._values})"


def _plain(value: Any) -> int | str:
    """A whole number, or the text of anything else, without spaces."""
    if isinstance(value, tuple | list):
        return ",".join(str(_plain(item)) for item in value)
    text = "".join(str(getattr(value, "__name__", value)).split())
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _value(value: Any) -> Any:
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError):
        return value


NOTHING = Named()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be solved, and where.

    Args:
        operator: its name in the catalog.
        sizes: names and whole numbers, such as m=4096 k=4096 n=4096.
        dtype: of the operands.
        options: those of the problem, such as activation=relu or causal=True; values= where the
            operands are not drawn from a normal distribution.
        pass_: one of PASSES; the column is called "pass".
        chip: "v5e", "inf2", or a machine in words.
    """

    operator: str
    sizes: Named
    dtype: str
    options: Named = NOTHING
    pass_: str = "forward"
    chip: str

    def __post_init__(self) -> None:
        for name in ("sizes", "options", "tuning", "part"):
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, Named):  # any mapping will do
                object.__setattr__(self, name, Named(value))
        one_of("pass", self.pass_, PASSES)
        for name, size in self.sizes.items():
            if not isinstance(size, int):
                fail(f"the size {name}", repr(size), "a whole number")

    @property
    def problem(self) -> Problem:
        """The problem alone."""
        return Problem(**_some(self, Problem))

    @property
    def half(self) -> str:
        """Which half of what was measured it falls into: "fit" or "test".

        All of one operator and sizes fall into the same one, whoever solves them and on which chip:
        near twins on both sides would make the test an easy one.
        """
        sizes = " ".join(f"{name}={self.sizes[name]}" for name in sorted(self.sizes))
        digest = hashlib.sha256(f"{self.operator} {sizes}".encode()).digest()
        return HALVES[digest[0] % 2]

    @property
    def text(self) -> str:
        """Sizes, dtype and options in a line."""
        return " ".join(str(part) for part in (self.sizes, self.dtype, self.options) if str(part))

    def solves(self, workload: Workload) -> bool:
        """Whether the problem is that of a workload, whatever that is called."""
        options = {name: value for name, value in self.options.items() if name != "values"}
        return (
            self.sizes == workload.sizes
            and self.dtype == workload.dtype
            and self.options.get("values", "normal") == workload.values
            and options == Named(workload.options)
        )


@dataclass(frozen=True, kw_only=True)
class Key(Problem):
    """What ran, on which problem, and where.

    Args:
        implementation: its name in the catalog, or that of somebody else's program.
        tuning: names and values that are part of the answer, such as block=512×1024×1024.
    """

    implementation: str
    tuning: Named = NOTHING

    @classmethod
    def of(
        cls,
        operator: str,
        implementation: str,
        workload: Workload,
        chip: str,
        pass_: str = "forward",
    ) -> Key:
        """The key of an implementation on a workload of its operator."""
        drawn = {} if workload.values == "normal" else {"values": workload.values}
        return cls(
            operator=operator,
            implementation=implementation,
            sizes=Named(workload.sizes),
            dtype=workload.dtype,
            options=Named({**drawn, **workload.options}),
            tuning=Named(workload.tuning),
            pass_=pass_,
            chip=chip,
        )

    @property
    def key(self) -> Key:
        """The key alone."""
        return Key(**_some(self, Key))

    def record(self, **known: Any) -> Record:
        """A record of this key, of today unless a date is given."""
        return Record(**_some(self, Key) | {"date": f"{datetime.date.today()}"} | known)

    def estimated(self, estimate: Any, workload: str = "", software: str = "") -> Record:
        """The record of a kernels.tpu.Estimate or kernels.neuron.NeuronEstimate, of today; ms."""
        return self.record(
            workload=workload,
            kind="estimated",
            value=round(estimate.seconds * 1e3, 6),
            bound=estimate.bound,
            method=estimate.method,
            versions=software or versions("jax", "libtpu"),
        )


KEY_COLUMNS = ("operator", "implementation", "sizes", "dtype", "options", "tuning", "pass", "chip")
FIELDS = {"pass": "pass_"}  # a column whose name Python keeps for itself
# What a cell stands for, by the type of its field.
_READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": lambda cell: float(cell) if cell else None,
    "Named": Named.parse,
}


class CsvRow:
    """A dataclass that is a row of a CSV file.

    A subclass says which COLUMNS its file has: its fields, and properties, whose cells are checked
    against what the row itself says when it is read.
    """

    COLUMNS: ClassVar[tuple[str, ...]]
    DIGITS: ClassVar[int | None] = None  # behind the point, of a float's cell; None for all

    @property
    def identity(self) -> Any:
        """What tells rows apart; a newer row with the same one replaces an older one."""
        raise NotImplementedError

    def cells(self) -> tuple[str, ...]:
        """The row as COLUMNS has it."""
        return tuple(map(self._cell, self.COLUMNS))

    def _cell(self, column: str) -> str:
        value = getattr(self, FIELDS.get(column, column))
        if isinstance(value, float) and self.DIGITS is not None:
            return f"{value:.{self.DIGITS}f}"
        return "" if value is None else str(value)

    @classmethod
    def of_cells(cls, cells: Mapping[str, str]) -> Self:
        """The row of its cells; ValueError for other columns, what the constructor refuses, and a
        row that contradicts itself."""
        if tuple(cells) != cls.COLUMNS:
            fail("the header", ", ".join(map(str, cells)), ", ".join(cls.COLUMNS))
        types = {
            column.name: getattr(column.type, "__name__", str(column.type))
            for column in fields(cls)  # type: ignore[arg-type]
        }
        names = {column: FIELDS.get(column, column) for column in cells}
        known = {name: column for column, name in names.items() if name in types}
        row = cls(**{name: _READ[types[name]](cells[column]) for name, column in known.items()})
        for column in cls.COLUMNS:
            if names[column] not in types and cells[column] != row._cell(column):
                fail(f"the {column} of {row}", cells[column], row._cell(column))
        return row


@dataclass(frozen=True, kw_only=True)
class Row(Key, CsvRow):
    """A key and what is known of it."""

    def __str__(self) -> str:
        return f"{self.operator} {self.text}"

    @property
    def identity(self) -> Hashable:
        """Its key."""
        return self.key


@dataclass(frozen=True, kw_only=True)
class Record(Row):
    """One figure.

    Args:
        workload: the problem's name, for the reader; not part of what tells figures apart.
        quantity: one of QUANTITIES.
        part: of the whole that the figure is of, such as where=attention what=kernel.
        kind: one of KINDS.
        value, unit: the figure.
        bound: what binds, of an estimate.
        method: how it was estimated or timed.
        versions: of the software, such as "jax 0.10.2, libtpu 0.0.42.1".
        date: YYYY-MM-DD, or what is known of it.
        source: who published it.

    Raises:
        ValueError: for an unknown kind, quantity or pass, a size that is no whole number, a value
            that is negative or none, and a published figure without a source.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("operator", "implementation", "workload", *KEY_COLUMNS[2:], "quantity", "part", "kind"),
        *("value", "unit", "bound", "method", "versions", "date", "source"),
    )

    workload: str = ""
    quantity: str = "time"
    part: Named = NOTHING
    kind: str
    value: float
    unit: str = "ms"
    bound: str = ""
    method: str = ""
    versions: str
    date: str
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("kind", self.kind, KINDS)
        one_of("quantity", self.quantity, QUANTITIES)
        if self.kind == "published" and not self.source:
            fail("source", "empty", "who published the figure")
        if not self.value >= 0:
            fail("value", self.value, "a number from 0 on")

    @property
    def clock(self) -> str:
        """Which clock a time was taken with, as its method says: "device", of the chip alone, or
        "wall", launch included; "" where that is not known."""
        first = self.method.partition(" clock")[0]
        return first if first in ("device", "wall") else ""

    @property
    def identity(self) -> Hashable:
        """What tells figures apart; a newer record with the same one replaces an older one."""
        return self.key, self.quantity, self.part, self.kind, self.unit, self.versions


def _some(record: Problem, kind: type) -> dict[str, Any]:
    return {column.name: getattr(record, column.name) for column in fields(kind)}


def title(workload: Workload) -> str:
    """A workload's name, as records keep it; none for sizes that somebody has typed."""
    return "" if workload.name == "custom" else workload.name


def versions(*packages: str) -> str:
    """The installed versions of `packages`, as a record holds them."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in packages)


def recorded_with(records: Iterable[Record]) -> str:
    """Whose compilers made recorded estimates, to be said beside live ones.

    Args:
        records: that are shown; those of no TPU compiler do not count.

    Returns:
        Words; empty where all are of the installed JAX and libtpu, or libtpu is not installed.
    """
    if not optional.available("libtpu"):
        return ""
    installed = versions("jax", "libtpu")
    compilers = {re.match(r"jax \S+, libtpu [\d.]+", record.versions) for record in records}
    others = sorted({match[0] for match in compilers if match} - {installed})
    return f"recorded with {'; '.join(others)}; estimated here with {installed}" if others else ""


# What an estimate comes from: what reads programs, of the private names of other packages these,
# and of machines/tpu all but what speaks of estimates, ranks them, or has another model.
_PRIVATE = ("jax_mlir", "jax_pallas", "jax_refs", "jaxprs", "libtpu")
_BESIDE = {"bands.py", "explain.py", "fit.py", "pipelining.py", "tuner.py"}
_BESIDE |= {"mesh_worker.py", "simulator.py"}  # they run kernels


def sources() -> list[Path]:
    """The files whose code an estimate comes from."""
    machines = Path(__file__).parents[1] / "machines"
    own = [file for file in machines.glob("tpu/**/*.py") if file.name not in _BESIDE]
    names = *(f"compat/{name}" for name in _PRIVATE), "exporting", "hlo"
    private = [machines / f"{name}.py" for name in names]
    return sorted([*own, *machines.glob("pallas/*.py"), *private, *machines.glob("tpu/*.csv")])


@functools.cache
def model(*programs: Path) -> str:
    """A digest of the code that an estimate comes from, without docstrings and comments, and of
    files beside the estimator's own, such as those of what is estimated."""
    digest = hashlib.sha256()
    for file in (*sources(), *programs):
        text = file.read_text(encoding="utf-8")
        digest.update((code(text) if file.suffix == ".py" else text).encode())
    return digest.hexdigest()[:10]


def code(source: str) -> str:
    """What a source does: its syntax without docstrings, the same to every Python."""
    return repr(_syntax(ast.parse(source)))


def _syntax(node: Any) -> Any:
    if not isinstance(node, ast.AST):
        return [*map(_syntax, node)] if isinstance(node, list) else node
    parts = dict(ast.iter_fields(node))
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        parts["body"] = node.body[1:]
    # Newer versions of Python know more parts of a node, which are empty.
    kept = {name: _syntax(part) for name, part in parts.items() if part not in ([], None)}
    return type(node).__name__, kept


def estimator(*programs: Path) -> str:
    """Who estimates here: the installed versions, and the digest that `model` makes."""
    return f"{versions('jax', 'libtpu')}, model {model(*programs)}"
