"""What was explained before, and what it depends on: the second time is quick."""

import contextlib
import functools
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from kernels.machines.cache import Cache, digest

PACKAGE = Path(__file__).parents[1]
ANSWERS = Cache("answers", 1 << 27)


def key(version: str, *parts: object) -> str:
    """A name for what depends on these, on this package's model and on a compiler's version."""
    # Variables that may change what a compiler makes.
    deciding = [
        v for v in sorted(os.environ.items()) if v[0].startswith(("JAX_", "XLA_", "LIBTPU_"))
    ]
    return digest(_model(), version, sys.version, deciding, *parts)


def files() -> dict[str, list[int]]:
    """The files of all modules of this process, but the standard library's: path → time and size.
    Whoever changes one, a reader his helper's or pip a new JAX, gets another answer."""
    standard = sysconfig.get_path("stdlib")
    stamps = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not path or (path.startswith(standard) and "site-packages" not in path):
            continue
        with contextlib.suppress(OSError):
            stamps[path] = _stamp(path)
    return stamps


def same(known: Mapping[str, list[int]]) -> bool:
    """Whether the files are what `files` found them to be."""
    try:
        return all(_stamp(path) == stamp for path, stamp in known.items())
    except OSError:
        return False


def _stamp(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_mtime_ns, status.st_size]


@functools.cache
def _model(package: Path = PACKAGE) -> str:
    """A digest of the package, and of what its bands are computed from: another explains anew."""
    own = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".csv"))
    rows = sorted((package.parent / "results").glob("*.csv"))
    return digest(*(path.read_bytes() for path in (*own, *rows)))
