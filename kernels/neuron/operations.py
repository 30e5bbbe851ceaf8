"""The elementwise operations that instructions are told to apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.neuron.errors import refuse


class Operation:
    """An operation by name, such as nl.add: an argument of an instruction, not a function."""

    def __init__(self, name: str, function: Callable[..., np.ndarray]) -> None:
        self.name = name
        self.function = function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        refuse(
            f"nl.{self.name}(…) is called: hand it to an instruction, as in "
            f"nisa.tensor_tensor(dst, data1, data2, op=nl.{self.name})"
        )

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def function(instruction: str, operation: Any, inputs: int) -> Callable[..., np.ndarray]:
    """The NumPy function of an operation with so many inputs."""
    if not isinstance(operation, Operation):
        refuse(f"{instruction}: op is {operation!r}; accepted: an operation of nki.language")
    binary = isinstance(operation.function, np.ufunc) and operation.function.nargs == 3
    if binary != (inputs == 2):
        refuse(f"{instruction}: {operation!r} takes {2 if binary else 1} operands, here {inputs}")
    return operation.function
