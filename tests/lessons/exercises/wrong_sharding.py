from jax.sharding import PartitionSpec as P

GATHER = 'lax.all_gather(part, "x", tiled=True)'
RECEIVED = 'before = lax.ppermute(part[-1:], "x", right)'
ALL_ROWS = 'before = lax.ppermute(part, "x", right)[-1:]'
MINE = "return jax.grad(loss)(part)"
SUMMED = f"""\
rows = len(part)
    total = lax.psum(jax.grad(lambda w: ((x @ w - y) ** 2).sum() / 2)({GATHER}), "x")
    return lax.dynamic_slice_in_dim(total, rows * lax.axis_index("x"), rows)
"""
EXCHANGE = 'lax.all_to_all(both.reshape(n, -1, 2), "x", 0, 0)'
EVERYBODY = 'lax.all_gather(both, "x").reshape(n, n, -1, 2)[:, lax.axis_index("x")]'


def gathers_hidden():
    return P("x", None), P(None, "y"), P(None, "y"), P("x", "y")


def sums_twice():
    return P("x", "y"), P("y", None), P("y", None), P("x", None)


def whole_weights():
    return P(("x", "y"), None), P(None, None), P(None, None), P(("x", "y"), None)


def over_all_chips():
    return P(None, None), P(None, ("x", "y")), P(("x", "y"), None), P(None, None)


WRONG = (
    ("smooth_rows", {RECEIVED: ALL_ROWS}, "speed", "the bar is 2"),
    ("smooth_rows", {'part[-1:], "x", right': 'part[-1:], "x", left'}, "interpret", "element ["),
    ("sharded_gradient", {MINE: SUMMED}, "speed", "the bar is 1.75"),
    ("sharded_losses", {"jax.nn.logsumexp(logits, axis=1)": "jnp.log(jnp.exp(logits).sum(1))"},
        "interpret", "subtract the largest"),
    ("sharded_losses", {EXCHANGE: EVERYBODY}, "speed", "the bar is 14"),
    ("sharded_losses", {' - width * lax.axis_index("x")': ""}, "interpret", "Labels count"),
    ("layer_specs", gathers_hidden, "compile", "the exchanges are all-gather over 2 chips"),
    ("layer_specs", sums_twice, "compile", "wanted is one all-reduce"),
    ("layer_specs", over_all_chips, "compile", "half of the result"),
    ("layer_specs", whole_weights, "compile", "a chip holds"),
    ("layer_specs", lambda: P("x"), "interpret", "wanted: four of PartitionSpec"),
)  # fmt: skip
