PRODUCT = "jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)"
WIDE = "*(ref[...].astype(jnp.float32) for ref in (x_ref, y_ref))"
LOOP = "jax.lax.fori_loop(0, x_ref.shape[0] // {}, {}, None)"
ROWS = "pl.ds(pl.multiple_of({0} * i, {0}), {0})"
VARIANCE = "(d * d).mean(1, keepdims=True)"
ONE_PASS = "(x * x).mean(1, keepdims=True) - x.mean(1, keepdims=True) ** 2"


def whole_block(rows, name):
    return {LOOP.format(rows, name): f"{name}(0, None)", ROWS.format(rows): "slice(None)"}


WRONG = (
    ("softmax", {" - jnp.max(z, axis=1, keepdims=True)": ""}, "interpret", "is nan"),
    ("softmax", {PRODUCT: f'jnp.dot({WIDE}, precision="highest")'}, "compile",
        "bundles in a step on a v5e, at most 110"),
    ("standardise", whole_block(8, "eight_rows"), "compile", "spills on a v5e, at most 0 wanted"),
    ("standardise_fast", {"32": "8"}, "speed", "the bar is 23,500"),
    ("standardise_fast", {VARIANCE: ONE_PASS}, "interpret", "allowed"),
    ("standardise_fast", whole_block(32, "some_rows"), "compile",
        "spills on a v5e, at most 0 wanted"),
)  # fmt: skip
