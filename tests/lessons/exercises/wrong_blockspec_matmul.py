ROWS_FIRST = {"(n // 128, m // 128)": "(m // 128, n // 128)", "lambda j, i:": "lambda i, j:"}
UNTURNED = {
    "((1,), (1,))": "((1,), (0,))",
    "(128, k), lambda i, j: (j, 0)": "(k, 128), lambda i, j: (0, j)",
}
TWO_DIMENSIONS = {
    "n // 128, k // 128)": "n // 128)",
    "(128, 128), lambda i, j, s: (i, s)": "(128, k), lambda i, j: (i, 0)",
    "(128, 128), lambda i, j, s: (s, j)": "(k, 128), lambda i, j: (0, j)",
    "lambda i, j, s: (i, j)": "lambda i, j: (i, j)",
    "pl.program_id(2) == 0": "True",
    "pl.program_id(2) == pl.num_programs(2) - 1": "True",
}
PADDED = "jnp.pad(x, ((0, 0), (0, -k % 128))), jnp.pad(y, ((0, -k % 128), (0, 0)))"

WRONG = (
    ("columns_first", ROWS_FIRST, "compile", "y is fetched 4 times, 2 would do"),
    ("columns_first", {"128": "64"}, "compile", "divisible by 8 and 128"),
    ("transposed_rhs", UNTURNED | {")(x, y)": ")(x, y.T)"}, "compile", "runs outside the kernel"),
    ("transposed_rhs", UNTURNED, "interpret", "on square"),
    ("accumulated", {"program_id(2) == 0": "program_id(2) < 0"}, "interpret", "is nan"),
    ("accumulated", TWO_DIMENSIONS, "compile", "wanted one of 3 dimensions"),
    ("ragged_k", {"jnp.where(rows < real, y_ref[...], 0)": "y_ref[...]"}, "interpret", "is nan"),
    ("ragged_k", {")(x, y)": f")({PADDED})"}, "compile", "runs outside the kernel"),
)
