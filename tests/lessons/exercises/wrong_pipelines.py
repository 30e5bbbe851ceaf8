"""Wrong answers to the exercises of this chapter, and what is said of each."""

NEXT = "@pl.when(i + 1 < blocks)\n        def _():\n            copy(i + 1).start()"

WRONG = (
    ("double_buffer", {"copy(0).start()": "", NEXT: "copy(i).start()"}, "compile", "1 copy is"),
    ("double_buffer", {"i % 2": "0"}, "interpret", "on four"),
    ("emitted", {"min(rows, 256)": "8"}, "speed", "the bar is 60,000"),
)  # fmt: skip
