"""Workloads of a lesson, as a table."""

from __future__ import annotations

from typing import Any

from kernels.proof.workload import Workload


def cases(
    sizes: str, *, dtype: str = "float32", values: str = "normal", **named: Any
) -> tuple[Workload, ...]:
    """Workloads of the same sizes.

    Args:
        sizes: their names, such as "m k n".
        dtype, values: of the arrays, as Workload has them.
        named: name → a number for each size; and last, if there is more to say, what it reveals.
    """
    workloads = []
    for name, case in named.items():
        numbers = case if isinstance(case, tuple) else (case,)
        why = numbers[-1] if isinstance(numbers[-1], str) else ""
        sized = dict(zip(sizes.split(), numbers[: len(numbers) - bool(why)], strict=True))
        workloads.append(Workload(name, sized, dtype, values, why=why))
    return tuple(workloads)
