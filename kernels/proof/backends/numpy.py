"""NumPy: what runs on the CPU as it stands."""

import functools
from collections.abc import Callable
from typing import Any

from kernels.proof.backends.base import Backend, Job


class _NumPy(Backend):
    name = "NumPy"
    is_library = True

    def _no_machine(self, device: str) -> str:
        return "runs on the CPU here" if device == "cuda" else ""

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        # Memory that the system hands out anew each time takes longer than some kernels.
        return functools.partial(job, out=job()) if out else job


NUMPY = _NumPy()
