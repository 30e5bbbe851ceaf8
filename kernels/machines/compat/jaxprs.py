"""A traced program of JAX, read: its equations, what they hold, and the programs inside them.

JAX promises nothing of these: `Jaxpr.eqns`, `JaxprEqn.params` and the names in it, `Literal.val`,
`SourceInfo.traceback`, `Primitive.bind`. All were seen in JAX 0.10.2 and 0.12.0.1.
A ClosedJaxpr is a Jaxpr since 0.12, which keeps `.jaxpr` "until its uses are gone".
"""

import functools
import math
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

CONTROL = ("cond", "while", "scan")  # primitives that decide which jaxpr runs, and how often

INTEGERS = ("int", "uint", "bool")  # how their dtypes begin


def trace(function: Callable[..., Any], *args: Any) -> Any:
    """The closed jaxpr of `function(*args)`."""
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


def passes_of(precision: Any, dtypes: Sequence[str]) -> int:
    """How often a TPU's MXU multiplies for a product that takes float32 factors: once at default
    precision, and then it takes bfloat16 of them; 3 times at high and 6 at the highest. 0 for a
    product without float32 factors, and where an algorithm is asked for by name."""
    import jax

    known: dict[Any, int] = {None: 1, **{jax.lax.Precision(i): n for i, n in enumerate((1, 3, 6))}}
    sides = precision if isinstance(precision, tuple) else (precision,)
    asked = [known.get(side, 0) for side in sides]
    return max(asked) if "float32" in dtypes and all(asked) else 0


def passes(equation: Any) -> int:
    """How often the MXU multiplies for an equation, see passes_of; 0 for what is no product."""
    if operation(equation) not in ("dot_general", "conv_general_dilated"):
        return 0
    return passes_of(equation.params["precision"], [dtype(f) for f in inputs(equation)])


def most_terms(jaxpr: Any) -> int:
    """How many numbers an element adds up at most, by one operation or by a loop that carries."""
    most = 1
    for equation in equations(jaxpr):
        name = operation(equation)
        if name == "scan" and scan(equation).carried:
            most = max(most, scan(equation).length)
        elif name in ("reduce_sum", "dot_general"):
            sizes = inputs(equation)[0].aval.shape
            summed = equation.params.get("axes") or equation.params["dimension_numbers"][0][0]
            most = max(most, math.prod(sizes[axis] for axis in summed))
        elif name == "cumsum":
            most = max(most, inputs(equation)[0].aval.shape[equation.params["axis"]])
    return most


def inputs(equation_or_jaxpr: Any) -> list[Any]:
    """What an equation reads, or what a jaxpr takes: variables and literals."""
    return list(opened(equation_or_jaxpr).invars)


def outputs(equation_or_jaxpr: Any) -> list[Any]:
    """What an equation or a jaxpr gives."""
    return list(opened(equation_or_jaxpr).outvars)


def unused(jaxpr: Any) -> set[Any]:
    """The results of equations, of a jaxpr and of those inside it, that nothing reads."""
    opening = opened(jaxpr)
    results = {v for equation in opening.eqns for v in equation.outvars}
    read = {v for equation in opening.eqns for v in equation.invars if not hasattr(v, "val")}
    idle = results - read - {v for v in opening.outvars if not hasattr(v, "val")}
    for equation in opening.eqns:
        for inner in inner_jaxprs(equation):
            idle |= unused(inner)
    return idle


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
    return [opened(body) for body in _bodies(equation)[:1]] or list(inner_jaxprs(equation))


def called_closed(equation: Any) -> Any:
    """The one jaxpr that an equation of CALLS runs, with the constants that it brings."""
    return _bodies(equation)[0]


def _bodies(equation: Any) -> list[Any]:
    parameters = [equation.params.get(key) for key in ("call_jaxpr", "jaxpr", "fun_jaxpr")]
    return [body for body in parameters if hasattr(opened(body), "eqns")]


def handed_inside(equation: Any) -> Iterator[tuple[Any, list[int | None]]]:
    """The jaxprs that an equation runs otherwise: loops, branches, and what else there is. With
    each, for each of its inputs the number of the operand that it stays, None for one that changes
    from round to round or is not followed."""
    name = operation(equation)
    if name == "cond":
        for branch in branches(equation):
            yield branch, [i + 1 for i in range(len(inputs(branch)))]
    elif name == "scan":
        body, fixed = scan(equation).body, scan(equation).fixed
        yield body, [i if i < fixed else None for i, _ in enumerate(inputs(body))]
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
    return bound(equation, operands)


def bound(equation: Any, values: Sequence[Any], **changed: Any) -> list[Any]:
    """What an equation's operation gives of these values, with some of its parameters changed."""
    results = equation.primitive.bind(*values, **{**equation.params, **changed})
    return list(results) if equation.primitive.multiple_results else [results]


