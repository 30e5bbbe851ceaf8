"""What the backends share whose functions take JAX's arrays: programs and gradients."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.machines.checks import kept_by_jax
from kernels.proof.backends.job import Job

KEPT = 8  # programs
_made: dict[Any, Callable[..., Any]] = {}


def _traced(job: Job) -> tuple[int, ...]:
    """Positions of the arguments that are traced: arrays whose values nothing depends on."""
    return tuple(
        i for i, a in enumerate(job.arguments) if hasattr(a, "shape") and i not in job.static
    )


def at_places(
    function: Callable[..., Any], values: Sequence[Any], places: Sequence[int]
) -> tuple[Callable[..., Any], list[Any]]:
    """A function of those of its values alone that stand at some places, and these."""

    rest = [None if place in places else value for place, value in enumerate(values)]

    def call(*arrays: Any) -> Any:
        arguments = list(rest)
        for place, array in zip(places, arrays, strict=True):
            arguments[place] = array
        return function(*arguments)

    return call, [values[place] for place in places]


def _call(job: Job, **more: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function of its traced arrays alone, and these: ValueError where JAX narrows one."""
    function = functools.partial(job.function, **job.options, **more)
    call, arrays = at_places(function, job.arguments, _traced(job))
    for array in arrays:
        kept_by_jax("the dtype of an argument", array.dtype)
    return call, arrays


def _pulled(job: Job, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function (cotangents, *arrays) → (results, gradients by the wanted ones)."""
    import jax

    wanted = [_traced(job).index(place) for place in job.wanted]

    def gradient(cotangents: Any, *arrays: Any) -> tuple[Any, Any]:
        of_wanted, chosen = at_places(call, arrays, wanted)
        result, back = jax.vjp(of_wanted, *chosen)
        cast = map(_cotangent, jax.tree.leaves(cotangents), jax.tree.leaves(result))
        return result, back(jax.tree.unflatten(jax.tree.structure(result), cast))

    return gradient


def _cotangent(value: Any, result: Any) -> Any:
    """What comes back to a result: of its dtype, or JAX's nothing to an integer."""
    import jax
    import jax.numpy as jnp

    if jnp.issubdtype(result.dtype, jnp.inexact):
        return value.astype(result.dtype)
    return np.zeros(result.shape, jax.dtypes.float0)


def programs(job: Job, **more: Any) -> list[tuple[Callable[..., Any], list[Any]]]:
    """What is compiled of a job: the call, and the call with its gradients where they are wanted.

    Each comes with the arrays that it takes; `more` are further keyword arguments. The second takes
    the cotangents first (an array, or a tuple for several outputs), and gives the results before
    the gradients.
    """
    import jax

    call, arrays = _call(job, **more)
    both: list[tuple[Callable[..., Any], list[Any]]] = [(call, arrays)]
    if job.wanted:
        pulled = _pulled(job, call)

        def gradient(cotangents: Any, *operands: Any) -> tuple[Any, ...]:
            result, gradients = pulled(cotangents, *operands)
            return *(result if isinstance(result, (tuple, list)) else (result,)), *gradients

        both.append((gradient, [jax.eval_shape(call, *arrays), *arrays]))
    return both


def pull(job: Job, cotangents: Sequence[Any], **more: Any) -> list[np.ndarray]:
    """The gradients by the wanted arguments; one compilation instead of one for each operation, and
    none for the values of another draw."""
    call, arrays = _call(job, **more)
    gradient = _jitted(job, call, more, pulled=True)
    return [np.asarray(g) for g in gradient(list(cotangents), *arrays)[1]]


def whole(job: Job, **more: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The call as one program of the arrays that it takes, and these; compiled as in `pull`."""
    call, arrays = _call(job, **more)
    return _jitted(job, call, more, pulled=False), arrays


def _jitted(job: Job, call: Any, more: dict[str, Any], *, pulled: bool) -> Callable[..., Any]:
    """A job's call, or its gradients, compiled once for all draws."""
    import jax

    fixed = [a for i, a in enumerate(job.arguments) if i not in _traced(job)]
    ids = [(a.shape, a.tobytes()) if isinstance(a, np.ndarray) else id(a) for a in fixed]
    options = *job.options, *map(id, job.options.values()), str(more)
    key = pulled, job.function, job.wanted, _traced(job), *ids, *options
    # What has an id in the key is kept with the function.
    function = _made.pop(key) if key in _made else jax.jit(_pulled(job, call) if pulled else call)
    _made[key] = function
    if len(_made) > KEPT:
        _made.pop(next(iter(_made)))
    return function


def prepare(job: Job) -> Callable[[], Any]:
    """A call without arguments that runs the compiled job on JAX's device."""
    import jax

    call, arrays = _call(job)
    arrays = [jax.device_put(array) for array in arrays]
    if not job.wanted:
        return functools.partial(jax.jit(call), *arrays)
    shapes = jax.eval_shape(call, *arrays)
    ones = jax.tree.map(lambda shape: np.ones(shape.shape, shape.dtype), shapes)
    return functools.partial(jax.jit(_pulled(job, call)), ones, *arrays)
