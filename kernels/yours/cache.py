"""What was explained before, in the platform's cache folder: the second time is quick."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "KERNELS_CACHE"  # environment variable: where, instead
MOST = 200  # files kept, the newest


def folder() -> Path:
    """Where it is kept: $KERNELS_CACHE, or this platform's place for caches."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library/Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData/Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "kernels-rung-by-rung"


def key(version: str, *parts: object) -> str:
    """A name for what depends on these, on this package's model and on a compiler.

    Args:
        version: of the compiler.
        parts: whatever else it depends on.
    """
    words = [_model(), version, sys.version, *map(repr, parts)]
    words += [f"{name}={os.environ[name]}" for name in sorted(os.environ) if _told(name)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _told(name: str) -> bool:
    """Whether an environment variable may change what a compiler makes."""
    return name.startswith(("JAX_", "XLA_", "LIBTPU_"))


def files() -> dict[str, list[int]]:
    """The files of all modules of this process, but the standard library's: path → time and size.

    Whoever changes one, a reader his helper's or pip a new JAX, gets another answer.
    """
    standard = sysconfig.get_path("stdlib")
    found = {}
    for each in list(sys.modules.values()):
        path = getattr(each, "__file__", None)
        if not path or (path.startswith(standard) and "site-packages" not in path):
            continue
        with contextlib.suppress(OSError):
            found[path] = _stamp(path)
    return found


def same(known: Mapping[str, list[int]]) -> bool:
    """Whether the files are what `files` found them to be."""
    try:
        return all(_stamp(path) == stamp for path, stamp in known.items())
    except OSError:
        return False


def _stamp(path: str) -> list[int]:
    found = os.stat(path)
    return [found.st_mtime_ns, found.st_size]


@functools.cache
def _model() -> str:
    """A digest of all that makes an explanation: another version of it explains anew."""
    package = Path(__file__).parent.parent
    found = hashlib.sha256()
    for part in ("machines", "lessons/pictures", "yours", "figures"):
        for path in sorted((package / part).rglob("*.py")):
            found.update(path.read_bytes())
    results = package.parent / "results"
    for path in sorted(results.glob("*.csv")) if results.is_dir() else ():
        found.update(path.read_bytes())
    return found.hexdigest()


def get(name: str) -> dict[str, Any] | None:
    """What was kept under a name; None where there is nothing, or it cannot be read."""
    path = folder() / f"{name}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        os.utime(path)
        return found
    except (OSError, ValueError):
        return None


def put(name: str, made: dict[str, Any]) -> None:
    """Keep it, if it can be kept: a folder that cannot be written is no reason to fail."""
    with contextlib.suppress(OSError):
        where = folder()
        where.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=where, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(made, file)
            os.replace(path, where / f"{name}.json")
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        kept = sorted(where.glob("*.json"), key=lambda each: -each.stat().st_mtime)
        for old in kept[MOST:]:
            old.unlink(missing_ok=True)
