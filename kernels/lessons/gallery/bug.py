"""What is known of a bug."""

from dataclasses import dataclass

from kernels.proof.backends.base import Backend
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.workload import Workload


@dataclass(frozen=True)
class Bug:
    """One wrong kernel.

    Args:
        title: what it is called in the gallery.
        operator: whose contract it breaks.
        caught_by: the first rung that refuses it.
        says: words that the rung's message holds.
        cause: why it is wrong, in a sentence.
        lesson: what to learn from it, in a sentence.
        workloads: what it is run on.
        needs: the optional package without which that rung is blind to it.
        backend: what it is written in.
        differentiable: whether its gradients are proven too.
    """

    title: str
    operator: str
    caught_by: str
    says: str
    cause: str
    lesson: str
    workloads: tuple[Workload, ...]
    needs: str | None = None
    backend: Backend = PALLAS_TPU
    differentiable: bool = False
