"""GIOU on a TPU level by level: each changes one thing, and the last is in pallas.py.

0: eight planes, cut out of the arguments before the kernel; blocks of 128 × 128.
1: the same in blocks of 256 × 256.
2: two operands [4, B, N], one relayout each; the kernel takes the planes apart.
3: two operands [B, 4, N], no relayout; the kernel takes the rows of a sample apart.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.giou.formula import score
from kernels.giou.pallas import by_planes
from kernels.machines.pallas import interprets


def planes_kernel(*refs):  # eight coordinates and the scores, each [bm, bn]
    *boxes, o_ref = refs
    pred, target = ([ref[...] for ref in half] for half in (boxes[:4], boxes[4:]))
    o_ref[...] = score(pred, target)


def planar_kernel(preds_ref, targets_ref, o_ref):  # [4, bm, bn] twice, [bm, bn]
    pred, target = ([ref[c] for c in range(4)] for ref in (preds_ref, targets_ref))
    o_ref[...] = score(pred, target)


def _call(kernel, b, n, side, spec, operands, interpret):
    bm, bn = min(side, b), min(side, n)
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((b, n), jnp.float32),
        grid=(pl.cdiv(b, bm), pl.cdiv(n, bn)),
        in_specs=[spec(bm, bn)] * len(operands),
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name=kernel.__name__,
    )(*operands)


def unstacked(preds, targets, side, interpret):
    """[B, N, 4] twice → [B, N], as eight planes in blocks of side × side."""
    b, n, _ = preds.shape
    planes = [*jnp.unstack(preds, axis=-1), *jnp.unstack(targets, axis=-1)]
    spec = lambda *block: pl.BlockSpec(block, lambda i, j: (i, j))
    return _call(planes_kernel, b, n, side, spec, planes, interpret)


def planar(preds, targets, interpret):
    """[4, B, N] twice → [B, N]: what the kernel costs where the boxes were stored in planes."""
    _, b, n = preds.shape
    spec = lambda *block: pl.BlockSpec((4, *block), lambda i, j: (0, i, j))
    return _call(planar_kernel, b, n, 256, spec, (preds, targets), interpret)


def transposed(preds, targets, interpret):
    """[B, N, 4] twice → [B, N]: both brought into planes first."""
    planes = (jnp.moveaxis(boxes, -1, 0) for boxes in (preds, targets))
    return planar(*planes, interpret)


def _level(compute):
    """What is called as every implementation is: [B, N, 4], [B, N, 4] → [B, N]."""
    traced = jax.jit(compute, static_argnames="interpret")

    def giou(preds, targets, *, interpret=None):
        return traced(*map(jnp.asarray, (preds, targets)), interpret=interprets(interpret, "tpu"))

    return giou


v0 = _level(functools.partial(unstacked, side=128))
v1 = _level(functools.partial(unstacked, side=256))
v2 = _level(transposed)
v3 = _level(by_planes)
