"""Wrong answers to the exercises of this chapter, and what is said of each."""

WHOLE = {
    "jax.lax.fori_loop(0, blocks, block, jnp.zeros_like(q))": "block(0, jnp.zeros_like(q))",
    "pl.ds(j * bk, bk)": "slice(None)",
}
REPEATED = {
    "i // (h // g)": "i",
    ")(q, k, v)": ")(q, jnp.repeat(k, h // g, 0), jnp.repeat(v, h // g, 0))",
}
POWERS = {"jnp.logaddexp(lse1, lse2)": "jnp.log(jnp.exp(lse1) + jnp.exp(lse2))"}
AS_WRITTEN = {
    "jnp.exp(s - s.max(-1, keepdims=True)).astype": "jax.nn.softmax(s).astype",
    "(o / sums)": "o",
}
TWICE = "jax.nn.softmax(jax.nn.log_softmax(s, axis=1), axis=1)"

WRONG = (
    ("flash_merge", lambda o1, lse1, o2, lse2: (o1 + o2) / 2, "interpret", "element [1, 3, 0]"),
    ("flash_merge", POWERS, "interpret", "on large"),
    ("flash_merge", lambda o1, lse1, o2, lse2: o1[0], "interpret", "shape is (8, 4)"),
    ("flash_merge", lambda o1, lse1, o2, lse2: 0 * o2, "interpret", "every element is zero"),
    ("flash_merge", lambda *halves: None, "interpret", "NoneType is returned"),
    ("flash_window", {"-1e30": "-jnp.inf"}, "interpret", "is nan"),
    ("flash_window", {"first - w + 1": "first - w + 129"}, "interpret", "on narrow"),
    ("flash_window", {"jnp.maximum(first - w + 1, 0) // bk": "0"}, "interpret", "on unseen"),
    ("flash_window", lambda q, k, v, o, **sizes: None, "interpret", "ever written?"),
    ("flash_backward", WHOLE, "compile", "has 32768 numbers, at most 16384"),
    ("flash_backward", {"dq + scale * dot": "dq + dot"}, "interpret", "on two"),
    ("flash_backward", {"j * bk + key <= first + query": "key >= 0"}, "interpret", "on two"),
    ("flash_gqa", {"i // (h // g)": "i % g"}, "interpret", "on four"),
    ("flash_gqa", REPEATED, "compile", "k is fetched 4 times, 2 would do"),
    ("flash_fast", {"jnp.exp(s - s.max(1, keepdims=True))": TWICE}, "speed", "the bar is 18,000"),
    ("flash_rival", AS_WRITTEN, "speed", "the bar is 18,500"),
)
