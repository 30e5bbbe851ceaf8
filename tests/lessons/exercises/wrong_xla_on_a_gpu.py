"""Wrong answers to the exercises of "The XLA pipeline on a GPU", and what is said of each."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def offset(shape, layout, index):
    place = 0
    for axis in layout:
        place = place * shape[axis] + index[axis]
    return place


def rows_of_both():
    return P("x", None), P("x", None)


def whole():
    return P(None, "x"), P()


def residual(x, w1, b, w2):
    return x - jax.nn.relu(x @ w1 + b) @ w2


def residual_without_a_bias(x, w1, b, w2):
    return x + -1.0 * (jax.nn.relu(x @ w1) @ w2)


def losses(x, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)[:, 0]


def losses_of_the_softmax(x, labels):
    return -jnp.log((jnp.exp(x) * jax.nn.one_hot(labels, x.shape[1])).sum(-1))


WRONG = (
    ("hlo_offset", offset, "interpret", "the reference"),
    ("gpu_shards", rows_of_both, "interpret", "it sends 2 times, AllToAll, AllReduce"),
    ("gpu_shards", whole, "interpret", "w2 is whole on each GPU"),
    ("gpu_residual", residual, "speed", "3 steps on an H100; the bar is 2"),
    ("gpu_residual", residual_without_a_bias, "interpret", "allowed"),
    ("one_gpu_kernel", losses, "compile", "2 steps on an H100, one kernel wanted"),
    ("one_gpu_kernel", losses_of_the_softmax, "interpret", "allowed"),
)
