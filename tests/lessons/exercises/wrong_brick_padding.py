READS_BEYOND = {
    "i += 1\n": "i += 1\n            after = tile[i, x]\n",
    "i = 0": "i = 0\n                after = 0.0\n            if after > 1e30:\n"
    "                out[row, col] = after",
}
COURSE = "(0 - cols + (course - above) * step) % w"
OVER = "for course in range(above + below):"
FLOATS = {"j = begin": "j = ti.cast(begin - w * ti.floor(begin / w), ti.i32)"}

UP = {"for i in range(h)": "i = -1\n        while i < h - 1", "row = top": "i += 1; row = top"}

RIGHT = (
    ("brick_fast", UP),
    ("brick_fast", {"if j == w:\n                        j = 0": "j = 0 if j == w else j"}),
)
WRONG = (
    ("brick_fast", FLOATS, "speed", "divisions a pixel; the bar is 0.005"),
    ("brick_fast", {OVER: f"begin = 0\n    {OVER}"}, "speed", "change the variable begin"),
    ("brick_fast", {OVER: f"ti.loop_config(serialize=True)\n    {OVER}"}, "speed", "one thread"),
    ("brick_unit", {" // np.gcd(tile.shape[1], step)": ""}, "interpret", "shape is (24, 8)"),
    ("brick_unit", {"-step * i": "step * i"}, "interpret", "element ["),
    ("brick_columns", {"u * climb - rows": "0 - u * climb - rows"}, "interpret", "on chapter"),
    ("brick_columns", READS_BEYOND, "simulate", "Out of bound access to ndarray"),
    ("brick_fast", {"tile[i, j]": "tile[i, j % w]"}, "speed", "1 divisions a pixel; the bar is"),
    ("brick_fast", {"j = begin": f"j = {COURSE}"}, "speed", "divisions a pixel; the bar is 0.005"),
)  # fmt: skip
