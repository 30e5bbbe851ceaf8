STEP, STORE = "state = a[c] * state + k[b, c, t]\n", "out[b, c, t] = state"
WEIGHT = {
    "if u <= t + i:": "if u <= t + i and t + i < T:",
    "weight[i] *": "w[c, T - 1 - t - i + u] *",
}
BEFORE = """if t > 0:
                    total += state * out[b, c, t - 1]"""

WRONG = (
    ("conv_decay", {STEP + " " * 12 + STORE: STORE + "\n" + " " * 12 + STEP}, "interpret",
        "element [1, 1, 1]"),
    ("conv_decay", {"range(k.shape[2])": "range(k.shape[2] - 1)"}, "interpret",
        "element [0, 0, 39] is nan"),
    ("conv_causal", lambda function: True, "interpret", "for this one: The end of a row comes"),
    ("conv_causal", {"range(1, k.shape[2])": "[k.shape[2] - 1]"}, "interpret",
        "True for this one: Causal but for"),
    ("conv_causal", lambda function: 1, "interpret", "True or False is wanted"),
    ("conv_fast", WEIGHT, "speed", "loads for each product; the bar is 0.4"),
    ("conv_gradient", {BEFORE: "total += state * out[b, c, t]"}, "interpret", "element [121]"),
    ("conv_gradient", {" + a[c] * state": ""}, "interpret", "element [98]"),
)  # fmt: skip
