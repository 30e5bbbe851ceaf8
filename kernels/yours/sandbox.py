"""Walls around the child that runs a stranger's file: those of bubblewrap, on Linux."""

import functools
import os
import sys
from collections.abc import Iterable

from kernels.machines.checks import fail
from kernels.machines.child import last_line, run
from kernels.machines.optional import tool

OWN = ("/tmp", "/run")  # folders that are empty in there, and its own: sockets of others lie there


def walls(files: Iterable[str] = ()) -> list[str]:
    """The words before a command that confine it.

    It reads the files that its caller may read, writes to a /tmp that ends with it, reaches no
    network and no other process.

    Args:
        files: that it has to see with their folders, wherever these lie.

    Raises:
        MissingPackage: where bubblewrap is not installed.
        ValueError: where the system does not let it.
    """
    program = tool("bwrap", "--sandbox")
    if refusal := _refusal(program):
        words = f"set, and this system refuses it ({refusal})"
        fail("--sandbox", words, "a system that lets users make namespaces; many containers do not")
    here, paths = os.getcwd(), [sys.prefix, sys.base_prefix, *sys.path]
    for file in map(os.path.abspath, files):
        paths += [os.path.dirname(file), file]
    hidden = tuple(f"{folder}/" for folder in OWN)
    places = {place for path in paths for place in (os.path.abspath(path), os.path.realpath(path))}
    seen = [place for place in places if place.startswith(hidden)]
    outer = [p for p in seen if not any(p.startswith(f"{other}/") for other in seen)]
    visible = [word for path in sorted(outer) for word in ("--ro-bind-try", path, path)]
    return [*_base(program), *visible, "--dir", here, "--chdir", here, "--"]


def _base(program: str) -> list[str]:
    own = [word for folder in OWN for word in ("--tmpfs", folder)]
    walled = [program, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"]
    return [*walled, "--dev", "/dev", "--proc", "/proc", *own]


@functools.cache
def _refusal(program: str) -> str:
    """What bubblewrap says where it cannot work; empty where it can."""
    done = run([*_base(program), "true"], seconds=30)
    return last_line(done.stderr) or f"status {done.status}" if done.status else ""
