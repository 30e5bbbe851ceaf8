STEP = "state = a[c] * state + k[b, c, t]"
WEIGHT = {
    "if u <= t + i:": "if u <= t + i and t + i < T:",
    "weight[i] *": "w[c, T - 1 - t - i + u] *",
}
AGAIN = "state = 0.0\n            for u in range(t + 1):\n                "
SQUARED = {STEP: AGAIN + STEP.replace("t]", "u]")}
ROWS = "b, c in ti.ndrange(k.shape[0], k.shape[1])"
DOWN = {"for back in range(T)": "t = T\n            while t > 0", "t = T - 1 - back": "t -= 1"}
IN_PLACE = {"total = 0.0": "of_a[c] = 0.0", "total +=": "of_a[c] +=", "= total": "+= 0"}

RIGHT = (
    ("conv_decay", {ROWS: "c, b in ti.ndrange(a.shape[0], (0, k.shape[0]))"}),
    ("conv_decay", {"a[c] * state +": "(a[c] * out[b, c, t - 1] if t > 0 else 0.0) +"}),
    ("conv_gradient", IN_PLACE),
    ("conv_gradient", DOWN),
)
WRONG = (
    ("conv_decay", SQUARED, "count", "loads and stores for each step; the bar is 16"),
    ("conv_decay", {ROWS: "b, c, _ in ti.ndrange(*k.shape[:2], 2)"}, "count",
        "0 and 1 share element [0, 0, 0] of out"),
    ("conv_decay", {"state = 0.0": "state = 0.0 * out[b, 0, 0]"}, "count", "needs what step"),
    ("conv_gradient", {"c in range(C)": "b, c in ti.ndrange(B, C)", "for b in range(B)": "if B",
        "] = total": "] += total"}, "count", "0 and 3 share element [0] of of_a"),
    ("conv_decay", {"range(k.shape[2])": "range(k.shape[2] - 1)"}, "interpret",
        "element [0, 0, 39] is nan"),
    ("conv_decay", {"a[c] * state": "a[b] * state"}, "interpret", "Each row begins at 0"),
    ("conv_causal", lambda function: True, "interpret", "for this one: The end of a row comes"),
    ("conv_causal", {"range(1, k.shape[2])": "[k.shape[2] - 1]"}, "interpret",
        "True for this one: Causal but for"),
    ("conv_causal", lambda function: 1, "interpret", "True or False is wanted"),
    ("conv_fast", {"range(3)": "range(2)"}, "interpret", "which weight does each step"),
    ("conv_fast", {"if b + row < B and u < T": "if u < T"}, "simulate", "not be multiples"),
    ("conv_fast", WEIGHT, "speed", "loads for each product; the bar is 0.4"),
    ("conv_gradient", {" + a[c] * state": ""}, "interpret", "element [98]"),
)  # fmt: skip
