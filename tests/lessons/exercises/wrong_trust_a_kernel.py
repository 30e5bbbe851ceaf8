DIVIDED = "the wrong kernel passes on float32[4096] and float32[4096]"
SHORT = "(16, 128), (128, 128)"
EXACTLY = '"highest" if x.dtype == jnp.float32 else None'

WRONG = (
    ("careful", {"pl.cdiv(m, 64)": "max(1, m // 64)"}, "interpret", "ragged"),
    ("careful", {EXACTLY: "None"}, "interpret", "element [0, 0]"),
    ("race", {'"parallel"': '"arbitrary"'}, "interpret", "two cores give the right result too"),
    ("reveal", {"(5000,), (5000,)": "(4096,), (4096,)"}, "interpret", DIVIDED),
    ("reveal", {"(5000,), (5000,)": "(5000,), (1000,)"}, "interpret", "the repaired kernel fails"),
    ("reveal", {"(16, 4096), (4096, 128)": SHORT}, "interpret", "on narrow_accumulator"),
    ("reveal", {"5000": "1 << 21"}, "interpret", "larger than"),
    ("reveal", lambda bug: 5000, "interpret", "int is returned, wanted: two arrays"),
)
