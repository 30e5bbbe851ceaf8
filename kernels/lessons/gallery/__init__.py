"""The bug gallery: kernels that are wrong on purpose, each with the rung that catches it.

A kernel is wrong or, with repaired=True, right, so that the line that matters can be seen. To add a
bug, give it a table in bugs.toml, and write its kernel under `@bug(…)` in a file of this folder, an
old one or a new one: its name is the function's.
"""

import functools
import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from kernels.lessons.gallery.bug import Bug
from kernels.proof import ladder
from kernels.proof.catalog import OPERATORS, RUNGS

__all__ = [
    "Bug",
    "Catch",
    "bugs",
    "changed_argument",
    "circular_convolution",
    "climb",
    "flipped_border",
    "gpsimd_unchecked_malloc",
    "gpsimd_wrong_offset",
    "illegal_block",
    "narrow_accumulator",
    "out_of_bounds_read",
    "short_grid",
    "unawaited_copy",
]

CLIMBED = RUNGS[:3]  # as far as a machine without an accelerator gets


@dataclass(frozen=True)
class Catch:
    """Where a kernel fell off the ladder.

    Args:
        rung: the first that refused it.
        workload: the one on which it did.
        message: what the rung said.
    """

    rung: str
    workload: str
    message: str


@functools.cache
def bugs() -> dict[str, Bug]:
    """Every bug by name, ordered by the rung that catches it."""
    rooms = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    known = [(n, bug) for room in rooms for n, bug in vars(room).items() if isinstance(bug, Bug)]
    return dict(sorted(known, key=lambda item: (RUNGS.index(item[1].caught_by), item[0])))


def __getattr__(name: str) -> Any:
    """A bug, as `gallery.short_grid`."""
    if name.startswith("_") or name not in bugs():
        raise AttributeError(f"the gallery has no bug {name!r}")
    return bugs()[name]


def climb(name: str, *, repaired: bool = False) -> Catch | None:
    """Let a bug climb rung by rung.

    Args:
        name: the bug's.
        repaired: whether its repaired kernel climbs instead.

    Returns:
        What caught it first, or None if nothing did.
    """
    bug = bugs()[name]
    function = functools.partial(bug.kernel, repaired=True) if repaired else bug.kernel
    operator, more = OPERATORS[bug.operator], bug.differentiable
    subject = ladder.Subject(operator, name, bug.backend, function, differentiable=more)
    for rung in CLIMBED:
        for check in ladder.climb(subject, rung, bug.workloads):
            if check.status == ladder.FAILED:
                return Catch(rung, check.workload, check.message)
    return None
