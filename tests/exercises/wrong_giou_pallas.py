"""Wrong answers to the exercises of this chapter, and what is said of each."""

import functools

import jax.numpy as jnp


def as_written(sample, box, coordinate, n):
    return divmod(4 * (n * sample + box) + coordinate, 128)


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
    ("giou_place", as_written, "interpret", "element [0, 0, 1, 0] is 0, the reference 1"),
    ("giou_place", lambda *place: (0, 0), "interpret", "every element is zero"),
    ("giou_iou", functools.partial(giou_iou, least=0), "interpret", "on degenerate"),
    ("giou_iou", half_a_block, "interpret", "element [4, 0] is nan"),
    ("giou_pull", lambda p, t: -giou_pull(p, t), "interpret", "element [0, "),
    ("giou_pull", lambda p, t: 0 * p[..., 0], "interpret", "every element is zero"),
    ("giou_fast", fast, "speed", "the bar is 155"),
    ("giou_fast", without_the_least, "interpret", "on degenerate"),
    ("giou_total", forgets_the_first, "interpret", "on three"),
)
