"""What is known of a bug."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.proof.backends.base import Backend
from kernels.proof.backends.pallas_tpu import IN_LESSONS
from kernels.proof.workload import Workload


@dataclass(frozen=True)
class Bug:
    """One wrong kernel.

    Args:
        kernel: takes the operator's arguments; wrong or, with repaired=True, right.
        title: what it is called in the gallery.
        operator: whose contract it breaks.
        caught_by: the first rung that refuses it.
        says: words that the rung's message holds; with a | between, one or the other.
        cause: why it is wrong, in a sentence.
        lesson: what to learn from it, in a sentence.
        workloads: what it is run on.
        needs: the optional package without which that rung is blind to it.
        backend: what it is written in.
        differentiable: whether its gradients are proven too.
        shown: the function to look at, or its text in another language; None for the kernel.
    """

    kernel: Callable[..., Any]
    title: str
    operator: str
    caught_by: str
    says: str
    cause: str
    lesson: str
    workloads: tuple[Workload, ...]
    needs: str | None = None
    backend: Backend = IN_LESSONS
    differentiable: bool = False
    shown: Any = None

    @property
    def source(self) -> str:
        """The kernel as it is written, the wrong line beside the right one."""
        if isinstance(self.shown, str):
            return self.shown
        lines = inspect.getsource(self.shown or self.kernel)
        return lines[max(lines.find("\ndef ") + 1, 0) :]  # without what `bug` tells of it


def bug(**facts: Any) -> Callable[[Callable[..., Any]], Bug]:
    """Make a bug of the function below it."""
    return lambda kernel: Bug(kernel, **facts)


def family(kernel: Callable[..., Any], **facts: Any) -> Callable[..., Bug]:
    """What makes the bugs of one kernel, each of the fault that the kernel is told, and of more
    facts; those that all share are given once."""
    return lambda fault, **more: Bug(
        functools.partial(kernel, fault=fault), shown=kernel, **facts | more
    )
