"""What proves a kernel: its contract, workloads, rungs, judge and error budget, and the catalog."""

from typing import TYPE_CHECKING

from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels.proof.catalog import OPERATORS
    from kernels.proof.workload import Workload

__all__ = ["OPERATORS", "Workload"]

_MODULES = {"OPERATORS": "kernels.proof.catalog", "Workload": "kernels.proof.workload"}
__getattr__ = lazy(__name__, _MODULES)
