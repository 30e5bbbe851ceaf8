"""Keep a tuning run's estimates as records, so that it can be stopped and go on."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from kernels.bench.records import Record, add, read, versions

FILE = "tuned.csv"


class TuningStore(MutableMapping):
    """A tuning's text → (seconds, note), backed by records of kind "estimated" in a file.

    Only records of the installed versions are seen: another compiler may rank otherwise. A tuning
    that does not compile is kept as infinite milliseconds, with the reason as its source.
    """

    def __init__(
        self,
        operator: str,
        implementation: str,
        workload: str,
        chip: str,
        path: Path | str = FILE,
        fresh: bool = False,
    ) -> None:
        self.operator, self.implementation = operator, implementation
        self.workload, self.chip, self.path = workload, chip, path
        self.versions = versions("jax", "libtpu")
        prefix = f"{workload} | "
        self._known = {
            r.workload.removeprefix(prefix): (r.value / 1e3, r.source)
            for r in ([] if fresh else read(path))
            if (r.operator, r.implementation, r.chip, r.versions)
            == (operator, implementation, chip, self.versions)
            and r.workload.startswith(prefix)
        }

    def __getitem__(self, tuning: str) -> tuple[float, str]:
        return self._known[tuning]

    def __setitem__(self, tuning: str, found: tuple[float, str]) -> None:
        seconds, note = found
        record = Record(
            self.operator,
            self.implementation,
            f"{self.workload} | {tuning}",
            "estimated",
            round(seconds * 1e3, 6),
            "ms",
            self.chip,
            self.versions,
            datetime.date.today().isoformat(),
            note,
        )
        add(self.path, [record])
        self._known[tuning] = found

    def __delitem__(self, tuning: str) -> None:
        raise TypeError("a record is replaced by a newer one, never deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
