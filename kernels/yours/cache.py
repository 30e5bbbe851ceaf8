"""What was explained before, in the platform's cache folder: the second time is quick."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

FOLDER = "KERNELS_CACHE"  # environment variable: where, instead
MOST = 200  # files kept, the newest
PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where it is kept: $KERNELS_CACHE, or this platform's place for caches."""
    if chosen := os.environ.get(FOLDER):
        return Path(chosen)
    return platformdirs.user_cache_path("kernels-rung-by-rung", appauthor=False, opinion=False)


def key(version: str, *parts: object) -> str:
    """A name for what depends on these, on this package's model and on a compiler.

    Args:
        version: of the compiler.
        parts: whatever else it depends on.
    """
    words = [_model(), version, sys.version, *map(repr, parts)]
    # Variables that may change what a compiler makes.
    deciding = [name for name in os.environ if name.startswith(("JAX_", "XLA_", "LIBTPU_"))]
    words += [f"{name}={os.environ[name]}" for name in sorted(deciding)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def files() -> dict[str, list[int]]:
    """The files of all modules of this process, but the standard library's: path → time and size.

    Whoever changes one, a reader his helper's or pip a new JAX, gets another answer.
    """
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
    digest = hashlib.sha256()
    own = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".csv"))
    for path in (*own, *sorted((package.parent / "results").glob("*.csv"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def get(name: str) -> Any:
    """What was kept under a name; None where there is nothing, or it cannot be read."""
    path = folder() / f"{name}.pickle"
    try:
        answer = pickle.loads(path.read_bytes())
        os.utime(path)
        return answer
    except Exception:  # whatever a damaged pickle raises
        return None


def put(name: str, answer: Any) -> None:
    """Keep it, if it can be kept: a folder that cannot be written is no reason to fail."""
    with contextlib.suppress(OSError):
        where = folder()
        where.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=where, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(answer, file)
            os.replace(path, where / f"{name}.pickle")
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        kept = sorted(where.glob("*.pickle"), key=lambda path: -path.stat().st_mtime)
        for old in kept[MOST:]:
            old.unlink(missing_ok=True)
