"""The gradient of add_vectors, the same for every way of writing it."""

import functools

import jax


def differentiable(add):
    """Give `add(x, y, interpret)` its gradient: a sum hands the cotangent on to both terms."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def with_gradient(x, y, interpret):
        return add(x, y, interpret)

    def forward(x, y, interpret):
        return add(x, y, interpret), None  # nothing has to be remembered

    def backward(interpret, _, cotangent):
        return cotangent, cotangent

    with_gradient.defvjp(forward, backward)
    return with_gradient
