"""add_vectors and iota: what the ladder does not ask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refused import refuses

from kernels.vector import add_vectors, iota
from kernels.vector.operator import ADD_VECTORS


@pytest.mark.parametrize("implementation", ADD_VECTORS.names)
def test_vmap_and_grad(implementation):
    def f(x, y):
        return (add_vectors(x, y, implementation=implementation) ** 2).sum()

    x, y = jnp.arange(12.0).reshape(3, 4), jnp.ones((3, 4))
    assert np.array_equal(jax.vmap(jax.grad(f))(x, y), 2 * (x + y))


test_add_vectors_refuses = refuses(
    add_vectors,
    (np.ones(3, np.float32), np.ones(4, np.float32), r"y.shape is \(4,\); accepted: \(3,\)"),
    (np.ones(3, np.float32), np.ones(3, np.int32), "y.dtype is int32; accepted: float32"),
    (np.ones((3, 1), np.float32), np.ones(3, np.float32), "x.shape"),
    (np.ones(0, np.float32), np.ones(0, np.float32), "at least 1"),
    (np.ones(3, np.float16), np.ones(3, np.float16), "x.dtype is 'float16'"),
    ([1.0], [1.0], "x is a list"),
)


test_iota_refuses = refuses(
    iota, (131073, "at most 131072"), *((n, "n is ") for n in (0, -3, 2.0, True, None, 2**31))
)


@pytest.mark.parametrize("function", [lambda **k: iota(3, **k), lambda **k: add_vectors(1, 2, **k)])
def test_an_unknown_implementation_is_refused_first(function):
    with pytest.raises(ValueError, match="implementation is 'cuda'; accepted: xla, pallas, triton"):
        function(implementation="cuda")
