WAITS = "copy.wait()\n    o_ref[...] = 2 * buffer_ref[...]"
NEXT = "@pl.when(i + 1 < blocks)\n        def _():\n            copy(i + 1).start()"

WRONG = (
    ("from_hbm", {"2 * buffer_ref": "2 * x_ref"}, "simulate", "HBM"),
    ("from_hbm", {WAITS: "o_ref[...] = 2 * buffer_ref[...]; copy.wait()"}, "simulate", "race"),
    ("from_hbm", {"copy.start()\n    copy.wait()": ""}, "interpret", "is nan"),
    ("double_buffer", {"copy(0).start()": "", NEXT: "copy(i).start()"}, "compile", "1 copy is"),
    ("emitted", {"min(rows, 256)": "8"}, "speed", "the bar is 61,500"),
)  # fmt: skip
