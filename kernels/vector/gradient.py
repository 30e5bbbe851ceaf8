"""The gradient of add_vectors, the same for every way of writing it."""

import jax


def differentiable(add):
    """Give `add(x, y, interpret)` its gradient: a sum hands the cotangent on to both terms."""

    with_gradient = jax.custom_vjp(add, nondiff_argnums=(2,))
    with_gradient.defvjp(
        lambda *arguments: (add(*arguments), None),  # nothing has to be remembered
        lambda interpret, _, cotangent: (cotangent, cotangent),
    )
    return with_gradient
