"""Where files go that can be made anew: the platform's place for caches."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import platformdirs

FOLDER = "KERNELS_CACHE"  # environment variable: where, instead
NAME = "kernels-rung-by-rung"


def cache(name: str = "") -> Path:
    """A folder that can be written: `name` in the platform's cache folder, or in $KERNELS_CACHE.

    Where that cannot be written, as in a read-only home, it is one that ends with this process.
    """
    base = os.environ.get(FOLDER) or platformdirs.user_cache_dir(NAME, False, opinion=False)
    folder = Path(base) / name
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    folder = Path(_temporary().name) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix=f"{NAME}-")
