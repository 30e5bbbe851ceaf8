"""What somebody could bring that cannot be proven: each is told in a line, and fails."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import kernels


def rows(rng):
    return (rng.standard_normal((8, 128)).astype(np.float32),)


def bad(says, reference=jnp.exp, arguments=rows, **options):
    """Mark a function of which the report says this."""

    def mark(function):
        given = {"values": ("given",), "chips": ("v5e",), **options}
        return kernels.proves(reference, arguments=arguments, **given)(function)

    return mark


def alike(body, x, **options):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)


# --- the function ---------------------------------------------------------------------------------


@bad("KeyError: 'lost' (bad.py:")
def raising(x):
    raise KeyError("lost")


@bad("RecursionError: maximum recursion depth exceeded")
def endlessly_calling_itself(x):
    return endlessly_calling_itself(x)


@bad("NameError: name 'missing' is not defined (bad.py:")
def misspelt(x):
    return alike(lambda x_ref, o_ref: missing(x_ref), x)  # noqa: F821


@bad("results: 0, wanted 1")
def returning_nothing(x):
    jnp.exp(x)


@bad("results: 2, wanted 1")
def returning_twice(x):
    return jnp.exp(x), x


@bad("shape is (), the reference has (8, 128)")
def returning_words(x):
    return "exp"


@bad("integers are exact")
def of_another_dtype(x):
    return jnp.exp(x).astype(jnp.int32)


@bad("must have the same number of dimensions")
def of_blocks_without_a_dimension(x):
    spec = pl.BlockSpec((8,), lambda i: (i,))
    return alike(lambda x_ref, o_ref: None, x, grid=(1,), in_specs=[spec], out_specs=spec)


@bad("JVP with aliasing not supported", differentiable=("x",))
def without_a_gradient(x):
    copy = lambda x_ref, o_ref: o_ref.__setitem__(..., jnp.exp(x_ref[...]))
    return alike(copy, x, input_output_aliases={0: 0})


# --- the reference --------------------------------------------------------------------------------


@bad("reference is a function that returns None", reference=lambda x: None)
def of_no_reference(x):
    return jnp.exp(x)


@bad("reference is a function that gives no finite number", reference=lambda x: x * np.nan)
def of_a_reference_that_is_nan(x):
    return x * np.nan


@bad("shape is (8, 128), the reference has (8,)", reference=lambda x: jnp.exp(x).sum(-1))
def of_another_shape(x):
    return jnp.exp(x)


@bad("missing 1 required positional argument: 'y'", reference=lambda x, y: x)
def of_fewer_arguments(x):
    return jnp.exp(x)


@bad("ZeroDivisionError: ", reference=lambda x: 1 // 0)
def of_a_reference_that_raises(x):
    return jnp.exp(x)


# --- the arguments --------------------------------------------------------------------------------


@bad("has no attribute 'nothing' (bad.py:", arguments=lambda rng: (rng.nothing,))
def of_a_draw_that_raises(x):
    return jnp.exp(x)


@bad("TypeError: ", arguments=lambda rng: (np.array(["a", "b"]),))
def of_words(x):
    return jnp.exp(x)


@bad("gives no finite number", arguments=lambda rng: (np.zeros((0, 128), np.float32),))
def of_nothing(x):
    return jnp.exp(x)


@bad("differentiable is 'y'; accepted: of misnamed's arguments", differentiable=("y",))
def misnamed(x):
    return jnp.exp(x)
