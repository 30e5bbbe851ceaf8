AXPY = "a_ref[0] * x_ref[...] + y_ref[...]"
HALF = "half = o_ref.shape[0] // 2 or 1; o_ref[:half] = a_ref[0] * x_ref[:half] + y_ref[:half]"
GRADIENTS = "(c * xy[1], c * xy[0])"


def uses_no_kernel(x, y, *, interpret):
    return x * y


WRONG = (
    ("axpy", {f"o_ref[...] = {AXPY}": HALF}, "interpret", "is this element ever written"),
    ("sum_and_difference", {"d_ref[...] = ": ""}, "interpret", "is nan"),
    ("normalised", {"jnp.sqrt(jnp.sum(x * x, ": "(x.sum("}, "interpret", "on tile"),
    ("multiply", {GRADIENTS: "(c, c)"}, "interpret", "gradient of x: element ["),
    ("multiply", {"return product": "return call"}, "interpret", "Linearization failed"),
    ("multiply", uses_no_kernel, "compile", "no kernel"),
)
