"""Wrong answers to the exercises of this chapter, and what is said of each."""

import numpy as np

from kernels.giou import xla


def trusts_estimates(ours, theirs, our_band, their_band):
    return np.sign(theirs - ours).astype(np.int64)


def no_kernel(preds, targets, *, interpret):
    return xla.giou(preds, targets)


HEAD = "def surely_less(a, b, band_a, band_b):\n"
ONE_NUMBER = """\
        band_a, band_b = (np.stack([-abs(x).max(0), abs(x).max(0)]) for x in (band_a, band_b))
"""
LESS = "a / (1 + band_a[0]) < b / (1 + band_b[1])"
MULTIPLIED = "a * (1 + band_a[1]) < b * (1 + band_b[0])"
LEVEL = {"surely_less(ours, theirs, our": "surely_less(ours, theirs * (1 + 1e-9), our"}

WRONG = (
    ("distances", lambda x, y: ((x[:, None] - y) ** 2).sum(-1), "speed", "the bar is 150,000"),
    ("distances", {', precision="highest"': ""}, "compile",
        "rounds its float32 factors to bfloat16"),
    ("distances", {"2 * jnp.dot": "jnp.dot"}, "interpret", "allowed"),
    ("ahead", trusts_estimates, "interpret", "estimated"),
    ("ahead", {" / (1 + band_b[1])": ""}, "interpret", "estimated"),
    ("ahead", {HEAD: HEAD + ONE_NUMBER}, "interpret", "estimated"),
    ("ahead", {LESS: MULTIPLIED}, "interpret", "estimated"),
    ("ahead", LEVEL, "interpret", "measured"),
    ("product_flops", {"2 * int(depth)": "int(depth)"}, "interpret",
        "the result is 480, the reference 960"),
    ("product_flops", {'"jaxpr" in equation.params': "False"}, "interpret", "on batched"),
    ("product_flops", {'equation.params.get("length", 1)': "1"}, "interpret", "on loop"),
    ("giou_on_a_gpu", {"corners(preds_ref)": "corners(preds_ref)[::-1]"}, "interpret", "allowed"),
    ("giou_on_a_gpu", {"BLOCK = 256": "BLOCK = 100"}, "compile", "power of 2"),
    ("giou_on_a_gpu", no_kernel, "compile", "pallas_call"),
)  # fmt: skip
