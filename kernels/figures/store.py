"""The files of records. One file holds one kind; who writes waits for whoever is writing."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from kernels.figures.schema import COLUMNS, Key, Named, Record, estimator
from kernels.machines.checks import fail

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Of a checkout; an installed package has none, and is told where to keep its figures.
RESULTS = Path(os.environ.get("KERNELS_RESULTS") or Path(__file__).parents[2] / "results")
TUNED = "tuned.csv"
ABANDONED = 30.0  # seconds after which a lock file is nobody's: a write takes a fraction of one


def read(path: Path | str) -> list[Record]:
    """The records of a CSV file; none where there is no such file.

    Args:
        path: a name without a folder, such as "published.csv", is looked up in results/.

    Raises:
        ValueError: for other columns, for a cell that cannot be, and for a file that mixes kinds.
    """
    path = _path(path)
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            fail(f"the columns of {path.name}", rows.fieldnames, ", ".join(COLUMNS))
        found = [Record.of_cells(row) for row in rows]
    _one_kind(found, path)
    return found


def write(path: Path | str, records: Iterable[Record]) -> None:
    """Replace a CSV file by these records, sorted; of two with one identity the last one is kept.

    Args:
        path: as for `read`.
        records: all of one kind.

    Raises:
        ValueError: where the kinds are mixed.
    """
    path = _path(path)
    with locked(path):
        _write(path, records)


def add(path: Path | str, records: Iterable[Record]) -> None:
    """Add records to a file, replacing those with the same identity.

    What has no name takes the one that the file has for its problem. Nobody else writes to the
    file between its reading and its writing.

    Args:
        path: as for `read`.
        records: of the kind that the file holds.

    Raises:
        ValueError: where the kinds are mixed.
    """
    path = _path(path)
    with locked(path):
        known = {record.identity: record for record in read(path)}
        names = {each.problem: each.workload for each in known.values() if each.workload}
        for record in records:
            if not record.workload and record.problem in names:
                record = dataclasses.replace(record, workload=names[record.problem])
            known[record.identity] = record
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


def _write(path: Path, records: Iterable[Record]) -> None:
    kept = {record.identity: record for record in records}
    _one_kind(kept.values(), path)
    rows = [list(record.cells()) for record in kept.values()]
    write_rows(path, COLUMNS, sorted(rows, key=_order))


def _order(cells: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(cell) for cell in cells)


def _path(path: Path | str) -> Path:
    path = Path(path)
    return RESULTS / path if path.parent == Path(".") else path


def _one_kind(records: Iterable[Record], path: Path) -> None:
    kinds = {record.kind for record in records}
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
    """

    def __init__(self, key: Key, path: Path | str = TUNED, fresh: bool = False) -> None:
        self.key, self.path = key, path
        self.versions = estimator()
        self._known = {
            str(record.tuning): (record.value / 1e3, record.bound, record.method)
            for record in ([] if fresh else read(path))
            if record.problem == key.problem
            and record.implementation == key.implementation
            and record.versions == self.versions
        }

    def __getitem__(self, tuning: str) -> tuple[float, str, str]:
        return self._known[tuning]

    def __setitem__(self, tuning: str, found: tuple[float, str, str]) -> None:
        seconds, bound, method = found
        record = dataclasses.replace(self.key, tuning=Named.parse(tuning)).record(
            kind="estimated",
            value=round(seconds * 1e3, 6),
            bound=bound,
            method=method,
            versions=self.versions,
        )
        add(self.path, [record])
        self._known[tuning] = found

    def __delitem__(self, tuning: str) -> None:
        raise TypeError("a record is replaced by a newer one, never deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
