"""add_vectors and iota: what the ladder does not ask."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.vector import add_vectors, iota
from kernels.vector.operator import ADD_VECTORS


@pytest.mark.parametrize("implementation", ADD_VECTORS.names)
def test_vmap_and_grad(implementation):
    def f(x, y):
        return (add_vectors(x, y, implementation=implementation) ** 2).sum()

    x, y = jnp.arange(12.0).reshape(3, 4), jnp.ones((3, 4))
    assert np.array_equal(jax.vmap(jax.grad(f))(x, y), 2 * (x + y))


ONES = functools.partial(np.ones, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: add_vectors(ONES(3), ONES(4)), r"y.shape is \(4,\); accepted: \(3,\)"),
        (lambda: add_vectors(ONES(3), np.ones(3, np.int32)), "y.dtype is int32; accepted: f"),
        (lambda: add_vectors(ONES((3, 1)), ONES(3)), "x.shape"),
        (lambda: add_vectors(ONES(0), ONES(0)), "at least 1"),
        (lambda: add_vectors(*[np.ones(3, np.float16)] * 2), "x.dtype is 'float16'"),
        (lambda: add_vectors([1.0], [1.0]), "x is a list"),
        (lambda: add_vectors(1, 2, implementation="cuda"), "is 'cuda'; accepted: xla, pallas, tri"),
        (lambda: iota(3, implementation="cuda"), "is 'cuda'; accepted: xla, pallas, triton"),
        (lambda: iota(131073), "at most 131072"),
        *((functools.partial(iota, n), "n is ") for n in (0, -3, 2.0, True, None, 2**31)),
    ],
)
def test_a_wrong_argument_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
