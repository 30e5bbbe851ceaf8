"""Arguments on a command line: "bf16[4096,4096] f32[128] k=3"."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from kernels.machines.checks import fail, kept_by_jax
from kernels.machines.hlo import DTYPES

SHORT = {
    **DTYPES,
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{"s4": "int4", "f64": "float64", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"},
}
FORM = 'such as "bf16[4096,4096] i32[3]=[100,0,156] causal=True", with dtypes ' + ", ".join(SHORT)
_ARRAY = re.compile(r"(\w+)\[([\d,\s]*)\](?:=(.+))?$")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)$", re.S)


def arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Read the positional and the named arguments of a function; ValueError for what cannot be
    read, with the form that can.

    In the text, separated by spaces, "DTYPE[SIZES]" is an array, a jax.ShapeDtypeStruct,
    "DTYPE[SIZES]=VALUES" one whose values matter, a NumPy array, as those that a grid or a loop
    depends on; anything else is a Python literal. "NAME=" before it makes a keyword argument of it.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for word in _words(text):
        keyword = _NAMED.match(word)
        if keyword and keyword[1] in named:
            fail("--args", repr(text), f"{keyword[1]} once")
        if keyword and not _ARRAY.match(word):
            named[keyword[1]] = _value(keyword[2], word)
        elif named:
            fail("--args", repr(text), "positional arguments before named ones")
        else:
            positional.append(_value(word, word))
    return positional, named


def _words(text: str) -> list[str]:
    """Parts between spaces that no bracket holds together."""
    words, depth, current = [], 0, ""
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter.isspace() and not depth:
            words.append(current)
            current = ""
        else:
            current += letter
    return [word for word in (*words, current) if word]


def _value(text: str, word: str) -> Any:
    import jax
    import ml_dtypes
    import numpy as np

    if array := _ARRAY.match(text):
        short, sizes, values = array.groups()
        name = SHORT.get(short, short)
        try:
            dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        except TypeError:
            fail("--args", repr(word), FORM)
        kept_by_jax(f"the dtype of --args {word!r}", dtype)
        shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        if values is None:
            return jax.ShapeDtypeStruct(shape, dtype)
        try:
            return np.array(ast.literal_eval(values), dtype).reshape(shape)
        except (ValueError, SyntaxError, TypeError):
            fail("--args", repr(word), f"{int(np.prod(shape))} values in a list")
    return literal(text, word, "--args", FORM)


def literal(text: str, word: str, option: str = "--over", form: str = "Python literals") -> Any:
    """A Python literal; ValueError for anything else."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        fail(option, repr(word), form)


def mesh_of(text: str) -> dict[str, int] | None:
    """Axis name → size of "AXIS=SIZE", or several with commas between; None for an empty text,
    ValueError for another form, and for an axis that stands twice."""
    mesh: dict[str, int] = {}
    for word in text.replace(" ", "").split(",") if text else ():
        axis, _, size = word.partition("=")
        if not axis.isidentifier() or not size.isdigit() or not int(size) or axis in mesh:
            fail("--mesh", repr(text), "AXIS=SIZE, such as x=4 or x=2,y=4, each axis once")
        mesh[axis] = int(size)
    return mesh or None


def trips_of(texts: Sequence[str]) -> dict[str, int]:
    """How often what data decides runs: "N" for all, "KERNEL=N", or "FILE:LINE=N" of a loop, each;
    what stands before "=", or "", → the number. ValueError for another form or a repetition."""
    trips: dict[str, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not count.isdigit() or name in trips or (not name and "=" in text):
            fail("--trips", repr(text), "N, KERNEL=N or FILE:LINE=N, once each")
        trips[name] = int(count)
    return trips
