VARIANCE = "(distance**2).mean(1, keepdims=True)"
OF_SQUARES = "(x**2).mean(1, keepdims=True) - x.mean(1, keepdims=True) ** 2"

WRONG = (
    ("layer_norm_rows", {VARIANCE: OF_SQUARES}, "interpret", "on far_from_zero"),
    ("layer_norm_rows", {"distance * scale": "x * scale"}, "interpret", "on normal"),
    ("log_sum_exp", {"shrink * l_ref": "l_ref"}, "interpret", "shrink it by"),
    ("log_sum_exp", {"column < n": "column < n + 128"}, "interpret", "do not exist"),
    ("log_sum_exp", {"jnp.exp(x - m)": "jnp.exp(x)"}, "interpret", "exp(x) overflows"),
    ("log_sum_exp", {"full_like(m_ref, -jnp.inf)": "zeros_like(m_ref)"}, "interpret", "far below"),
    ("softmax_fast", {"x - x.max(1, keepdims=True)": "x"}, "interpret", "exp overflows: subtract"),
    ("softmax_fast", {"pl.cdiv(rows,": "divmod(rows,", "(64, rows)),)": "(64, rows))[0],)"},
        "interpret", "how many programs"),
    ("softmax_fast", {"min(64, rows)": "min(16, rows)"}, "speed", "the bar is 41,500"),
)  # fmt: skip
