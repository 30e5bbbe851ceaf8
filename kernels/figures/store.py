"""The files of records. One file holds one kind; who writes waits for whoever is writing."""

import contextlib
import csv
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from kernels.figures.schema import CsvRow, Key, Named, Record, estimator
from kernels.machines.checks import fail

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Of a checkout; an installed package has none, and is told where to keep its figures.
RESULTS = Path(os.environ.get("KERNELS_RESULTS") or Path(__file__).parents[2] / "results")
TUNED = "tuned.csv"
Kind = TypeVar("Kind", bound=CsvRow)
ABANDONED = 30.0  # seconds after which a lock file is nobody's: a write takes a fraction of one


@overload
def read(path: Path | str, *, missing_ok: bool = ...) -> list[Record]: ...
@overload
def read(path: Path | str, rows: type[Kind], *, missing_ok: bool = ...) -> list[Kind]: ...
def read(path: Path | str, rows: type[CsvRow] = Record, *, missing_ok: bool = False) -> Any:
    """The rows of a CSV file.

    Args:
        path: a name without a folder, such as "published.csv", is looked up in results/.
        rows: what they are.
        missing_ok: whether a file that nobody has written yet has no rows.

    Raises:
        ValueError: where there is no such file, for other columns, for a cell that cannot be, for a
            row that is cut off, contradicts itself or another, and for a file that mixes kinds.
    """
    path = _path(path)
    if not path.exists():
        if missing_ok:
            return []
        files = ", ".join(sorted(file.name for file in path.parent.glob("*.csv")))
        fail("path", path, f"a file that there is: {files or 'none there'}")
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        kept: dict[Any, CsvRow] = {}
        try:
            for cells in lines:
                if None in cells.values():
                    fail("the row", "cut off", "a cell for each column")
                row = rows.of_cells(cells)
                if kept.setdefault(row.identity, row) is not row:
                    fail("the row", "of what another row tells", "one row for each figure")
        except ValueError as error:
            raise ValueError(f"{path.name}, line {lines.line_num}: {error}") from None
    _one_kind(kept.values(), path)
    return [*kept.values()]


def write(path: Path | str, rows: Iterable[CsvRow]) -> None:
    """Replace a CSV file by these rows, sorted; of two with one identity the last one is kept.

    Args:
        path: as for `read`.
        rows: of one class; records all of one kind.

    Raises:
        ValueError: where the kinds are mixed.
    """
    path = _path(path)
    with locked(path):
        _write(path, rows)


def add(path: Path | str, rows: Iterable[CsvRow]) -> None:
    """Add rows to a file, replacing those with the same identity.

    A record that has no name takes the one that the file has for its problem. Nobody else writes to
    the file between its reading and its writing.

    Args:
        path: as for `read`.
        rows: as for `write`, and of the kind that the file holds.

    Raises:
        ValueError: where the kinds are mixed.
    """
    path, new = _path(path), list(rows)
    if not new:
        return
    with locked(path):
        known = {row.identity: row for row in read(path, type(new[0]), missing_ok=True)}
        named = (r for r in known.values() if isinstance(r, Record) and r.workload)
        names = {row.problem: row.workload for row in named}
        for row in new:
            if isinstance(row, Record) and not row.workload and row.problem in names:
                row = dataclasses.replace(row, workload=names[row.problem])
            known[row.identity] = row
        _write(path, known.values())


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file in one move: a reader sees the old file or the new one. Call it where
    `locked` holds; what a writer that died has left is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    os.replace(part, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold all other writers to the files of this one's folder off; a process that dies lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        with _lock_file(path.with_name(f".{path.name}.lock")):
            yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # and with it the lock


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """The same without fcntl: by a file that only one can make, taken away where its maker died."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except (FileExistsError, PermissionError):  # the latter while Windows deletes it
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()
            time.sleep(0.005)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, rows: Iterable[CsvRow]) -> None:
    kept = list({row.identity: row for row in rows}.values())
    _one_kind(kept, path)
    columns = kept[0].COLUMNS if kept else Record.COLUMNS
    write_rows(path, columns, sorted(row.cells() for row in kept))


def _path(path: Path | str) -> Path:
    path = Path(path)
    return RESULTS / path if path.parent == Path(".") else path


def _one_kind(rows: Iterable[CsvRow], path: Path) -> None:
    kinds = {row.kind for row in rows if isinstance(row, Record)}
    if len(kinds) > 1:
        fail(f"the kinds in {path.name}", ", ".join(sorted(kinds)), "one kind in a file")


class TuningStore(MutableMapping):
    """A tuning's text → (seconds, what binds, method), backed by records of kind "estimated".

    So a tuning run can be stopped and go on. Only records of the installed versions and of this
    very model are seen: another may rank otherwise. A tuning that does not compile is kept as
    infinite milliseconds, with the reason as its method.

    Args:
        key: what is tuned; its own tuning does not count.
        path: of the file.
        fresh: whether what the file knows is left aside.
        versions: whose estimates; by default those of `kernels.figures.schema.estimator`.
    """

    def __init__(
        self, key: Key, path: Path | str = TUNED, fresh: bool = False, versions: str = ""
    ) -> None:
        self.key, self.path = key, path
        self.versions = versions or estimator()
        self._known = {
            str(record.tuning): (record.value / 1e3, record.bound, record.method)
            for record in ([] if fresh else read(path, missing_ok=True))
            if record.problem == key.problem
            and record.implementation == key.implementation
            and record.versions == self.versions
        }

    def __getitem__(self, tuning: str) -> tuple[float, str, str]:
        return self._known[tuning]

    def __setitem__(self, tuning: str, estimate: tuple[float, str, str]) -> None:
        seconds, bound, method = estimate
        record = dataclasses.replace(self.key, tuning=Named.parse(tuning)).record(
            kind="estimated",
            value=round(seconds * 1e3, 6),
            bound=bound,
            method=method,
            versions=self.versions,
        )
        add(self.path, [record])
        self._known[tuning] = estimate

    def __delitem__(self, tuning: str) -> None:
        raise TypeError("a record is replaced by a newer one, never deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
