"""A traced program of JAX, read: its equations, what they hold, and the programs inside them.

JAX promises nothing of these: `Jaxpr.eqns`, `JaxprEqn.params` and the names in it, `Literal.val`,
`SourceInfo.traceback`, `Primitive.bind`. All were seen in JAX 0.7.1, 0.10.2, 0.11.2 and 0.12.0.1.
A ClosedJaxpr is a Jaxpr since 0.12, which keeps `.jaxpr` "until its uses are gone".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.compat import changed

# Primitives that run one jaxpr on their own operands, one to one.
CALLS = (
    *("jit", "pjit", "closed_call", "core_call", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call"),
)


def trace(function: Callable[..., Any], *args: Any) -> Any:
    """The closed jaxpr of `function(*args)`.

    Args:
        function: what JAX can trace.
        *args: arrays or jax.ShapeDtypeStruct.
    """
    import jax

    return jax.make_jaxpr(function)(*args)


def opened(jaxpr: Any) -> Any:
    """The jaxpr inside a closed one; any other as it is."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def own_equations(jaxpr: Any) -> list[Any]:
    """The equations of a jaxpr, without those of the jaxprs inside it."""
    return list(opened(jaxpr).eqns)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it, kernels included."""
    for equation in own_equations(jaxpr):
        yield equation
        for inner in inner_jaxprs(equation):
            yield from equations(inner)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    """The jaxprs among an equation's parameters."""
    for value in equation.params.values():
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            inner = opened(inner)
            if hasattr(inner, "eqns"):
                yield inner


def operation(equation: Any) -> str:
    """The name of an equation's operation, such as "dot_general"."""
    return equation.primitive.name


def inputs(equation_or_jaxpr: Any) -> list[Any]:
    """What an equation reads, or what a jaxpr takes: variables and literals."""
    return list(opened(equation_or_jaxpr).invars)


def outputs(equation_or_jaxpr: Any) -> list[Any]:
    """What an equation or a jaxpr gives."""
    return list(opened(equation_or_jaxpr).outvars)


def unused(jaxpr: Any) -> set[Any]:
    """The results of equations, of a jaxpr and of those inside it, that nothing reads."""
    opening = opened(jaxpr)
    made = {v for equation in opening.eqns for v in equation.outvars}
    read = {v for equation in opening.eqns for v in equation.invars if not hasattr(v, "val")}
    found = made - read - {v for v in opening.outvars if not hasattr(v, "val")}
    for equation in opening.eqns:
        for inner in inner_jaxprs(equation):
            found |= unused(inner)
    return found


def shape(variable: Any) -> Any:
    """The shape of a variable's value; None for a value without one."""
    return getattr(variable.aval, "shape", None)


def dtype(variable: Any) -> str:
    """The dtype of a variable's value, as a word."""
    return str(variable.aval.dtype)


def precisions(product: Any) -> tuple[str, ...]:
    """The precision of each factor of a dot_general, such as "HIGHEST"; empty by default."""
    asked = product.params["precision"]
    return tuple(p.name for p in asked) if isinstance(asked, tuple) else ()


def bits(dtype: Any) -> int:
    """Bits of an element in memory: 4 of an int4, which NumPy gives a byte."""
    import jax

    return int(jax.dtypes.itemsize_bits(np.dtype(dtype)))


def literal(variable: Any) -> Any:
    """The value of a literal; None for a variable."""
    return getattr(variable, "val", None)


def called(equation: Any) -> list[Any]:
    """The jaxprs that an equation runs; custom rules carry others, which do not run."""
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        inner = opened(equation.params.get(key))
        if hasattr(inner, "eqns"):
            return [inner]
    return list(inner_jaxprs(equation))


def called_closed(equation: Any) -> Any:
    """The one jaxpr that an equation of CALLS runs, with the constants that it brings."""
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        if hasattr(opened(equation.params.get(key)), "eqns"):
            return equation.params[key]
    return called(equation)[0]


