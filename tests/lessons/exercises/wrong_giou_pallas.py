import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def in_planes(preds, targets, *, interpret):
    def kernel(p_ref, t_ref, o_ref):
        o_ref[...] = ((p_ref[...] - t_ref[...]) ** 2).sum(0)

    out = jax.ShapeDtypeStruct(preds.shape[:2], preds.dtype)
    planes = (jnp.moveaxis(points, 2, 0) for points in (preds, targets))
    return pl.pallas_call(kernel, out_shape=out, interpret=interpret)(*planes)


def without_a_kernel(preds, targets, *, interpret):
    return ((preds - targets) ** 2).sum(-1)


CLAMPED_BEFORE = {
    "= of_pred + of_target - inter": "= jnp.maximum(of_pred + of_target, 1e-5) - inter",
    "return inter, jnp.maximum(union, 1e-5)": "return inter, union",
}
TWO_DIVISIONS = {"(i * c + u * u) / (u * c) - 1": "i / u - (c - u) / c"}

WRONG = (
    ("giou_points", {"stride=rows": "stride=2"}, "interpret", "on two"),
    ("giou_points", in_planes, "compile", "only moves data"),
    ("giou_points", without_a_kernel, "compile", "no kernel reached"),
    ("giou_iou", {"1e-5": "0.0"}, "interpret", "on degenerate"),
    ("giou_iou", CLAMPED_BEFORE, "interpret", "on wide"),
    ("giou_pull", {"return -height": "return height"}, "interpret", "element [0, "),
    ("giou_fast", TWO_DIVISIONS, "speed", "the bar is 155"),
    ("giou_total", {"+= jnp.sum": "= jnp.sum"}, "interpret", "on three"),
)
