READS_BEYOND = {
    "i += 1\n": "i += 1\n            after = tile[i, x]\n",
    "i = 0": "i = 0\n                after = 0.0\n            if after > 1e30:\n"
    "                out[row, col] = after",
}
COURSE = "(0 - cols + (course - above) * step) % w"
START = f"begin = {COURSE}"
OVER = "for course in range(above + below):"
CARRIED = {
    START: "begin += step\n        if begin >= w:\n            begin -= w",
    OVER: f"begin = (0 - cols - above * step - step) % w\n    {OVER}",
}
FLOATS = {"j = begin": "j = ti.cast(begin - w * ti.floor(begin / w), ti.i32)"}
WHILE = {OVER: "course = -1\n    while course + 1 < above + below:\n        course += 1"}

WHOLE = START.replace(" % w", "")
WHOLE += "\n        while begin < 0:\n            begin += w\n"
WHOLE += "        while begin >= w:\n            begin -= w"

RIGHT = (
    ("brick_fast", {"for i in range(h)": "for i in range(0, h)"}),
    ("brick_fast", {START: WHOLE}),
)
WRONG = (
    ("brick_fast", FLOATS, "speed", "divisions a pixel; the bar is 0.005"),
    ("brick_fast", CARRIED, "speed", "all of them change the variable begin"),
    ("brick_fast", WHILE, "speed", "one thread does 100% of the work"),
    ("brick_fast", {OVER: f"ti.loop_config(serialize=True)\n    {OVER}"}, "speed", "one thread"),
    ("brick_unit", {" // np.gcd(tile.shape[1], step)": ""}, "interpret", "shape is (24, 8)"),
    ("brick_unit", {"-step * i": "step * i"}, "interpret", "element ["),
    ("brick_columns", {"u * climb - rows": "0 - u * climb - rows"}, "interpret", "on down"),
    ("brick_columns", READS_BEYOND, "simulate", "Out of bound access to ndarray"),
    ("brick_fast", {"tile[i, j]": "tile[i, j % w]"}, "speed", "1 divisions a pixel; the bar is"),
    ("brick_fast", {"j = begin": f"j = {COURSE}"}, "speed", "divisions a pixel; the bar is 0.005"),
    ("brick_fast", {"(course - above) * step": "(above - course) * step"}, "interpret",
        "element ["),
)  # fmt: skip
