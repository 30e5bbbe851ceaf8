"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def two_passes(x):
    return ((x - x.mean(0)) ** 2).mean(0)


def of_rows(x):
    return x.var(1)


def by_reshape(x):
    return (x * x).reshape(len(x), 8, -1).sum(2)


def of_columns(x):
    return (x * x).reshape(len(x), -1, 8).sum(1)


def gathers_hidden():
    return P("x", None), P(None, "y"), P(None, "y"), P("x", "y")


def sums_twice():
    return P("x", "y"), P("y", None), P("y", None), P("x", None)


def whole_weights():
    return P(("x", "y"), None), P(None, None), P(None, None), P(("x", "y"), None)


def over_all_chips():
    return P(None, None), P(None, ("x", "y")), P(("x", "y"), None), P(None, None)


def sums_hidden():
    return P(None, "x"), P("x", "y"), P("y", None), P(None, None)


def step(w, v, g):
    v = 0.9 * v + g
    return w - 0.1 * v, v


def old_momentum(w, v, g):
    return w - 0.1 * v, 0.9 * v + g


def by_polyval(c, x):
    return jnp.polyval(c[::-1], x)


def in_a_loop(c, x):
    def turn(i, result):
        return result * x + c[c.shape[0] - 1 - i]

    return jax.lax.fori_loop(0, c.shape[0], turn, jnp.zeros_like(x))


def highest_first(c, x):
    return jnp.polyval(c, x)


def forgets_x(c, x):
    result = c[-1]
    for each in c[-2::-1]:
        result = result * x + each
    return result


WRONG = (
    ("polynomial", highest_first, "interpret", "element ["),
    ("polynomial", forgets_x, "interpret", "shape is"),
    ("polynomial", in_a_loop, "speed", "the bar is 1.10"),
    ("polynomial", by_polyval, "speed", "the bar is 1.10"),
    ("one_pass", two_passes, "compile", "2 kernels read x"),
    ("one_pass", of_rows, "interpret", "shape is"),
    ("head_norms", by_reshape, "compile", "only moves data"),
    ("head_norms", of_columns, "interpret", "element ["),
    ("layer_specs", gathers_hidden, "compile", "the exchanges are all-gather over 2 chips"),
    ("layer_specs", sums_twice, "compile", "wanted is one all-reduce"),
    ("layer_specs", sums_hidden, "compile", "wanted is one all-reduce"),
    ("layer_specs", over_all_chips, "compile", "half of the result"),
    ("layer_specs", whole_weights, "compile", "a chip holds"),
    ("layer_specs", lambda: P("x"), "interpret", "wanted: four of PartitionSpec"),
    ("donated", step, "interpret", "not jitted"),
    ("donated", jax.jit(step), "interpret", "0 bytes of the results lie in an argument's memory"),
    ("donated", jax.jit(step, donate_argnums=1), "interpret", "4096 bytes of the results"),
    ("donated", jax.jit(old_momentum, donate_argnums=(0, 1)), "interpret", "element [0, "),
    ("one_pass", lambda x: jnp.zeros(x.shape[1]), "interpret", "every element is zero"),
)
