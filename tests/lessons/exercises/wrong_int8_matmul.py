SUMS = "dot(x_ref[...], y_ref[...]) - a_ref[...] * dot(ones, y_ref[...])[:1]"
SHIFTED = "dot(x_ref[...] - a_ref[...].astype(jnp.int8), y_ref[...])"
WIDE = "x_ref[...].astype(float) - a_ref[...].astype(float), y_ref[...].astype(float)"
HALVES = {"((packed << 28) >> 28)": "(packed & 15)", "(packed >> 4)": "((packed >> 4) & 15)"}
PRODUCT = "jnp.dot(q, y_ref[...], preferred_element_type=jnp.int32)"
NO_INT8 = "no matrix product of it has int8 factors"

WRONG = (
    ("smooth", {"max(0)": "max()", "max(1)": "max()"}, "interpret", "shape is ()"),
    ("scaled", {SUMS: SHIFTED}, "interpret", "element ["),
    ("scaled", {SUMS: f'jnp.dot({WIDE}, precision="highest")'}, "compile", "int8"),
    ("int4_weights", HALVES, "interpret", "a sign that is lost"),
    ("int4_weights", {"x_ref[:, half:], high": "x_ref[:, :half], high"}, "interpret", "the low"),
    ("fast_int8", {"min(m, 256)": "min(m, 32)"}, "speed", "the bar is 20,000"),
    ("fast_int8", {PRODUCT: "jnp.dot(q.astype(jnp.float32), y_ref[...].astype(jnp.float32))"},
        "compile", NO_INT8),
)  # fmt: skip
