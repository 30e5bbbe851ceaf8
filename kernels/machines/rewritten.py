"""Functions of JAX, traced and run otherwise: in float64, with rounding errors, in one piece."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.machines.compat import jaxprs

# What multiplies its operands, so that the sizes of its terms follow from those of its operands.
PRODUCTS = ("dot_general", "mul", "conv_general_dilated")


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose casts to a narrower float are casts to the widest one instead.

    Args:
        function: of arrays, that gives a tuple; traced in float64 with x64 on, else in float32.

    Returns:
        A function of the same arrays, that gives a list. Loops and conditions carry that too, what
        runs inside a kernel is left as it is.
    """
    import jax.numpy as jnp

    def run(*arrays: Any) -> list[Any]:
        try:
            closed = jaxprs.trace(function, *arrays)
        except TypeError:  # a loop that begins with float32 zeros does not take float64 along
            narrow = [jnp.asarray(a, jnp.float32) if _is_float(a) else a for a in arrays]
            closed = jaxprs.trace(function, *narrow)
        return jaxprs.interpret(closed, arrays, _in_the_widest)

    return run


def _in_the_widest(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The results of one operation, or of a loop whose body is widened too."""
    import jax.numpy as jnp

    wide, name = [*map(_wide, values)], jaxprs.operation(equation)
    if name in jaxprs.CONTROL:
        run = lambda body, *inner: [*map(_wide, jaxprs.interpret(body, inner, _in_the_widest))]
        return jaxprs.controlled(equation, wide, run)
    if any(jaxprs.inner_jaxprs(equation)) and not name.startswith("scatter"):
        operands = zip(values, jaxprs.inputs(equation), strict=True)
        narrow = [jnp.asarray(v, jaxprs.dtype(o)) if _is_float(v) else v for v, o in operands]
        return jaxprs.bound(equation, narrow)
    casts: dict[str, Any] = {
        key: _widest()
        for key, dtype in equation.params.items()
        if key in ("new_dtype", "preferred_element_type", "dtype")
        and dtype is not None
        and jnp.issubdtype(dtype, jnp.floating)
    }
    for inner in jaxprs.inner_jaxprs(equation):  # how a scatter puts two numbers together
        number = jnp.zeros((), jnp.result_type(wide[0]))
        joined = lambda *two, inner=inner: jaxprs.interpret(inner, two, _in_the_widest)
        casts["update_jaxpr"] = jaxprs.opened(jaxprs.trace(joined, number, number))
    return jaxprs.bound(equation, wide, **casts)


def _wide(value: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, _widest()) if _is_float(value) else value


def _widest() -> Any:
    import jax

    return jax.dtypes.canonicalize_dtype(np.float64)


def _is_float(value: Any) -> bool:
    import jax.numpy as jnp

    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


def rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """How far off rounding may leave each result of a function: a running error analysis.

    Every argument and every intermediate result is taken to be off by one unit, relative to itself;
    what that does to each operation after it is added up by absolute value. So what is a difference
    of two sums is no more exact than these are.

    Args:
        function: of arrays, or tuples of them, that gives a tuple.

    Returns:
        A function of the same arrays, that gives a list: for each result, in units of the relative
        error of one operation, an array of its shape. A loop or a condition counts as one
        operation; what runs inside a kernel adds no error but that of its results.

    Source:
        Wilkinson, "Rounding Errors in Algebraic Processes" (1963).
    """
    import jax

    def run(*arrays: Any) -> list[Any]:
        leaves = [_with_error(leaf) for leaf in jax.tree.leaves(arrays)]
        closed = jaxprs.trace(function, *arrays)
        return [error for _, error in jaxprs.interpret(closed, leaves, _one_error, _with_error)]

    return run


def _with_error(value: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    value = jnp.asarray(value)
    floats = jnp.issubdtype(value.dtype, jnp.floating)
    return value, jnp.abs(value) if floats else jnp.zeros(value.shape)


def _one_error(equation: Any, operands: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The results of one operation, each with its error."""
    import jax
    import jax.numpy as jnp

    values = [value for value, _ in operands]
    results = [_with_error(result) for result in jaxprs.bound(equation, values)]
    name = jaxprs.operation(equation)
    followed = name in jaxprs.CONTROL or name.startswith("scatter")
    if any(jaxprs.inner_jaxprs(equation)) and not followed:
        return results
    if name in PRODUCTS:
        values = [jnp.abs(value) for value in values]
    sums = [jnp.zeros(error.shape) for _, error in results]
    for place, (value, error) in enumerate(operands):
        if not _is_float(value):
            continue
        varied = lambda one, place=place: jaxprs.bound(
            equation, [*values[:place], one, *values[place + 1 :]]
        )
        try:
            _, moved = jax.jvp(varied, (values[place],), (error.astype(value.dtype),))
        except NotImplementedError:  # what has no derivative
            continue
        sums = [
            total + jnp.nan_to_num(jnp.abs(change), posinf=0.0)
            if jnp.issubdtype(change.dtype, jnp.floating)
            else total
            for total, change in zip(sums, moved, strict=True)
        ]
    return [
        (value, jnp.maximum(own, total)) for (value, own), total in zip(results, sums, strict=True)
    ]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays, with one result, without custom rules and calls of other functions.
    Mosaic GPU lowers what an activation computes, and knows no jax.custom_jvp."""
    run = lambda *arrays: jaxprs.interpret(jaxprs.trace(function, *arrays), arrays, jaxprs.bound)
    return lambda *arrays: run(*arrays)[0]
