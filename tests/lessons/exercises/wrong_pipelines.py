"""Wrong answers to the exercises of this chapter, and what is said of each."""

NEXT = "@pl.when(i + 1 < blocks)\n        def _():\n            copy(i + 1).start()"
ROWS, BLOCKS = "lambda i: (i, 0)", "lambda i, j: (i, j)"

WRONG = (
    ("double_buffer", {"copy(0).start()": "", NEXT: "copy(i).start()"}, "compile",
        "1 copy is under way"),
    ("double_buffer", {"i % 2": "0"}, "interpret", "on four"),
    ("emitted", {"x_block_ref[...] * y": "x_block_ref[...] + y"}, "interpret", "element ["),
    ("emitted", {"min(rows, 256)": "64", "(size, columns)": "(size, 128)", ROWS: BLOCKS,
        "(rows // size,)": "(rows // size, columns // 128)"}, "speed", "the bar is 60,000"),
)  # fmt: skip
