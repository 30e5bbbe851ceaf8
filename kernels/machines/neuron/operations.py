"""The operations that instructions are told to apply, by the vendor's table of them.

Source: AWS Neuron documentation, NKI ISA API Common Fields: supported math operators, and supported
activation functions with their valid input ranges.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.machine import machine

ARITHMETIC, FUNCTION = "arithmetic", "function"
ONE = np.float32(1)


@dataclass(eq=False, repr=False)
class MathOperation:
    """An operation by name, such as nl.add; with `make` also a function that makes a tile, such as
    nl.add(x, y) and nl.sum(x, axis)."""

    name: str
    function: Callable[..., np.ndarray]  # in NumPy, of float32
    inputs: int
    kind: str = ARITHMETIC  # what it works on; FUNCTION is for the Scalar engine only
    activation: bool = False  # whether nisa.activation takes it
    reduces: bool = False  # whether a reduction may
    limits: tuple[float, float] | None = None  # of the numbers that the Scalar engine takes
    make: Callable[..., Any] | None = None  # is called with the operation first
    shown: str = ""  # its name in nki.language, where that is another one

    def __call__(self, *operands, **options) -> Any:
        if self.make is None:
            refuse(f"{self!r}(…) is called: hand it to an instruction, as in op={self!r}")
        return self.make(self, *operands, **options)

    def __repr__(self) -> str:
        return f"nl.{self.shown or self.name}"


def _truth(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, y: function(x, y).astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return ONE / (ONE + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return np.float32(0.5) * x * (ONE + np.float32(erf(x * np.float32(1 / math.sqrt(2)))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (ONE + np.tanh(inner))


SIGMOID_GELU = np.float32(1.702)


def _silu_dx(x: np.ndarray, slope: np.float32 = ONE) -> np.ndarray:
    s = _sigmoid(slope * x)
    return s + slope * x * s * (ONE - s)


_SUMS = ("add", "subtract", "multiply", "maximum", "minimum")
_COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "logical_and")
_SCALAR = {"activation": True}
_FUNCTION = {"kind": FUNCTION, "activation": True}
_ROWS: tuple[tuple[str, Any, int, dict[str, Any]], ...] = (
    *((name, getattr(np, name), 2, {"reduces": True}) for name in _SUMS),
    *((name, _truth(getattr(np, name)), 2, {}) for name in _COMPARISONS),
    ("divide", np.divide, 2, {}),
    ("mod", np.mod, 2, {}),
    ("copy", np.positive, 1, _SCALAR),
    ("abs", np.abs, 1, _SCALAR),
    ("square", np.square, 1, _SCALAR),
    ("rsqrt", lambda x: ONE / np.sqrt(x), 1, _SCALAR | {"limits": (2.0**-87, 2.0**97)}),
    ("reciprocal", lambda x: ONE / x, 1, _SCALAR),
    ("negative", np.negative, 1, {}),
    ("sigmoid", _sigmoid, 1, _FUNCTION),
    ("gelu", _gelu, 1, _FUNCTION),
    ("gelu_apprx_tanh", _gelu_tanh, 1, _FUNCTION),
    ("gelu_apprx_sigmoid", lambda x: x * _sigmoid(SIGMOID_GELU * x), 1, _FUNCTION),
    ("gelu_apprx_sigmoid_dx", lambda x: _silu_dx(x, SIGMOID_GELU), 1, _FUNCTION),
    ("silu", lambda x: x * _sigmoid(x), 1, _FUNCTION),
    ("silu_dx", _silu_dx, 1, _FUNCTION),
    ("exp", np.exp, 1, _FUNCTION),
    ("log", np.log, 1, _FUNCTION | {"limits": (2.0**-64, 2.0**64)}),
    ("sin", np.sin, 1, _FUNCTION | {"limits": (-math.pi, math.pi)}),
    ("sqrt", np.sqrt, 1, _FUNCTION | {"limits": (2.0**-116, 2.0**118)}),
    ("floor", np.floor, 1, {"kind": FUNCTION}),  # of nki.language only: several instructions
)
TABLE = {name: MathOperation(name, function, n, **more) for name, function, n, more in _ROWS}
REDUCTIONS = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}
_NUMPY = {
    "amax": "maximum",
    "amin": "minimum",
    "absolute": "abs",
    "positive": "copy",
    **REDUCTIONS,
    **{name: name for name in TABLE},
}


def resolve(instruction: str, operation) -> MathOperation:
    """The operation that a kernel means; in beta 1 NumPy's functions stand for them too."""
    if isinstance(operation, MathOperation):
        return TABLE[REDUCTIONS.get(operation.name, operation.name)]
    if machine().beta1 and callable(operation):
        named = getattr(operation, "__name__", "")
        module = getattr(operation, "__module__", None) or ""
        if named in _NUMPY and (isinstance(operation, np.ufunc) or module.startswith("numpy")):
            return TABLE[_NUMPY[named]]
    refuse(f"{instruction}: op is {operation!r}; accepted: an operation of nki.language")


def binary(instruction: str, operation, inputs: int = 2) -> MathOperation:
    """An operation of two operands, or as many as `inputs` says."""
    named = resolve(instruction, operation)
    if named.inputs != inputs:
        refuse(f"{instruction}: {named!r} takes {named.inputs} operands, here {inputs}")
    return named


def activation_function(instruction: str, operation) -> MathOperation:
    """A function of the Scalar engine."""
    named = binary(instruction, operation, 1)
    if not named.activation:
        accepted = ", ".join(name for name, one in TABLE.items() if one.activation)
        refuse(f"{instruction}: the Scalar engine has no {named!r}; accepted: {accepted}")
    return named


def reduction(instruction: str, operation) -> MathOperation:
    """An operation that a reduction takes."""
    named = resolve(instruction, operation)
    if not named.reduces:
        accepted = ", ".join(name for name, one in TABLE.items() if one.reduces)
        refuse(f"{instruction}: {named!r} does not reduce; accepted: {accepted}")
    return named


def reduced(operation: MathOperation, values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """values reduced along the last axes, which stay with size one."""
    ufunc = operation.function
    assert isinstance(ufunc, np.ufunc)
    if operation.name == "subtract":  # the first minus all others
        flat = values.reshape(*values.shape[: min(axes)], -1)
        rest = flat[..., :1] - flat[..., 1:].sum(-1, keepdims=True)
        return rest.reshape([1 if a in axes else n for a, n in enumerate(values.shape)])
    return ufunc.reduce(values, axis=axes, keepdims=True)
