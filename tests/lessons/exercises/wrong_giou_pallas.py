"""Wrong answers to the exercises of this chapter, and what is said of each."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def apart(preds, targets, *, interpret, stride=None):
    b, n, _ = preds.shape
    rows = 2 * n // 128

    def kernel(p_ref, t_ref, o_ref):
        for part in range(n // 128):
            x, y = (
                p_ref[at, :] - t_ref[at, :]
                for at in (pl.ds(2 * part + c, b, stride=stride or rows) for c in (0, 1))
            )
            o_ref[:, 128 * part : 128 * part + 128] = x * x + y * y

    def seen(points):
        return points.reshape(b, n // 128, 128, 2).swapaxes(2, 3).reshape(-1, 128)

    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct((b, n), preds.dtype), interpret=interpret
    )(seen(preds), seen(targets))


def stride_of_the_shortest(*points, interpret):
    return apart(*points, interpret=interpret, stride=2)


def in_planes(preds, targets, *, interpret):
    def kernel(p_ref, t_ref, o_ref):
        o_ref[...] = ((p_ref[...] - t_ref[...]) ** 2).sum(0)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(preds.shape[:2], preds.dtype),
        interpret=interpret,
    )(*(jnp.moveaxis(points, 2, 0) for points in (preds, targets)))


def without_a_kernel(preds, targets, *, interpret):
    return ((preds - targets) ** 2).sum(-1)


def giou_iou(p_ref, t_ref, o_ref, least=1e-5):
    p, t = ([ref[c] for c in range(4)] for ref in (p_ref, t_ref))
    width = jnp.maximum(jnp.minimum(p[2], t[2]) - jnp.maximum(p[0], t[0]), 0)
    height = jnp.maximum(jnp.minimum(p[3], t[3]) - jnp.maximum(p[1], t[1]), 0)
    inter = width * height
    of_p, of_t = ((b[2] - b[0]) * (b[3] - b[1]) for b in (p, t))
    o_ref[...] = inter / jnp.maximum(of_p + of_t - inter, least)


def half_a_block(p_ref, t_ref, o_ref):
    giou_iou(p_ref.at[:, :4], t_ref.at[:, :4], o_ref.at[:4])


def giou_pull(preds, targets):
    sides = targets[..., 2:] - targets[..., :2]
    return -(preds[..., 3] - preds[..., 1]) / sides.prod(-1)


def fast(p_ref, t_ref, o_ref, least=1e-5):
    p, t = ([ref[c] for c in range(4)] for ref in (p_ref, t_ref))
    width = jnp.maximum(jnp.minimum(p[2], t[2]) - jnp.maximum(p[0], t[0]), 0)
    height = jnp.maximum(jnp.minimum(p[3], t[3]) - jnp.maximum(p[1], t[1]), 0)
    i = width * height
    areas = (p[2] - p[0]) * (p[3] - p[1]) + (t[2] - t[0]) * (t[3] - t[1])
    c = (jnp.maximum(p[2], t[2]) - jnp.minimum(p[0], t[0])) * (
        jnp.maximum(p[3], t[3]) - jnp.minimum(p[1], t[1])
    )
    u, c = jnp.maximum(areas - i, least), jnp.maximum(c, least)
    o_ref[...] = i / u - (c - u) / c


def without_the_least(*refs):
    fast(*refs, least=0)


def forgets_the_first(p_ref, t_ref, o_ref):
    scores = jnp.zeros(p_ref.shape[1:], jnp.float32)

    class Kept:
        def __setitem__(self, place, value):
            nonlocal scores
            scores = value

    fast(p_ref, t_ref, Kept())
    o_ref[0, 0] = jnp.sum(1 - scores)


WRONG = (
    ("giou_points", stride_of_the_shortest, "interpret", "on two"),
    ("giou_points", in_planes, "compile", "only moves data"),
    ("giou_points", without_a_kernel, "compile", "no kernel reached"),
    ("giou_iou", functools.partial(giou_iou, least=0), "interpret", "on degenerate"),
    ("giou_iou", half_a_block, "interpret", "element [4, 0] is nan"),
    ("giou_pull", lambda p, t: -giou_pull(p, t), "interpret", "element [0, "),
    ("giou_pull", lambda p, t: 0 * p[..., 0], "interpret", "every element is zero"),
    ("giou_fast", fast, "speed", "the bar is 155"),
    ("giou_fast", without_the_least, "interpret", "on degenerate"),
    ("giou_total", forgets_the_first, "interpret", "on three"),
)
