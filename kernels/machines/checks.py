"""Checks of arguments. Each raises ValueError: the argument, what it was, and what is accepted."""

import dataclasses
import difflib
import inspect
import math
import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

__all__ = ["array", "brief", "fail", "located", "one_of", "positive_int", "same", "user_file"]
FLOATS = ("float32", "bfloat16")  # the dtypes of most kernels
TENSORS = ("torch.float32", "torch.bfloat16")  # the same of PyTorch


def brief(error: BaseException) -> str:
    """An exception in one line: its type and the first line of its text, files without folders."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    first = re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", first)
    # A notebook's cell is a file named by a number.
    first = re.sub(r"\b\d+\.py:(\d+)", r"line \1 of the cell", first)
    return f"{type(error).__name__}: {first}"[:400]


def located(error: BaseException) -> str:
    """An exception in one line, with "(file.py:line)" of what raised it outside of libraries."""
    if isinstance(error, SyntaxError):
        line = f":{error.lineno}" if error.lineno else ""  # of NUL bytes Python tells none
        place = f" ({Path(error.filename).name}{line})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    words = str(error).splitlines()[0] if type(error) is ValueError and str(error) else brief(error)
    theirs = [f for f in traceback.extract_tb(error.__traceback__) if user_file(f.filename)]
    return f"{words} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else words


def user_file(file: str) -> bool:
    """Whether a line of code is a reader's, and neither a library's nor this package's own."""
    library = "site-packages" in file or "/lib/python" in file or file.startswith("<")
    return not library and Path(__file__).parents[1] not in Path(file).parents


def fail(argument: str, value: object, accepted: str) -> NoReturn:
    """Raise it: the argument or a part of it such as "x.shape", its value (of a function its name),
    and what would do."""
    raise ValueError(f"{argument} is {getattr(value, '__name__', value)}; accepted: {accepted}")


def array(
    argument: str,
    value: Any,
    *,
    rank: int,
    dtypes: Collection[str] = FLOATS,
    like: tuple[str, Any] | None = None,
    empty: bool = False,
) -> None:
    """Check an array's rank and dtype, which is that of another argument where it is `like` one,
    and that no dimension is zero unless it may be `empty`."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        fail(argument, f"a {type(value).__name__}", f"an array of rank {rank}")
    shape = tuple(value.shape)
    if len(shape) != rank:
        fail(f"{argument}.shape", shape, f"{rank} dimension{'s' * (rank != 1)}")
    if 0 in shape and not empty:
        fail(f"{argument}.shape", shape, "dimensions of at least 1")
    one_of(f"{argument}.dtype", str(value.dtype), dtypes)
    if like is not None:
        same(f"{argument}.dtype", str(value.dtype), like[0], str(like[1].dtype))


def kept_by_jax(argument: str, dtype: Any) -> None:
    """Check that JAX keeps a dtype: of float64 it makes float32 unasked, unless x64 is enabled."""
    import jax

    if (kept := jax.dtypes.canonicalize_dtype(dtype, True)) != dtype:  # True: keys too
        fail(argument, dtype, f"{kept}, which JAX makes of it unless JAX_ENABLE_X64=1")


def same(argument: str, value: object, other: str, expected: object) -> None:
    """Check that a property of one argument, such as "y.dtype", equals that of another."""
    if value != expected:
        fail(argument, value, f"{expected}, as {other} has it")


def one_of(argument: str, value: object, accepted: Collection[Any]) -> None:
    """Check that `value` is one of the `accepted` ones."""
    if value not in accepted:
        shown = f"{value!r}" if isinstance(value, str) else value
        names = [str(name) for name in accepted]
        near = difflib.get_close_matches(str(value), names, 1) if len(names) > 12 else []
        meant = "".join(f"{name}, perhaps; all: " for name in near)
        fail(argument, shown, meant + ", ".join(names))


def positive(argument: str, value: object) -> None:
    """Check that `value` is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value > 0:
        fail(argument, repr(value), "a number above 0")


def finite(argument: str, value: Any, default: float | None = None) -> float:
    """A finite number, as Python has it; None stands for the default, where there is one."""
    if value is None and default is not None:
        return default
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and -math.inf < value < math.inf):  # torch.compile cannot trace isfinite
        accepted = "a finite number" if default is None else "None or a finite number"
        fail(argument, repr(value), accepted)
    return float(value)


def instance(argument: str, value: object, kind: Any) -> None:
    """Check that `value` is None or of a dataclass."""
    if value is not None and not isinstance(value, kind):
        names = ", ".join(field.name for field in dataclasses.fields(kind))
        fail(argument, repr(value), f"None or {kind.__name__}({names})")


def known(value: Any) -> np.ndarray | None:
    """An array's numbers; None under jax.jit, where nobody knows them yet."""
    from jax.core import Tracer

    return None if isinstance(value, Tracer) else np.asarray(value)


def takes(
    argument: str, function: Any, args: Sequence[Any], named: Mapping[str, Any], over: Any = ()
) -> None:
    """Check that `function` takes these, as far as its signature tells; --over names some."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of something built in
        return
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        known = signature.parameters.values()
        late = [p for i, p in enumerate(known) if i >= len(args) or p.kind == p.KEYWORD_ONLY]
        free = [p.name for p in late if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        wrong = [name for name in named if name not in free]
        if wrong and all(p.kind != p.VAR_KEYWORD for p in known):
            accepted = ", ".join(free) or f"no name, by {name_of(function)}{signature}"
            fail("--over" if wrong[0] in over else argument, repr(wrong[0]), accepted)
        words = " with ".join([f"a list of {len(args)}", *filter(None, [", ".join(named)])])
        fail(argument, f"{words} ({error})", f"{name_of(function)}{signature}")


def positive_int(argument: str, value: object) -> None:
    """Check that `value` is a whole number of at least 1 (a bool is not a number here)."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        fail(argument, repr(value), "a whole number of at least 1")


def name_of(function: Any) -> str:
    """A function's name, or that of its type."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__name__", "") or type(function).__name__
