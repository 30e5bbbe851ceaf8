import jax
import jax.numpy as jnp

BY_XLA = """\
tuple(
            jnp.dot(a, b, precision="highest", preferred_element_type=jnp.float32).astype(c.dtype)
            for a, b in ((c, y.T), (x.T, c))
        )"""
GATED = lambda x, a, b, *, interpret: jax.nn.silu(jnp.dot(x, a)) * jnp.dot(x, b)

WRONG = (
    ("backward", {"times(c, y.T), times(x.T, c)": BY_XLA}, "compile", "included: 1, wanted 3"),
    ("backward", {" if x_ref.dtype == jnp.float32 else {}": ""}, "compile", "Bad lhs type"),
    ("backward", {"times(x.T, c)": "jnp.zeros_like(y)"}, "interpret",
        "gradient of y: every element is zero"),
    ("fast_gated", {"min(n, 256)": "min(n, 512)"}, "speed", "the bar is 44,000"),
    ("fast_gated", GATED, "compile", "dot_general runs outside the kernel"),
)  # fmt: skip
