READS_BEYOND = {
    "i += 1\n": "i += 1\n            after = tile[i, x]\n",
    "i = 0": "i = 0\n                after = 0.0\n            if after > 1e30:\n"
    "                out[row, col] = after",
}
COURSE = "(0 - cols + (course - above) * step) % w"

WRONG = (
    ("brick_unit", {" // np.gcd(tile.shape[1], step)": ""}, "interpret", "shape is (24, 8)"),
    ("brick_unit", {"-step * i": "step * i"}, "interpret", "element ["),
    ("brick_columns", {"u * climb - rows": "0 - u * climb - rows"}, "interpret", "on chapter"),
    ("brick_columns", READS_BEYOND, "simulate", "Out of bound access to ndarray"),
    ("brick_fast", {"tile[i, j]": "tile[i, j % w]"}, "speed", "1 divisions a pixel; the bar is"),
    ("brick_fast", {"j = begin": f"j = {COURSE}"}, "speed", "divisions a pixel; the bar is 0.005"),
    ("brick_fast", {"(course - above) * step": "(above - course) * step"}, "interpret",
        "element ["),
)  # fmt: skip
