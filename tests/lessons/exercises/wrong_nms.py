"""Wrong answers to the exercises of this chapter, and what is said of each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.nms import nms


def moved_aside(boxes, scores, classes):
    aside = (classes * (boxes.max() + 1)).astype(np.float32)
    return nms(boxes + aside[:, None], scores, iou_threshold=0.5)


def class_blind(boxes, scores, classes):
    return nms(boxes, scores, iou_threshold=0.5)


def nms_at_most(box_ref, boxes_ref, keep_ref, dropped_ref, count_ref, *, most, starts=True):
    i = pl.program_id(0)

    @pl.when((i == 0) & starts)
    def _():
        dropped_ref[...] = jnp.zeros_like(dropped_ref)
        count_ref[0] = 0

    left, top, right, bottom, size = (boxes_ref[pl.ds(k, 1)] for k in range(5))
    rank = jax.lax.broadcasted_iota(jnp.int32, left.shape, 1)
    alive = jnp.max(jnp.where(rank == i, 1.0 - dropped_ref[...], 0.0))
    width = jnp.minimum(right, box_ref[2, i]) - jnp.maximum(left, box_ref[0, i])
    height = jnp.minimum(bottom, box_ref[3, i]) - jnp.maximum(top, box_ref[1, i])
    common = jnp.maximum(width, 0.0) * jnp.maximum(height, 0.0)
    union = jnp.maximum(size + box_ref[4, i] - common, 1e-5)
    drops = (common > 0.5 * union) & (rank > i) & (alive > 0)
    dropped_ref[...] = jnp.where(drops, 1.0, dropped_ref[...])
    keep_ref[i] = jnp.where((alive > 0) & (count_ref[0] < most), 1.0, 0.0)
    count_ref[0] += alive.astype(jnp.int32)


def keeps_all(*refs, most):
    nms_at_most(*refs, most=10**6)


def busy(keep, scores, fill=-1):
    kept = jnp.pad(keep[jnp.argsort(-scores)], (0, -len(keep) % 128)).reshape(-1, 128).any(1)
    (found,) = jnp.nonzero(kept, size=len(kept), fill_value=0)
    last = found.max() if fill < 0 else fill
    return jnp.where(jnp.arange(len(kept)) < kept.sum(), found, last).astype(jnp.int32)


def in_input_order(keep, scores):
    return busy(keep, -jnp.arange(len(keep)))


def ends_in_zeros(keep, scores):
    return busy(keep, scores, fill=0)


def in_numpy(keep, scores):
    return np.flatnonzero(np.asarray(keep))


def dropped_by(drops_ref, alive_ref, by_ref, rounds=128, kept_only=True, looks_back=True):
    drops, alive = drops_ref[...], alive_ref[...]

    def visit(_, keep):
        hit = jnp.dot(keep, drops, preferred_element_type=jnp.float32) > 0
        return jnp.where(hit, 0.0, alive)

    keep = jax.lax.fori_loop(0, rounds, visit, alive)
    kept = jnp.broadcast_to(keep, drops.shape).T if kept_only else 1.0
    rank = jax.lax.broadcasted_iota(jnp.int32, drops.shape, 0)
    first = jnp.where(drops * kept > 0, rank, 128).min(0, keepdims=True)
    told = (first < 128) & ((alive > 0) | (not looks_back))
    by_ref[...] = jnp.where(told, first, -1).astype(jnp.float32)


def one_round(*refs):
    dropped_by(*refs, rounds=1)


def by_anyone(*refs):
    dropped_by(*refs, kept_only=False)


def names_one_for_the_gone(*refs):
    dropped_by(*refs, looks_back=False)


def divides(first_ref, kept_ref, others_ref, o_ref, threshold=0.5):
    left, top, right, bottom = (first_ref[:, c : c + 1] for c in range(4))
    left_, top_, right_, bottom_ = (others_ref[c : c + 1, :] for c in range(4))
    width = jnp.maximum(jnp.minimum(right, right_) - jnp.maximum(left, left_), 0)
    height = jnp.maximum(jnp.minimum(bottom, bottom_) - jnp.maximum(top, top_), 0)
    areas = (right - left) * (bottom - top) + (right_ - left_) * (bottom_ - top_)
    overlap = width * height / (areas - width * height)
    kept = kept_ref[...].reshape(-1, 1) if kept_ref is not None else 1
    drops = jnp.where(overlap > threshold, kept, 0.0)
    o_ref[...] = jnp.max(drops, axis=0, keepdims=True)


def all_are_kept(first_ref, kept_ref, others_ref, o_ref):
    divides(first_ref, None, others_ref, o_ref)


WRONG = (
    ("nms_dropped_by", one_round, "interpret", "on chain"),
    ("nms_dropped_by", by_anyone, "interpret", "element [0, 8] is 7, the reference -1"),
    ("nms_dropped_by", names_one_for_the_gone, "interpret", "on gone"),
    ("nms_classes", moved_aside, "interpret", "on scales"),
    ("nms_classes", class_blind, "interpret", "on three"),
    ("nms_at_most", functools.partial(nms_at_most, starts=False), "interpret", "on two"),
    ("nms_at_most", keeps_all, "interpret", "on two"),
    ("nms_busy", in_input_order, "interpret", "element ["),
    ("nms_busy", ends_in_zeros, "interpret", "the reference"),
    ("nms_busy", in_numpy, "interpret", "traced array"),
    ("nms_fast", divides, "speed", "the bar is 470"),
    ("nms_fast", all_are_kept, "interpret", "element ["),
)
