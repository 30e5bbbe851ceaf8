EVERY_BLOCK = {
    "(n // 128,)": "(n // 128, n // 128)",
    "lambda i: (i, i)": "lambda i, j: (i, j)",
    "lambda i: (i, 0)": "lambda i, j: (i, 0)",
    "    o_ref[...] = x_ref[...]": """\
    @pl.when(pl.program_id(0) == pl.program_id(1))
    def _():
        o_ref[...] = x_ref[...]""",
}
BACKWARDS = "pl.num_programs(0) - 1 - pl.program_id(0)"
FROM_I = {BACKWARDS: "pl.program_id(0)", "[i] = i * i": "[N - i] = (N - i) ** 2"}
RIGHT = (
    ("squares_backwards", {BACKWARDS: "o_ref.shape[0] - 1 - pl.program_id(0)"}),
    ("squares_backwards", FROM_I | {"N": "(o_ref.shape[0] - 1)"}),
)
WRONG = (
    ("squares_backwards", {BACKWARDS: "pl.program_id(0)"}, "interpret", "their order is not"),
    ("squares_backwards", {"o_ref[i] = i * i": 'raise KeyError("no such thing")'}, "interpret",
        "KeyError: 'no such thing'"),
    ("table", {"i * j": "i + j"}, "interpret",
        "element [0, 1] is 1, the reference 0; integers are exact"),
    ("running_maximum", {"-jnp.inf": "0.0"}, "interpret", "negative"),
    ("block_sums", {"+=": "="}, "interpret", "on eight"),
    ("diagonal", EVERY_BLOCK, "compile", "x is fetched 9 times, 3 would do"),
)  # fmt: skip
