"""What is known of a bug."""

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.proof.backends.base import Backend
from kernels.proof.backends.pallas_tpu import IN_LESSONS
from kernels.proof.workload import Workload

FACTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("bugs.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Bug:
    """One wrong kernel. All of it that is words, or a name, stands in bugs.toml.

    Args:
        kernel: takes the operator's arguments; wrong or, with repaired=True, right.
        title: what it is called in the gallery.
        operator: whose contract it breaks.
        caught_by: the first rung that refuses it.
        says: words that the rung's message holds; with a | between, one or the other.
        cause: why it is wrong, in a sentence.
        lesson: what to learn from it, in a sentence.
        workloads: what it is run on.
        shown: the function to look at, or its text in another language.
        needs: the optional package without which that rung is blind to it, or "".
        backend: what it is written in.
        differentiable: whether its gradients are proven too.
    """

    kernel: Callable[..., Any]
    title: str
    operator: str
    caught_by: str
    says: str
    cause: str
    lesson: str
    workloads: tuple[Workload, ...]
    shown: Any
    needs: str = ""
    backend: Backend = IN_LESSONS
    differentiable: bool = False

    @property
    def source(self) -> str:
        """The kernel as it is written, the wrong line beside the right one."""
        if isinstance(self.shown, str):
            return self.shown
        lines = inspect.getsource(self.shown)
        return lines[max(lines.find("\ndef ") + 1, 0) :]  # without what `bug` tells of it


def from_table(
    name: str, kernel: Callable[..., Any], *workloads: Workload, shown: Any = None, **more: Any
) -> Bug:
    """The bug of that name in bugs.toml, with its kernel, which is spread over devices where its
    backend does that, its workloads, and more of what Bug takes."""
    spread = more.get("backend", IN_LESSONS).spread(kernel)
    return Bug(spread, **FACTS[name], workloads=workloads, shown=shown or kernel, **more)


def bug(*workloads: Workload, **more: Any) -> Callable[[Callable[..., Any]], Bug]:
    """Make the bug of its name of the function below it."""
    return lambda kernel: from_table(kernel.__name__, kernel, *workloads, **more)


def family(kernel: Callable[..., Any], *usual: Workload, **more: Any) -> Callable[..., Bug]:
    """What makes the bugs of one kernel, each of the fault that the kernel is told by its name, or
    None where it is repaired; on its own workloads, or the `usual` ones."""

    def faulty(fault: str, *workloads: Workload) -> Bug:
        def wrong(*arguments: Any, repaired: bool = False, **options: Any) -> Any:
            return kernel(*arguments, fault=None if repaired else fault, **options)

        return from_table(fault, wrong, *(workloads or usual), shown=kernel, **more)

    return faulty
