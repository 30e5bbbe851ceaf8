STEP, STORE = "state = a[c] * state + k[b, c, t]\n", "out[b, c, t] = state"
WEIGHT = {
    "if u <= t + i:": "if u <= t + i and t + i < T:",
    "weight[i] *": "w[c, T - 1 - t - i + u] *",
}
BEFORE = """if t > 0:
                    total += state * out[b, c, t - 1]"""
AGAIN = "state = 0.0\n            for u in range(t + 1):\n                "
SQUARED = {STEP: AGAIN + STEP.replace("t]", "u]")}
BY_STEPS = {
    "b, c in ti.ndrange(k.shape[0], k.shape[1])": "b, c, t in ti.ndrange(*k.shape)",
    "for t in range(k.shape[2])": "if t > 0",
    "state = 0.0": "out[b, c, t] = k[b, c, t]",
    STEP: "out[b, c, t] += a[c] * out[b, c, t - 1]\n",
    STORE: "",
}
BY_ROWS = {
    "for c in range(C)": "for b, c in ti.ndrange(B, C)",
    "for b in range(B)": "if b < B",
    "of_a[c] = total": "of_a[c] += total",
}
TURNED = {
    "b, c in ti.ndrange(k.shape[0], k.shape[1])": "c, b in ti.ndrange(k.shape[1], k.shape[0])"
}
IN_PLACE = {"a[c] * state +": "(a[c] * out[b, c, t - 1] if t > 0 else 0.0) +"}
FIRST_ZERO = {"total = 0.0": "of_a[c] = 0.0", "total +=": "of_a[c] +=", "of_a[c] = total": ""}
IN_TWO = {
    "for c in range(C)": "for c, b in ti.ndrange(C, B)",
    "for b in range(B)": "if b < B",
    "if t > 0": "if t < 0",
    "of_a[c] = total": """if b < 0: of_a[c] = total
    for c in range(C):
        of_a[c] = 0.0
        for b, t in ti.ndrange(B, (1, T)):
            of_a[c] += of_k[b, c, t] * out[b, c, t - 1]""",
}

RIGHT = (
    ("conv_decay", TURNED),
    ("conv_decay", IN_PLACE),
    ("conv_gradient", FIRST_ZERO),
    ("conv_gradient", IN_TWO),
)
WRONG = (
    ("conv_decay", SQUARED, "count", "loads and stores for each step; the bar is 16"),
    ("conv_decay", BY_STEPS, "count", "0 and 1 share element [0, 0, 0] of out"),
    ("conv_gradient", BY_ROWS, "count", "0 and 3 share element [0] of of_a"),
    ("conv_decay", {STEP + " " * 12 + STORE: STORE + "\n" + " " * 12 + STEP}, "interpret",
        "element [1, 1, 1]"),
    ("conv_decay", {"range(k.shape[2])": "range(k.shape[2] - 1)"}, "interpret",
        "element [0, 0, 39] is nan"),
    ("conv_causal", lambda function: True, "interpret", "for this one: The end of a row comes"),
    ("conv_causal", {"range(1, k.shape[2])": "[k.shape[2] - 1]"}, "interpret",
        "True for this one: Causal but for"),
    ("conv_causal", lambda function: 1, "interpret", "True or False is wanted"),
    ("conv_fast", {"range(3)": "range(2)"}, "interpret", "which weight does each step"),
    ("conv_fast", {"if b + row < B and u < T": "if u < T"}, "simulate", "not be multiples"),
    ("conv_fast", WEIGHT, "speed", "loads for each product; the bar is 0.4"),
    ("conv_gradient", {BEFORE: "total += state * out[b, c, t]"}, "interpret", "element [121]"),
    ("conv_gradient", {" + a[c] * state": ""}, "interpret", "element [98]"),
)  # fmt: skip
