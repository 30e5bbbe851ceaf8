"""Products of float32 as a chip's multipliers take them, where JAX runs on the CPU.

A TPU multiplies bfloat16 alone: a float32 product of default precision is one pass, of factors
rounded to bfloat16; of high precision it is three, of their halves. A GPU's tensor cores keep 10
bits of a fraction (TensorFloat-32). All add up in float32. At the highest precision nothing is lost
that float32 holds. And no chip knows a mask from numbers: NaN times False is NaN.

Private: the lowering rules of `jax.interpreters.mlir`, and
`jax._src.compiler.backend_compile_and_load`, for jax.jit does not know those programs again that
were traced under other rules, though most are the same operation. Seen in JAX 0.10.2 and 0.12.0.1.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from kernels.machines.compat import jaxprs

TPU, GPU, WHOLE = "tpu", "gpu", "whole"
FRACTION = {TPU: 7, GPU: 10}  # bits that a multiplier keeps of a factor's


@contextlib.contextmanager
def multiplying(machine: str) -> Iterator[None]:
    """Within it the CPU multiplies as a TPU or a GPU does, or with WHOLE rounds no factor; of
    several the outermost holds."""
    from jax.extend import core
    from jax.interpreters import mlir

    state = _state()
    if state.value is not None:
        yield
        return
    rules = mlir._platform_specific_lowerings["cpu"]
    with state(machine), mock.patch.dict(rules):
        products = core.primitives.dot_general_p, core.primitives.conv_general_dilated_p
        for primitive in (*products * (machine != WHOLE), core.primitives.convert_element_type_p):
            known = (rules.get(primitive) or mlir._lowerings[primitive]).rule
            rule = functools.partial(_chosen, known)
            if primitive in products:
                rule = functools.partial(_lower, FRACTION[machine], primitive, known)
            mlir.register_lowering(primitive, rule, platform="cpu")
        yield


def multiplier() -> str | None:
    """The machine as which the CPU multiplies now; None for its own."""
    value: str | None = _state().value
    return value


@functools.cache
def _state() -> Any:
    """Part of the key of jax.jit, so nothing compiled within is met outside."""
    import jax

    return jax.make_user_context()


def _chosen(known: Callable[..., Any], ctx: Any, x: Any, *, new_dtype: Any, **params: Any) -> Any:
    """A mask made 1 or 0, as chips do it. XLA takes x · mask for a choice, which loses 0 · NaN."""
    import jax
    from jax.interpreters import mlir

    if ctx.avals_in[0].dtype != bool or not jax.numpy.issubdtype(new_dtype, jax.numpy.floating):
        return known(ctx, x, new_dtype=new_dtype, **params)
    choose = lambda mask: jax.numpy.where(mask, new_dtype.type(1), new_dtype.type(0))
    return mlir.lower_fun(choose, multiple_results=False)(ctx, x)


def _lower(
    fraction: int, primitive: Any, known: Callable[..., Any], ctx: Any, *factors: Any, **params: Any
) -> Any:
    """The product's rounded factors multiplied, or what JAX makes of it."""
    import jax
    from jax.interpreters import mlir

    dtypes = [str(aval.dtype) for aval in ctx.avals_in]
    passes = jaxprs.passes_of(params["precision"], dtypes)
    if passes not in (1, 3):
        return known(ctx, *factors, **params)
    exact = params | {"precision": (jax.lax.Precision.HIGHEST,) * 2}
    multiply = functools.partial(primitive.bind, **exact)
    round_off = functools.partial(jax.lax.reduce_precision, exponent_bits=8, mantissa_bits=fraction)

    def product(x: Any, y: Any) -> Any:
        high = [round_off(f) if f.dtype == "float32" else f for f in (x, y)]
        result = multiply(*high)
        if passes == 3 and fraction == FRACTION[TPU]:
            low = [
                round_off(jax.numpy.where(jax.numpy.isfinite(f), f - h, 0))
                for f, h in zip((x, y), high, strict=True)
            ]
            result += multiply(high[0], low[1]) + multiply(low[0], high[1])
        return result

    return mlir.lower_fun(product, multiple_results=False)(ctx, *factors)


LONGEST = 1 << 14  # characters of a program that is remembered
# What runs once or twice takes longer to compile than to run; not so what has a loop.
FAST = {"xla_cpu_parallel_codegen_split_count": 1}
LOOPS = {"xla_backend_optimization_level": 2}


def remember() -> None:
    """From now on a text that calls nothing of this process is compiled once for a device, and each
    for the CPU by what compiles fast."""
    import jax
    from jax._src import compiler

    # JAX 0.11 knows no other code.
    fast = FAST | ({"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {})
    own, known = compiler.backend_compile_and_load, {}

    def once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
        text = str(module)
        if backend.platform == "cpu":
            chosen = fast | (LOOPS if "stablehlo.while" in text else {})
            options.env_option_overrides = [*options.env_option_overrides, *chosen.items()]
        if callbacks or len(text) > LONGEST or "custom_call" in text:
            return own(backend, module, devices, options, callbacks)
        key = text, id(backend), str(devices), options.SerializeAsString()
        if key not in known:
            known[key] = own(backend, module, devices, options, callbacks)
        return known[key]

    compiler.backend_compile_and_load = once
