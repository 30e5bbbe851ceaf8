LOOP = """\
    for place in reversed(range(c.shape[0])):
        result = result * x + c[place]
"""
IN_A_LOOP = """\
    result = jax.lax.fori_loop(0, len(c), lambda i, r: r * x + c[len(c) - 1 - i], result)
"""
START = {"jnp.zeros_like(x)": "c[-1]", "range(c.shape[0])": "range(c.shape[0] - 1)"}

WRONG = (
    ("polynomial", START, "interpret", "shape is"),
    ("polynomial", {LOOP: IN_A_LOOP}, "speed", "the bar is 1.10"),
    ("one_pass", lambda x: ((x - x.mean(0)) ** 2).mean(0), "compile", "2 kernels read x"),
    ("head_norms", lambda x: (x * x).reshape(len(x), 8, -1).sum(2), "compile", "only moves data"),
)
