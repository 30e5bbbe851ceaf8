ALL_ROWS = """\
x = lax.all_gather(x, "x", tiled=True)
    return x.T @ dy
"""
KEYS_OF_ALL = """\
k, v = (lax.all_gather(x, "x", tiled=True) for x in (k, v))
    _, l, a = part_of_softmax(q, k, v, True)
    return a / l
"""
ONE_WAY = {"(1, -1, left)": "(1, 1, right)"}

WRONG = (
    ("ring_weight_gradient", {"n, me, right = place()": ALL_ROWS}, "speed", "wanted are permutes"),
    ("split_keys", {"m, l, a = part_of_softmax(q, k, v, True)": KEYS_OF_ALL}, "speed", "the bar"),
    ("window_attention", {" & (me > 0)": ""}, "interpret", "does it see any"),
    ("window_attention", {"before = (i[None] >": "before = (i[None] >="}, "interpret", "key alone"),
    ("ring_matmul_fast", ONE_WAY, "speed", "the bar is 29,000"),
    ("ring_matmul_fast", {"    meet(left, right)\n": ""}, "simulate", "has entered the kernel"),
)  # fmt: skip