def handed_inside(equation: Any) -> Iterator[tuple[Any, list[int | None]]]:
    """The jaxprs that an equation runs otherwise: loops, branches, and what else there is.

    Yields:
        The jaxpr, and for each of its inputs the number of the operand that it stays, None for one
        that changes from round to round or is not followed.
    """
    name = operation(equation)
    if name == "cond":
        for branch in branches(equation):
            yield branch, [i + 1 for i in range(len(inputs(branch)))]
    elif name == "scan":
        each = scan(equation)
        yield each.body, [i if i < each.fixed else None for i, _ in enumerate(inputs(each.body))]
    elif name == "while":
        loop, first = while_loop(equation), while_loop(equation).of_condition
        count = len(inputs(loop.condition))
        yield loop.condition, [i if i < first else None for i in range(count)]
        count = len(inputs(loop.body))
        yield loop.body, [first + i if i < loop.of_body else None for i in range(count)]
    else:
        for inner in inner_jaxprs(equation):
            fits = len(inputs(inner)) == len(inputs(equation))
            yield inner, [i if fits else None for i, _ in enumerate(inputs(inner))]


def results(equation: Any, values: Sequence[Any]) -> list[Any]:
    """What an equation gives of these values, inside a trace or outside."""
    import jax

    operands = [
        jax.numpy.asarray(value, operand.aval.dtype)
        for value, operand in zip(values, inputs(equation), strict=True)
    ]
    found = equation.primitive.bind(*operands, **equation.params)
    return list(found) if equation.primitive.multiple_results else [found]


def on_cpu(function: Callable[[], Any]) -> Any:
    """What `function()` gives, compiled for the CPU; None where JAX refuses it there."""
    import jax

    try:
        with jax.default_device(jax.devices("cpu")[0]):
            return np.asarray(jax.jit(function)())
    except Exception as error:
        changed("jax", f"values that kernels ask for cannot be computed: {str(error)[:200]}")
        return None


def passes_on(equation: Any) -> bool:
    """Whether an equation runs one jaxpr on its own operands, one to one, as jit's does."""
    return operation(equation) in CALLS


def branches(equation: Any) -> list[Any]:
    """The closed jaxprs of a "cond", the first of which runs for the index 0."""
    return list(equation.params["branches"])


@dataclass(frozen=True)
class While:
    """A "while": its closed jaxprs, and how many operands each takes before what is carried."""

    condition: Any
    body: Any
    of_condition: int
    of_body: int


def while_loop(equation: Any) -> While:
    """The parts of a "while"."""
    params = equation.params
    return While(
        params["cond_jaxpr"],
        params["body_jaxpr"],
        int(params["cond_nconsts"]),
        int(params["body_nconsts"]),
    )


@dataclass(frozen=True)
class Scan:
    """A "scan": its closed body, how many operands stay and how many are carried, its rounds."""

    body: Any
    fixed: int
    carried: int
    length: int


def scan(equation: Any) -> Scan:
    """The parts of a "scan"."""
    params = equation.params
    if "ft_in" in params:  # since JAX 0.12
        fixed, carried, _ = map(len, params["ft_in"].unpack())
    else:
        fixed, carried = params["num_consts"], params["num_carry"]
    return Scan(params["jaxpr"], int(fixed), int(carried), int(params["length"]))


def limit(equation: Any) -> int | None:
    """The number of the operand that a counting "while" counts up to; None where it does not."""
    loop = while_loop(equation)
    condition = opened(loop.condition)
    if [operation(each) for each in condition.eqns] != ["lt"] or loop.of_condition:
        return None
    below = condition.eqns[0].invars[1]
    places = [i for i, v in enumerate(condition.invars) if v is below]
    return loop.of_body + places[0] if places else None


def kind(variable: Any) -> tuple[str, int]:
    """NumPy's letter for the kind of a variable's dtype, and its bits: ("i", 32)."""
    dtype = variable.aval.dtype
    return ("f" if str(dtype) == "bfloat16" else getattr(dtype, "kind", "")), bits(dtype)


def constants(jaxpr: Any) -> tuple[list[Any], list[Any]]:
    """The variables of a jaxpr for what it takes from outside, and their values if it is closed."""
    return list(opened(jaxpr).constvars), list(getattr(jaxpr, "consts", ()))


def loop(equation: Any) -> tuple[Any, int | None]:
    """The body of a "scan" or a "while", and how often it runs; None where only the run knows."""
    if operation(equation) == "scan":
        return opened(equation.params["jaxpr"]), int(equation.params["length"])
    return opened(equation.params["body_jaxpr"]), None


def grid_axis(equation: Any) -> int:
    """The grid dimension that a "program_id" or "num_programs" asks for."""
    return int(equation.params["axis"])


