"""Records: one figure each, with its kind and where it comes from. One file holds one kind."""

from __future__ import annotations

import csv
import datetime
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from kernels.checks import fail, one_of

KINDS = ("measured", "estimated", "published")
# Of a checkout; an installed package has none, and is told where to keep its figures.
RESULTS = Path(os.environ.get("KERNELS_RESULTS") or Path(__file__).parents[2] / "results")


@dataclass(frozen=True)
class Record:
    """One figure.

    operator, implementation, workload: what ran, in the catalog's words. kind: "measured",
    "estimated" or "published". value, unit: the figure. chip: where. versions: of the software,
    such as "jax 0.10.2, libtpu 0.0.42.1". date: YYYY-MM-DD, or what is known of it. source: for a
    published figure who published it, for an estimated one the method, for a measured one how it
    was timed.
    """

    operator: str
    implementation: str
    workload: str
    kind: str
    value: float
    unit: str
    chip: str
    versions: str
    date: str
    source: str

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if self.kind == "published" and not self.source:
            fail("source", "empty", "who published the figure")

    @property
    def key(self) -> tuple[str, ...]:
        """What the figure is of; a newer record with the same key replaces an older one."""
        return (
            self.operator,
            self.implementation,
            self.workload,
            self.kind,
            self.unit,
            self.chip,
            self.versions,
        )


COLUMNS = tuple(f.name for f in fields(Record))


def read(path: Path | str) -> list[Record]:
    """The records of a CSV file; none where there is no such file.

    A name without a folder, such as "published.csv", is looked up in results/. Raises ValueError
    for other columns, for a figure that is no number, and for a file that mixes kinds.
    """
    path = _path(path)
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            fail(f"the columns of {path.name}", rows.fieldnames, ", ".join(COLUMNS))
        found = [Record(**{**row, "value": float(row["value"])}) for row in rows]
    _one_kind(found, path)
    return found


def write(path: Path | str, records: Iterable[Record]) -> None:
    """Write records to a CSV file, sorted; the file is whole at every moment.

    Raises ValueError where the kinds are mixed.
    """
    path = _path(path)
    kept = {record.key: record for record in records}
    _one_kind(kept.values(), path)
    write_rows(path, COLUMNS, (astuple(kept[key]) for key in sorted(kept)))


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file in one move: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def add(path: Path | str, records: Iterable[Record]) -> None:
    """Add records to a file, replacing those of the same key."""
    write(path, [*read(path), *records])


def estimated(
    operator: str, implementation: str, workload: str, found: Any, of: str | None = None
) -> Record:
    """The record of a kernels.tpu.Estimate or kernels.neuron.Estimate, in ms; of today.

    of: the versions, by default of JAX and the TPU's compiler.
    """
    return Record(
        operator,
        implementation,
        workload,
        "estimated",
        round(found.seconds * 1e3, 6),
        "ms",
        found.chip,
        of or versions("jax", "libtpu"),
        datetime.date.today().isoformat(),
        f"{found.bound} binds; {found.method}",
    )


def versions(*packages: str) -> str:
    """The installed versions of `packages`, as a record holds them."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in packages)


def _path(path: Path | str) -> Path:
    path = Path(path)
    return RESULTS / path if path.parent == Path(".") else path


def _one_kind(records: Iterable[Record], path: Path) -> None:
    kinds = {record.kind for record in records}
    if len(kinds) > 1:
        fail(f"the kinds in {path.name}", ", ".join(sorted(kinds)), "one kind in a file")
