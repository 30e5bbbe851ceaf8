import numpy as np

from kernels.giou import xla


def trusts_estimates(ours, theirs, band):
    return np.sign(theirs - ours).astype(np.int64)


def no_kernel(preds, targets, *, interpret):
    return xla.giou(preds, targets)


WRONG = (
    ("distances", lambda x, y: ((x[:, None] - y) ** 2).sum(-1), "speed", "the bar is 150,000"),
    ("distances", {', precision="highest"': ""}, "compile", "which argument of jnp.dot does?"),
    ("distances", {"squares - 2": "squares + 2"}, "interpret", "without a root"),
    ("distances", {"x, y.T": "x, y"}, "interpret", "the d numbers of a point"),
    ("ahead", trusts_estimates, "interpret", "estimated"),
    ("ahead", {"ratio / (1 + band[1])": "ratio"}, "interpret", "estimated"),
    ("ahead", {"ratio / (1 + band[1])": "ratio * (1 + band[0])"}, "interpret", "estimated"),
    ("ahead", {"(1 + band[0])": "(1 - band[1])"}, "interpret", "estimated"),
    ("ahead", {"least > 1": "least >= 1"}, "interpret", "measured"),
    ("product_flops", {'"jaxpr" in equation.params': "False"}, "interpret", "on batched"),
    ("product_flops", {'equation.params.get("length", 1)': "1"}, "interpret", "on loop"),
    ("giou_on_a_gpu", {"BLOCK = 256": "BLOCK = 100"}, "compile", "power of 2"),
    ("giou_on_a_gpu", no_kernel, "compile", "pallas_call"),
)  # fmt: skip
