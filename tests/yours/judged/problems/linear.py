"""A problem in KernelBench's form, whose weights are zeros."""

import jax
import jax.numpy as jnp

batch_size = 1024 * 64
features = 128


class Model:
    def __init__(self, features):
        self.scale = jnp.ones((features,))
        self.weight = jnp.zeros((features, features))

    def forward(self, x):
        product = jnp.dot(x, self.weight, precision=jax.lax.Precision.HIGHEST)
        return product * self.scale


def get_inputs():
    return [jax.random.uniform(jax.random.key(0), (batch_size, features))]


def get_init_inputs():
    return [features]
