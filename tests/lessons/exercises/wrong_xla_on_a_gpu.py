import jax
import jax.numpy as jnp

LOSSES = "-(jax.nn.log_softmax(x) * mine).sum(-1)"


def indexed(x, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)[:, 0]


WRONG = (
    ("gpu_residual", {"x + -1.0 * (": "x - ("}, "speed", "3 steps on an H100; the bar is 2"),
    ("one_gpu_kernel", indexed, "compile", "2 steps on an H100, one kernel wanted"),
    ("one_gpu_kernel", {LOSSES: "-jnp.log((jnp.exp(x) * mine).sum(-1))"}, "interpret", "allowed"),
)
