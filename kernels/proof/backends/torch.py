"""PyTorch: what runs on its tensors, and how the gradients of tensors are taken."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.proof.backends.base import Backend, Job
from kernels.proof.backends.processor import has_cuda


class OnTensors(Backend):
    """What takes PyTorch's tensors, and NumPy's arrays."""

    tensors = True
    needs: tuple[str, ...] = ("torch",)

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        import torch

        tensors, wanted = _tensors(job)
        results = _several(job.function(*tensors, **job.options))
        back = [torch.from_numpy(np.asarray(c)) for c in cotangents]
        return [g.numpy() for g in torch.autograd.grad(results, wanted, back)]

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        import torch

        tensors, wanted = _tensors(job, device)
        call = functools.partial(job.function, *tensors, **job.options)
        if not job.wanted:
            # Memory that the system hands out anew each time takes longer than some kernels.
            return functools.partial(call, out=call()) if out else call
        cotangents = [torch.ones_like(result) for result in _several(call())]

        def pull() -> Any:
            return torch.autograd.grad(_several(call()), wanted, cotangents)

        return pull

    def _no_machine(self, device: str) -> str:
        if device == "cuda" and not has_cuda():
            return "PyTorch sees no CUDA device here"
        return f"{package} is not installed" if (package := self.missing()) else ""


def _tensors(job: Job, device: str = "cpu") -> tuple[list[Any], list[Any]]:
    """The job's arguments, its arrays as tensors; and those whose gradients are wanted."""
    import torch

    tensors = [
        torch.from_numpy(a).to(device) if isinstance(a, np.ndarray) else a for a in job.arguments
    ]
    return tensors, [tensors[place].requires_grad_() for place in job.wanted]


def _several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


class _Torch(OnTensors):
    name = "PyTorch"
    is_library = True


TORCH = _Torch()
