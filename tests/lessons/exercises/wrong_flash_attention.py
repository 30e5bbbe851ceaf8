LOOP = "jax.lax.fori_loop(0, blocks, block, jnp.zeros_like(q))"
WHOLE = {LOOP: "block(0, jnp.zeros_like(q))", "pl.ds(j * bk, bk)": "slice(None)"}
AS_WRITTEN = {"jnp.exp(s - s.max(-1, keepdims=True))": "jax.nn.softmax(s)", "(o / sums)": "o"}
TWICE = "jax.nn.softmax(jax.nn.log_softmax(s, axis=1), axis=1)"
LAST = "pl.cdiv(first + len(q), bk)"
SKIPPED = {
    LAST: "k_ref.shape[1] // bk",
    "block, jnp": "lambda j, x: jax.lax.cond(j * bk <= first, block, lambda _, x: x, j, x), jnp",
}
DS = "p * (dot(do, v.T) - delta)"
MASKED = {DS: f"jnp.where(j * bk + key <= first + query, {DS}, 0)"}
RIGHT = (("flash_backward", SKIPPED | MASKED),)
WRONG = (
    ("flash_backward", {LAST: "k_ref.shape[1] // bk"}, "interpret", "on unseen"),
    ("flash_window", {"-1e30": "-jnp.inf"}, "interpret", "is nan"),
    ("flash_window", {"first - w + 1": "first - w + 129"}, "interpret", "on narrow"),
    ("flash_window", {"jnp.maximum(first - w + 1, 0) // bk": "0"}, "interpret", "on unseen"),
    ("flash_window", {"pl.cdiv(first + bq, bk)": "k_ref.shape[1] // bk"}, "interpret", "on unseen"),
    ("flash_backward", WHOLE, "compile", "has 32768 numbers, at most 16384"),
    ("flash_backward", {"dq + scale * dot": "dq + dot"}, "interpret", "on two"),
    ("flash_backward", {"j * bk + key <= first + query": "key >= 0"}, "interpret", "on two"),
    ("flash_fast", {"s * q_ref.shape[1] ** -0.5": "s"}, "interpret", "Speed comes later"),
    ("flash_fast", {"jnp.exp(s - s.max(1, keepdims=True))": TWICE}, "speed", "the bar is 19,500"),
    ("flash_rival", AS_WRITTEN, "speed", "the bar is 18,500"),
)
