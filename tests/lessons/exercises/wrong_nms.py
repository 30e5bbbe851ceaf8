import numpy as np

from kernels.nms import nms


def moved_aside(boxes, scores, classes):
    aside = (classes * (boxes.max() + 1)).astype(np.float32)
    return nms(boxes + aside[:, None], scores, iou_threshold=0.5)


ONE_ROUND = "jnp.where(jnp.dot(alive, drops, preferred_element_type=jnp.float32) > 0, 0.0, alive)"
IN_NUMPY = {"keep[jnp.argsort(-scores)]": "np.asarray(keep)[np.argsort(-scores)]"}
DIVIDES = {
    "3 * width * height > areas": "width * height / (areas - width * height) > 0.5",
    "jnp.dot(kept, drops, preferred_element_type=jnp.float32)": (
        "(kept.reshape(-1, 1) * drops).max(0, keepdims=True).astype(jnp.float32)"
    ),
}

WRONG = (
    ("nms_dropped_by", {"settle(drops, alive)\n": ONE_ROUND + "\n"}, "interpret", "on chain"),
    ("nms_dropped_by", {"drops * transposed(keep) > 0": "drops > 0"}, "interpret", "element [0, "),
    ("nms_dropped_by", {"alive > keep": "first < BLOCK"}, "interpret", "on gone"),
    ("nms_classes", moved_aside, "interpret", "on scales"),
    ("nms_at_most", {"count_ref[0] = 0": "pass"}, "interpret", "on two"),
    ("nms_at_most", {" & (count_ref[0] < most)": ""}, "interpret", "on two"),
    ("nms_busy", {"jnp.argsort(-scores)": "jnp.arange(len(scores))"}, "interpret", "element ["),
    ("nms_busy", IN_NUMPY, "interpret", "traced array"),
    ("nms_fast", DIVIDES, "speed", "the bar is 470"),
)
