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


@bad("KeyError: 'lost' (bad.py:")
def raising(x):
    raise KeyError("lost")


@bad("RecursionError: maximum recursion depth exceeded")
def endlessly_calling_itself(x):
    return endlessly_calling_itself(x)


@bad("must have the same number of dimensions")
def of_blocks_without_a_dimension(x):
    spec = pl.BlockSpec((8,), lambda i: (i,))
    return alike(lambda x_ref, o_ref: None, x, grid=(1,), in_specs=[spec], out_specs=spec)


@bad("JVP with aliasing not supported", differentiable=("x",))
def without_a_gradient(x):
    copy = lambda x_ref, o_ref: o_ref.__setitem__(..., jnp.exp(x_ref[...]))
    return alike(copy, x, input_output_aliases={0: 0})


# Function → what the report says where exp, or what stands third, is marked with these.
MARKED = {
    "misspelt": ("NameError: name 'missing' is not defined (bad.py:", {},
        lambda x: alike(lambda x_ref, o_ref: missing(x_ref), x)),  # noqa: F821
    "returning_nothing": ("results: 0, wanted 1", {}, lambda x: None),
    "returning_twice": ("results: 2, wanted 1", {}, lambda x: (jnp.exp(x), x)),
    "returning_words": ("shape is (), the reference has (8, 128)", {}, lambda x: "exp"),
    "of_another_dtype": ("integers are exact", {}, lambda x: jnp.exp(x).astype(jnp.int32)),
    "of_no_reference": ("reference is a function that returns None", {"reference": lambda x: None}),
    "of_a_reference_that_is_nan": ("reference is a function that gives no finite number",
        {"reference": lambda x: x * np.nan}),
    "of_another_shape": ("shape is (8, 128), the reference has (8,)",
        {"reference": lambda x: jnp.exp(x).sum(-1)}),
    "of_fewer_arguments": ("missing 1 required positional argument: 'y'",
        {"reference": lambda x, y: x}),
    "of_a_reference_that_raises": ("ZeroDivisionError: ", {"reference": lambda x: 1 // 0}),
    "of_a_draw_that_raises": ("has no attribute 'nothing' (bad.py:",
        {"arguments": lambda rng: (rng.nothing,)}),
    "of_words": ("TypeError: ", {"arguments": lambda rng: (np.array(["a", "b"]),)}),
    "of_nothing": ("gives no finite number",
        {"arguments": lambda rng: (np.zeros((0, 128), np.float32),)}),
    "misnamed": ("differentiable is 'y'; accepted: of misnamed's arguments",
        {"differentiable": ("y",)}),
}  # fmt: skip
for name, (says, options, *other) in MARKED.items():
    function = other[0] if other else lambda x: jnp.exp(x)
    function.__name__ = name
    bad(says, **options)(function)
