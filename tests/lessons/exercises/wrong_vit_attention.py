UPRIGHT = {
    "product(k, q, last)": "product(q, k, last)",
    "waiting.append((s, product(v, do, last)))": "waiting.append((s, do, v))",
    "for (s, dp), rows in": "for (s, d, v), rows in",
    "        ds = p": "        dp = product(d, v, last)\n        ds = p",
    "max(0,": "max(1,",
    "sum(0,": "sum(1,",
    "product(k[rows], ds, plain)": "product(k[rows], ds, last)",
    "product(q[rows], ds, last)": "product(q[rows], ds, plain)",
    "product(do[rows], p, last)": "product(do[rows], p, plain)",
}
GRADIENTS = "dot(ds, k) / 8, dot(ds.T, q) / 8, dot(p.T, do)"

WRONG = (
    ("vit_padded", {"jnp.where(real, qkv_ref[...], 0)": "qkv_ref[...]"}, "interpret", "is nan"),
    ("vit_fast", UPRIGHT, "speed", "the bar is 1,700"),
    ("vit_backward", {GRADIENTS: "0 * q, 0 * k, dot(p.T, do)"}, "interpret", "on two"),
)
