"""The operations that instructions are told to apply, by the vendor's table of them.

Source: AWS Neuron documentation, NKI ISA API Common Fields: supported math operators, and supported
activation functions with their valid input ranges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines.neuron.errors import refuse

ARITHMETIC, BITS, FUNCTION = "arithmetic", "bits", "function"
ONE = np.float32(1)


class Operation:
    """An operation by name, such as nl.add.

    function: in NumPy, of float32 or, for bits, of whole numbers. inputs: 1 or 2. kind: what it
    works on; FUNCTION is for the Scalar engine only. activation: whether nisa.activation takes it.
    reduces: whether a reduction may. limits: of the numbers that the Scalar engine takes.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., np.ndarray],
        inputs: int,
        kind: str = ARITHMETIC,
        activation: bool = False,
        reduces: bool = False,
        limits: tuple[float, float] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.inputs = inputs
        self.kind = kind
        self.activation = activation
        self.reduces = reduces
        self.limits = limits

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        refuse(f"nl.{self.name}(…) is called: hand it to an instruction, as in op=nl.{self.name}")

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def _truth(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, y: function(x, y).astype(np.float32)


def _logical(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, y: function(x != 0, y != 0).astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return ONE / (ONE + np.exp(-x))


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return erf(x).astype(np.float32)


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * x * (ONE + _erf(x * np.float32(1 / math.sqrt(2))))


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    phi = np.exp(np.float32(-0.5) * x * x) * np.float32(1 / math.sqrt(2 * math.pi))
    return np.float32(0.5) * (ONE + _erf(x * np.float32(1 / math.sqrt(2)))) + x * phi


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (ONE + np.tanh(inner))


SIGMOID_GELU = np.float32(1.702)


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(SIGMOID_GELU * x)
    return s + SIGMOID_GELU * x * s * (ONE - s)


def _silu_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(x)
    return s * (ONE + x * (ONE - s))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, np.float32(0)).astype(np.float32)


def _shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logical: zeros come in from the left."""
    bits = np.asarray(x)
    unsigned = bits.view(f"u{bits.itemsize}") if bits.dtype.kind == "i" else bits
    return np.right_shift(unsigned, np.asarray(y).astype(unsigned.dtype)).view(bits.dtype)


def prelu(x: np.ndarray, slope: Any = 0.0) -> np.ndarray:
    """x, and where it is negative x times a slope."""
    return np.where(x < 0, np.asarray(slope, np.float32) * x, x)


def _larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) > np.abs(y), x, y)


def _smaller(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.abs(y), x, y)


def _table() -> dict[str, Operation]:
    found: dict[str, Operation] = {}

    def add(name: str, *arguments: Any, **options: Any) -> None:
        found[name] = Operation(name, *arguments, **options)

    for name in ("add", "subtract", "multiply", "maximum", "minimum"):
        add(name, getattr(np, name), 2, reduces=True)
    for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        add(name, _truth(getattr(np, name)), 2)
    for name in ("logical_and", "logical_or", "logical_xor"):
        add(name, _logical(getattr(np, name)), 2)
    add("power", np.power, 2)
    add("divide", np.divide, 2)
    add("mod", np.mod, 2)
    add("fmod", np.fmod, 2)
    add("abs_max", _larger, 2)
    add("abs_min", _smaller, 2)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        add(name, getattr(np, name), 2, BITS, reduces=True)
    add("left_shift", np.left_shift, 2, BITS)
    add("right_shift", _shift_right, 2, BITS)
    add("invert", np.invert, 1, BITS)
    add("bypass", lambda x, y: x, 2)
    add("average", np.add, 2)

    add("copy", np.positive, 1, activation=True)
    add("abs", np.abs, 1, activation=True)
    add("square", np.square, 1, activation=True)
    add("relu", lambda x: np.maximum(x, np.float32(0)), 1, activation=True)
    add("rsqrt", lambda x: ONE / np.sqrt(x), 1, activation=True, limits=(2.0**-87, 2.0**97))
    add("reciprocal", lambda x: ONE / x, 1, activation=True)
    add("logical_not", lambda x: (x == 0).astype(np.float32), 1)
    add("negative", np.negative, 1)
    functions: dict[str, Any] = {
        "sigmoid": _sigmoid,
        "gelu": _gelu,
        "gelu_dx": _gelu_dx,
        "gelu_apprx_tanh": _gelu_tanh,
        "gelu_apprx_sigmoid": lambda x: x * _sigmoid(SIGMOID_GELU * x),
        "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
        "silu": lambda x: x * _sigmoid(x),
        "silu_dx": _silu_dx,
        "tanh": np.tanh,
        "softplus": _softplus,
        "mish": lambda x: x * np.tanh(_softplus(x)),
        "erf": _erf,
        "erf_dx": lambda x: np.float32(2 / math.sqrt(math.pi)) * np.exp(-x * x),
        "exp": np.exp,
        "sign": np.sign,
    }
    for name, function in functions.items():
        add(name, function, 1, FUNCTION, activation=True)
    add("prelu", prelu, 1, FUNCTION, activation=True)
    for name, function, limits in (
        ("log", np.log, (2.0**-64, 2.0**64)),
        ("sin", np.sin, (-math.pi, math.pi)),
        ("arctan", np.arctan, (-math.pi / 2, math.pi / 2)),
        ("sqrt", np.sqrt, (2.0**-116, 2.0**118)),
    ):
        add(name, function, 1, FUNCTION, activation=True, limits=limits)
    # Of nki.language only: they take several instructions.
    for name in ("cos", "tan", "ceil", "floor", "trunc"):
        add(name, getattr(np, name), 1, FUNCTION)
    return found


TABLE = _table()
REDUCTIONS = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}
_NUMPY = {
    "amax": "maximum",
    "amin": "minimum",
    "absolute": "abs",
    "positive": "copy",
    **REDUCTIONS,
    **{name: name for name in TABLE},
}


def resolve(instruction: str, operation: Any, numpy: bool = False) -> Operation:
    """The operation that a kernel means.

    Args:
        numpy: whether NumPy's functions stand for them too, as in beta 1.
    """
    if isinstance(operation, Operation):
        return TABLE[REDUCTIONS.get(operation.name, operation.name)]
    if numpy and callable(operation):
        named = getattr(operation, "__name__", "")
        module = getattr(operation, "__module__", None) or ""
        if named in _NUMPY and (isinstance(operation, np.ufunc) or module.startswith("numpy")):
            return TABLE[_NUMPY[named]]
    refuse(f"{instruction}: op is {operation!r}; accepted: an operation of nki.language")
    raise AssertionError


@functools.cache
def names(**conditions: Any) -> tuple[str, ...]:
    """Of the operations that meet all conditions."""
    return tuple(
        name
        for name, operation in TABLE.items()
        if all(getattr(operation, key) == value for key, value in conditions.items())
    )


def binary(instruction: str, operation: Any, numpy: bool = False) -> Operation:
    """An operation of two operands."""
    found = resolve(instruction, operation, numpy)
    if found.inputs != 2:
        refuse(f"{instruction}: {found!r} takes {found.inputs} operands, here 2")
    return found


def activation(instruction: str, operation: Any, numpy: bool = False) -> Operation:
    """A function of the Scalar engine."""
    found = resolve(instruction, operation, numpy)
    if found.inputs != 1:
        refuse(f"{instruction}: {found!r} takes {found.inputs} operands, here 1")
    if not found.activation:
        refuse(
            f"{instruction}: the Scalar engine has no {found!r}; accepted: "
            + ", ".join(names(activation=True))
        )
    return found


def reduction(instruction: str, operation: Any, numpy: bool = False) -> Operation:
    """An operation that a reduction takes."""
    found = resolve(instruction, operation, numpy)
    if not found.reduces:
        refuse(
            f"{instruction}: {found!r} does not reduce; accepted: {', '.join(names(reduces=True))}"
        )
    return found


def reduced(operation: Operation, values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """values reduced along the last axes, which stay with size one."""
    ufunc = operation.function
    assert isinstance(ufunc, np.ufunc)
    if operation.name == "subtract":  # the first minus all others
        rest = np.prod([values.shape[a] for a in axes])
        flat = values.reshape(*values.shape[: min(axes)], int(rest))
        found = flat[..., :1] - flat[..., 1:].sum(-1, keepdims=True)
        return found.reshape([1 if a in axes else n for a, n in enumerate(values.shape)])
    return ufunc.reduce(values, axis=axes, keepdims=True)
