"""Products as a chip's multipliers take them, where JAX runs on the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.machines.compat import jaxprs
from kernels.machines.compat.jax_products import GPU, TPU, WHOLE, multiplying

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal(shape, np.float32) for shape in ((64, 256), (256, 32)))


@jax.jit
def default(x, y):
    return x @ y


def off(result):
    """How far a product is from the exact one."""
    return np.abs(np.asarray(result, np.float64) - X.astype(np.float64) @ Y).max()


def test_rounded_factors_and_nothing_else():
    """What was compiled outside is not met within, nor the other way round."""
    exact = off(default(X, Y))
    halves = [np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64) for a in (X, Y)]
    with multiplying(TPU):
        rounded = np.asarray(default(X, Y), np.float64)
        assert off(jnp.dot(X, Y, precision="highest")) <= 2 * exact
        assert 3 * exact < off(jnp.dot(X, Y, precision="high")) < off(rounded) / 100
        narrow = jnp.asarray(X, jnp.bfloat16)
        assert jnp.array_equal(narrow @ Y, jnp.asarray(narrow, jnp.float32) @ Y)
        with multiplying(WHOLE):  # the outermost holds
            assert np.array_equal(default(X, Y), rounded)
    np.testing.assert_allclose(rounded, halves[0] @ halves[1], atol=2 * exact)
    assert off(rounded) > 1000 * exact
    with multiplying(GPU):
        assert 100 * exact < off(default(X, Y)) < off(rounded) / 4
    with multiplying(WHOLE):
        assert off(default(X, Y)) == exact
    assert off(default(X, Y)) == exact


def test_gradients_and_convolutions_are_rounded_too():
    image, filters = X.reshape(1, 16, 32, 32), Y.reshape(32, 16, 4, 4)
    convolve = lambda: np.asarray(jax.lax.conv(image, filters, (1, 1), "SAME"))
    pulled = lambda: np.asarray(jax.grad(lambda x: default(x, Y).sum())(X))
    before = convolve(), pulled()
    with multiplying(TPU):
        after = convolve(), pulled()
    for whole, rounded in zip(before, after, strict=True):
        assert 1e-4 < np.abs(whole - rounded).max() / np.abs(whole).max() < 1e-2


@pytest.mark.parametrize(("precision", "passes"), [(None, 1), ("high", 3), ("highest", 6)])
def test_passes(precision, passes):
    trace = lambda dtype: jaxprs.trace(
        lambda x, y: jnp.dot(x, y, precision=precision), X.astype(dtype), Y.astype(dtype)
    )
    count = lambda dtype: {jaxprs.passes(equation) for equation in jaxprs.equations(trace(dtype))}
    assert passes in count(np.float32) and count(jnp.bfloat16) == {0}
