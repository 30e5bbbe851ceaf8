"""What can be made anew, and takes long: kept in the platform's place for caches."""

import contextlib
import functools
import hashlib
import os
import pickle
import tempfile
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import platformdirs

FOLDER = "KERNELS_CACHE"  # environment variable: where, instead
NAME = "kernels-rung-by-rung"


def folder(name: str = "") -> Path:
    """A folder that can be written: `name` in the platform's cache folder, or in $KERNELS_CACHE.

    Where that cannot be written, as in a read-only home, it is one that ends with this process.
    """
    base = os.environ.get(FOLDER) or platformdirs.user_cache_dir(NAME, False, opinion=False)
    chosen = Path(base) / name
    with contextlib.suppress(OSError):
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=chosen):
            return chosen
    chosen = Path(_temporary().name) / name
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix=f"{NAME}-")


def digest(*parts: object) -> str:
    """A name for what depends on these alone: bytes as they are, anything else as repr shows it."""
    whole = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


@functools.cache
def code(paths: Iterable[Path]) -> str:
    """A digest of files, for a key: who changes one asks anew."""
    return digest(*(path.read_bytes() for path in paths))


class Cache:
    """Answers of one sort, in a folder of that name and of at most so many bytes; a file each,
    which any process may read and write at any time.

    A file is moved into place whole, and holds its key and a checksum: one that is damaged, or lies
    under another name, is never believed. Those that were not used for longest go first.
    """

    def __init__(self, name: str, most: int) -> None:
        self.name, self.most = name, most
        self.unseen = 0  # bytes that this process may write before it looks through the folder

    def get(self, key: str) -> Any:
        """What was kept under a key, a digest of everything that the answer depends on, or None."""
        path = folder(self.name) / key
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            checksum, body = data[:32], data[32:]
            if checksum != hashlib.sha256(key.encode() + body).digest():
                raise ValueError("its checksum is another")
            answer = pickle.loads(zlib.decompress(body))
        except Exception as error:  # whatever a damaged file, or one of an older class, raises
            warnings.warn(f"{path} is made anew: {error}", stacklevel=2)
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return answer

    def put(self, key: str, answer: Any) -> None:
        """Keep an answer that can be pickled, where there is room: a full disk fails nothing."""
        body = zlib.compress(pickle.dumps(answer, protocol=5), 1)
        data = hashlib.sha256(key.encode() + body).digest() + body
        with contextlib.suppress(OSError):
            place = folder(self.name)
            handle, part = tempfile.mkstemp(dir=place, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(part, place / key)
            except BaseException:
                Path(part).unlink(missing_ok=True)
                raise
            self.unseen -= len(data)
            if self.unseen < 0:
                self._drop(place)

    def _drop(self, place: Path) -> None:
        """Make room, of what another process may drop too; for a tenth, since a look is slow."""
        kept = []
        for file in os.scandir(place):
            with contextlib.suppress(OSError):
                status = file.stat()
                kept.append((status.st_mtime_ns, status.st_size, file.path))
        room = self.most - sum(size for _, size, _ in kept)
        enough = self.most // 10 if room < 0 else room
        for _, size, path in sorted(kept):
            if room < enough:
                Path(path).unlink(missing_ok=True)
                room += size
        self.unseen = room // 16  # as many processes may write at a time


TPU, GPU = Cache("tpu", 1 << 30), Cache("gpu", 1 << 29)  # what the compilers made of programs