def contracted(equation: Any) -> tuple[int, ...]:
    """The sizes of the dimensions that a "dot_general" sums over."""
    (left, _), _ = equation.params["dimension_numbers"]
    return tuple(inputs(equation)[0].aval.shape[axis] for axis in left)


def output_features(equation: Any) -> int:
    """The number of features that a "conv_general_dilated" makes, of its kernel."""
    axis = equation.params["dimension_numbers"].rhs_spec[0]
    return inputs(equation)[1].aval.shape[axis]


def evaluate(equation: Any, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """What one equation on scalars gives, for many values of them at once.

    Args:
        equation: Of scalars, with one scalar result.
        values: Of each of its operands: [n] or [1] each.

    Returns:
        [n]; None where JAX does not evaluate it, which is said as a Changed warning.
    """
    import jax
    import jax.numpy as jnp

    size = max(np.size(value) for value in values)
    wide = [
        jnp.asarray(np.broadcast_to(np.reshape(value, -1), size), operand.aval.dtype)
        for value, operand in zip(values, inputs(equation), strict=True)
    ]

    def bound(*operands: Any) -> Any:
        return equation.primitive.bind(*operands, **equation.params)

    try:
        try:
            found = jax.vmap(bound)(*wide)
        except (
            NotImplementedError
        ):  # no batching rule, as `multiple_of`: it takes arrays as they are
            found = bound(*wide)
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        changed(
            "jax",
            f"{operation(equation)} on scalars cannot be evaluated ({why}): what depends on it is "
            "not known, and a count of work is an upper bound",
        )
        return None
    return np.asarray(found[0] if isinstance(found, (list, tuple)) else found)


def argument_names(jaxpr: Any) -> tuple[str, ...]:
    """What the function calls each of its arguments, such as "x" or "weights['up']"."""
    found = getattr(opened(jaxpr).debug_info, "arg_names", None) or ()
    return tuple(
        found[i] if i < len(found) and found[i] else f"argument {i}"
        for i, _ in enumerate(inputs(jaxpr))
    )


def frames(equation: Any) -> list[tuple[str, int]]:
    """File and line of each Python frame that asked for an equation, the innermost first."""
    traceback = equation.source_info.traceback
    return [(f.file_name, f.line_num) for f in traceback.frames] if traceback else []


def as_function(jaxpr: Any) -> Callable[..., Any]:
    """A closed jaxpr as a function of its operands, which gives a list."""
    from jax.extend.core import jaxpr_as_fun

    return jaxpr_as_fun(jaxpr)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose casts to a narrower float are casts to float64 instead.

    Args:
        function: of arrays, that gives a tuple; traced with x64 on.

    Returns:
        A function of the same arrays, that gives a list. What runs inside a loop, a condition or a
        kernel is left as it is.
    """
    import jax

    def run(*arrays: Any) -> list[Any]:
        closed = jax.make_jaxpr(function)(*arrays)
        return _widened(opened(closed), list(closed.consts), list(arrays))

    return run


# What multiplies its operands, so that the sizes of its terms follow from those of its operands.
PRODUCTS = ("dot_general", "mul", "conv_general_dilated")


def rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """How far off rounding may leave each result of a function: a running error analysis.

    Every argument and every intermediate result is taken to be off by one unit, relative to itself;
    what that does to each operation after it is added up by absolute value. So what is a difference
    of two sums is no more exact than these are.

    Args:
        function: of arrays, or tuples of them, that gives a tuple; traced with x64 on.

    Returns:
        A function of the same arrays, that gives a list: for each result, in units of the relative
        error of one operation, an array of its shape. What runs inside a loop, a condition or a
        kernel counts as one operation.

    Source:
        Wilkinson, "Rounding Errors in Algebraic Processes" (1963).
    """
    import jax

    def run(*arrays: Any) -> list[Any]:
        closed = jax.make_jaxpr(function)(*arrays)
        leaves = [_with_error(each) for each in jax.tree.leaves(arrays)]
        held = [_with_error(each) for each in closed.consts]
        return [error for _, error in _errors(opened(closed), held, leaves)]

    return run


def _with_error(value: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    value = jnp.asarray(value)
    floats = jnp.issubdtype(value.dtype, jnp.floating)
    return value, jnp.abs(value) if floats else jnp.zeros(value.shape)


def _errors(
    jaxpr: Any, constants: Sequence[tuple[Any, Any]], arrays: Sequence[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """The results of a jaxpr, each with its error."""
    known: dict[Any, tuple[Any, Any]] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, arrays, strict=True))

    def look(variable: Any) -> tuple[Any, Any]:
        return _with_error(variable.val) if hasattr(variable, "val") else known[variable]

    for equation in jaxpr.eqns:
        given = [look(each) for each in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if passes_on(equation) and inner is not None:
            held = [_with_error(each) for each in getattr(inner, "consts", ())]
            found = _errors(opened(inner), held, given)
        else:
            found = _one_error(equation, given)
        known |= dict(zip(equation.outvars, found, strict=True))
    return [look(each) for each in jaxpr.outvars]


def _one_error(equation: Any, given: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The results of one operation, each with its error."""
    import jax
    import jax.numpy as jnp

    def results(*values: Any) -> list[Any]:
        found = equation.primitive.bind(*values, **equation.params)
        return list(found) if equation.primitive.multiple_results else [found]

    values = [value for value, _ in given]
    made = [_with_error(each) for each in results(*values)]
    if any(inner_jaxprs(equation)) and not operation(equation).startswith("scatter"):
        return made
    if operation(equation) in PRODUCTS:
        values = [jnp.abs(each) for each in values]
    errors = [error for _, error in made]
    sums = [jnp.zeros(each.shape) for each in errors]
    for place, (value, error) in enumerate(given):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            continue
        varied = lambda one, place=place: results(*values[:place], one, *values[place + 1 :])
        try:
            _, moved = jax.jvp(varied, (values[place],), (error.astype(value.dtype),))
        except NotImplementedError:  # what has no derivative
            continue
        sums = [
            total + jnp.nan_to_num(jnp.abs(each), posinf=0.0)
            if jnp.issubdtype(each.dtype, jnp.floating)
            else total
            for total, each in zip(sums, moved, strict=True)
        ]
    return [
        (value, jnp.maximum(own, total)) for (value, own), total in zip(made, sums, strict=True)
    ]


def _widened(jaxpr: Any, constants: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    import jax.numpy as jnp

    known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, arrays, strict=True))

    def value(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else known[variable]

    def floats(each: Any) -> bool:
        return jnp.issubdtype(jnp.result_type(each), jnp.floating)

    for equation in jaxpr.eqns:
        given = [value(each) for each in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if passes_on(equation) and inner is not None:
            found = _widened(opened(inner), list(getattr(inner, "consts", ())), given)
        elif any(inner_jaxprs(equation)):
            given = [
                jnp.asarray(each, variable.aval.dtype) if floats(each) else each
                for each, variable in zip(given, equation.invars, strict=True)
            ]
            found = equation.primitive.bind(*given, **equation.params)
            found = list(found) if equation.primitive.multiple_results else [found]
        else:
            params = {
                key: jnp.float64
                if key in ("new_dtype", "preferred_element_type", "dtype")
                and each is not None
                and jnp.issubdtype(each, jnp.floating)
                else each
                for key, each in equation.params.items()
            }
            given = [jnp.asarray(each, jnp.float64) if floats(each) else each for each in given]
            found = equation.primitive.bind(*given, **params)
            found = list(found) if equation.primitive.multiple_results else [found]
        known |= dict(zip(equation.outvars, found, strict=True))
    return [value(each) for each in jaxpr.outvars]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays, with one result, without custom rules and calls of other functions.

    Mosaic GPU lowers what an activation computes, and knows no jax.custom_jvp.

    Args:
        function: of arrays, of which it gives one.
    """
    import jax

    def run(*arrays: Any) -> Any:
        closed = jax.make_jaxpr(function)(*arrays)
        return _inlined(opened(closed), list(closed.consts), list(arrays))[0]

    return run


def _inlined(jaxpr: Any, constants: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, arrays, strict=True))

    def value(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else known[variable]

    for equation in jaxpr.eqns:
        given = [value(each) for each in equation.invars]
        if passes_on(equation):
            inner = called_closed(equation)
            found = _inlined(opened(inner), list(getattr(inner, "consts", ())), given)
        else:
            found = equation.primitive.bind(*given, **equation.params)
            found = list(found) if equation.primitive.multiple_results else [found]
        known |= dict(zip(equation.outvars, found, strict=True))
    return [value(each) for each in jaxpr.outvars]
