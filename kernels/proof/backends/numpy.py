"""NumPy: what runs on the CPU as it stands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernels.proof.backends.base import Backend, Job


class _NumPy(Backend):
    name = "NumPy"
    is_library = True

    def why_not(self, rung: str, device: str = "cpu") -> str:
        if rung == "measure":
            return "runs on the CPU here" if device == "cuda" else ""
        return super().why_not(rung, device)

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        call = functools.partial(job.function, *job.arguments, **job.options)
        # Memory that the system hands out anew each time takes longer than some kernels.
        return functools.partial(call, out=call()) if out else call


NUMPY = _NumPy()
