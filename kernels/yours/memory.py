"""How much memory, and how large a file, a child may have, and what it says of too little."""

import os

SHARE = 0.8  # of what is free when it starts: a kernel that wants more ends before others do
LEAST = 4 << 30  # bytes that every child may have
FILE = 2 << 30  # bytes of a file that it writes
SIGNS = ("bad_alloc", "MemoryError", "RESOURCE_EXHAUSTED", "Out of memory")


def limit(most: int | None = None) -> None:
    """Limit this process to so many bytes, by default a share of what is free, where the system can
    and nobody has limited it further."""
    try:
        import resource

        pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        most = most or max(int(pages * size * SHARE), LEAST)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if soft == resource.RLIM_INFINITY or soft > FILE:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, hard))
    except (ImportError, OSError, ValueError):  # a system that does not know it
        pass


def most() -> int | None:
    """Bytes that this process may have; None where nothing limits it."""
    try:
        import resource
    except ImportError:
        return None
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def wanted(text: str) -> bool:
    """Whether what a library or a process said last is that there was too little."""
    return any(sign in text for sign in SIGNS)


def plainly(message: str) -> str:
    """A message of this process, in plain words where it is of memory."""
    if not wanted(message):
        return message
    limit = most()
    share = f", of which its process may have {limit / 2**30:.1f} GiB" if limit else ""
    return f"it ran out of memory{share}: {message}"