def interpret(
    jaxpr: Any,
    values: Sequence[Any],
    rule: Callable[[Any, list[Any]], Sequence[Any]],
    lift: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """What a closed jaxpr gives: rule(equation, what it reads) → what it gives, and lift(a constant
    or a literal) → what that is to the rule; calls of others are gone through."""
    inner = opened(jaxpr)
    known = dict(zip(inner.constvars, map(lift, getattr(jaxpr, "consts", ())), strict=True))
    known |= dict(zip(inner.invars, values, strict=True))

    def read(variable: Any) -> Any:
        return lift(variable.val) if hasattr(variable, "val") else known[variable]

    for equation in inner.eqns:
        operands = [read(variable) for variable in equation.invars]
        if passes_on(equation):
            results: Sequence[Any] = interpret(called_closed(equation), operands, rule, lift)
        else:
            results = rule(equation, operands)
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in inner.outvars]


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
    keys = ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")
    return While(*(equation.params[key] for key in keys))


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


def controlled(equation: Any, values: Sequence[Any], run: Callable[..., list[Any]]) -> list[Any]:
    """What an equation of CONTROL gives of values of other dtypes than its own, where run(a closed
    jaxpr inside it, *values) gives what that does."""
    from jax import lax

    if operation(equation) == "cond":
        taken = [functools.partial(run, branch) for branch in branches(equation)]
        return lax.switch(values[0], taken, *values[1:])
    if operation(equation) == "while":
        whole = while_loop(equation)
        first, last = whole.of_condition, whole.of_condition + whole.of_body
        goes_on = lambda carry: run(whole.condition, *values[:first], *carry)[0]
        body = lambda carry: run(whole.body, *values[first:last], *carry)
        return lax.while_loop(goes_on, body, [*values[last:]])
    loop = scan(equation)
    fixed, last = loop.fixed, loop.fixed + loop.carried

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        results = run(loop.body, *values[:fixed], *carry, *row)
        return results[: loop.carried], results[loop.carried :]

    backwards = equation.params["reverse"]
    carry, rows = lax.scan(step, [*values[fixed:last]], [*values[last:]], loop.length, backwards)
    return [*carry, *rows]


def limit(equation: Any) -> int | None:
    """The number of the operand that a counting "while" counts up to; None where it does not."""
    loop = while_loop(equation)
    condition = opened(loop.condition)
    if [operation(inner) for inner in condition.eqns] != ["lt"] or loop.of_condition:
        return None
    below = condition.eqns[0].invars[1]
    places = [i for i, v in enumerate(condition.invars) if v is below]
    return loop.of_body + places[0] if places else None


def counted(equation: Any) -> tuple[int, ...]:
    """The numbers of the operands in which the counter of a "while" that goes up one by one starts
    and ends; () for any other loop."""
    end, loop = limit(equation), while_loop(equation)
    if end is None:
        return ()
    condition, body = opened(loop.condition), opened(loop.body)
    additions = {id(e.outvars[0]): e.invars for e in body.eqns if operation(e) == "add"}
    for place, variable in enumerate(condition.invars):
        old, one = additions.get(id(body.outvars[place]), (None, None))
        if variable is condition.eqns[0].invars[0] and old is body.invars[loop.of_body + place]:
            return (loop.of_body + place, end) if literal(one) == 1 else ()
    return ()


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


def dot_flops(equation: Any) -> int:
    """Operations of a "dot_general", a multiply-add counting two."""
    (summed, _), _ = equation.params["dimension_numbers"]
    depth = math.prod(equation.invars[0].aval.shape[axis] for axis in summed)
    return 2 * math.prod(equation.outvars[0].aval.shape) * depth


def output_features(equation: Any) -> int:
    """The number of features that a "conv_general_dilated" makes, of its kernel."""
    axis = equation.params["dimension_numbers"].rhs_spec[0]
    return inputs(equation)[1].aval.shape[axis]


def evaluate(equation: Any, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """What one equation on scalars, with one scalar result, gives for many values of its operands
    at once, [n] or [1] each: [n], or None where JAX does not evaluate it, which is said as a
    Changed warning."""
    import jax
    import jax.numpy as jnp

    size = max(np.size(value) for value in values)
    wide = [
        jnp.asarray(np.broadcast_to(np.reshape(value, -1), size), operand.aval.dtype)
        for value, operand in zip(values, inputs(equation), strict=True)
    ]
    operation_of = lambda *operands: bound(equation, operands)
    try:
        try:
            results = jax.vmap(operation_of)(*wide)
        except NotImplementedError:  # as `multiple_of`, which takes arrays as they are
            results = operation_of(*wide)
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        what = f"{operation(equation)} on scalars cannot be evaluated ({why})"
        unknown = "what depends on it is not known, and a count of work is an upper bound"
        changed("jax", f"{what}: {unknown}")
        return None
    return np.asarray(results[0])


def argument_names(jaxpr: Any) -> tuple[str, ...]:
    """What the function calls each of its arguments, such as "x" or "weights['up']"."""
    names = getattr(opened(jaxpr).debug_info, "arg_names", None) or ()
    return tuple(
        names[i] if i < len(names) and names[i] else f"argument {i}"
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
