"""GIOU on a TPU, the boxes read where they lie.

XLA lays an array [B, N, 4] out with the boxes in lanes and the four coordinates in sublanes, in
tiles of 4 × 128. Those bytes are also a matrix of rows of 128 boxes, in which the rows
(left, top, right, bottom) of the first 128 boxes of a sample are followed by those of the next.
Making that matrix costs nothing, and a load with a stride takes one coordinate of many samples.
Where 128 does not divide N there is no such matrix; then a block holds four rows a sample.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.giou.formula import gradients, score
from kernels.machines.pallas import interprets

LANES = 128
SAMPLES, BOXES = 128, 256  # a block where 128 does not divide N
ROWS = 2048  # of 128 coordinates: 1 MiB
LONGEST = 8192  # boxes of a sample that still come in blocks of whole samples


# --- N is a multiple of 128: rows of boxes -------------------------------------------------------


def row_parts(rows_ref, samples):
    """For each 128 boxes of a sample: where the rows of their four coordinates are."""
    stride = rows_ref.shape[0] // samples
    for part in range(stride // 4):
        lanes = slice(part * LANES, (part + 1) * LANES)
        yield [pl.ds(4 * part + c, samples, stride=stride) for c in range(4)], lanes


def rows_kernel(preds_ref, targets_ref, o_ref):  # [4·bm·N/128, 128] twice, [bm, N]
    for places, lanes in row_parts(preds_ref, o_ref.shape[0]):
        pred, target = ([ref[place, :] for place in places] for ref in (preds_ref, targets_ref))
        o_ref[:, lanes] = score(pred, target)


def rows_gradient_kernel(preds_ref, targets_ref, g_ref, dpreds_ref, dtargets_ref):
    for places, lanes in row_parts(preds_ref, g_ref.shape[0]):
        pred, target = ([ref[place, :] for place in places] for ref in (preds_ref, targets_ref))
        both = gradients(pred, target, g_ref[:, lanes])
        for ref, of_box in zip((dpreds_ref, dtargets_ref), both, strict=True):
            for place, value in zip(places, of_box, strict=True):
                ref[place, :] = value


# --- any N: four rows of coordinates a sample ----------------------------------------------------


def _coordinates(ref):
    return [ref[:, c, :] for c in range(4)]


def planes_kernel(preds_ref, targets_ref, o_ref):  # [bm, 4, bn] twice, [bm, bn]
    o_ref[...] = score(_coordinates(preds_ref), _coordinates(targets_ref))


def planes_gradient_kernel(preds_ref, targets_ref, g_ref, dpreds_ref, dtargets_ref):
    both = gradients(_coordinates(preds_ref), _coordinates(targets_ref), g_ref[...])
    for ref, of_box in zip((dpreds_ref, dtargets_ref), both, strict=True):
        for c, value in enumerate(of_box):
            ref[:, c, :] = value


# --- both ----------------------------------------------------------------------------------------


class _Form:
    """How boxes [B, N, 4] lie in a kernel's blocks: the arrays, the blocks and the kernels."""

    def __init__(self, b, n, whole=None):
        self.b, self.n = b, n
        self.whole = n % LANES == 0 and n <= LONGEST if whole is None else whole
        if self.whole:
            rows = 4 * n // LANES  # of a sample
            bm = min(b, max(8, ROWS // rows // 8 * 8))
            self.grid = (pl.cdiv(b, bm),)
            self.scores = pl.BlockSpec((bm, n), lambda i: (i, 0))
            self.boxes = pl.BlockSpec((bm * rows, LANES), lambda i: (i, 0))
            self.shape = (b * rows, LANES)
            self.forward, self.backward = rows_kernel, rows_gradient_kernel
        else:
            bm, bn = min(b, SAMPLES), min(n, BOXES)
            self.grid = (pl.cdiv(b, bm), pl.cdiv(n, bn))
            self.scores = pl.BlockSpec((bm, bn), lambda i, j: (i, j))
            self.boxes = pl.BlockSpec((bm, 4, bn), lambda i, j: (i, 0, j))
            self.shape = (b, 4, n)
            self.forward, self.backward = planes_kernel, planes_gradient_kernel

    def lay(self, boxes):
        """[B, N, 4] as the kernels take it: the same bytes on a TPU."""
        if not self.whole:
            return boxes.swapaxes(1, 2)
        # [B·N/32, 128]: rows (sample, 128 boxes, coordinate).
        return boxes.reshape(self.b, -1, LANES, 4).swapaxes(2, 3).reshape(-1, LANES)

    def unlay(self, array):
        if self.whole:
            array = array.reshape(self.b, -1, 4, LANES)
        return array.swapaxes(-2, -1).reshape(self.b, self.n, 4)

    def call(self, name, out_shapes, in_specs, out_specs, interpret):
        """The kernel for one pass, "forward" or "backward"."""
        semantics = ("parallel",) * len(self.grid)
        return pl.pallas_call(
            getattr(self, name),
            out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in out_shapes],
            grid=self.grid,
            in_specs=in_specs,
            out_specs=out_specs,
            compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
            interpret=interpret,
            name=f"giou_{name}",
        )


def _scores(form, preds, targets, interpret):
    call = form.call("forward", [(form.b, form.n)], [form.boxes] * 2, [form.scores], interpret)
    return call(form.lay(preds), form.lay(targets))[0]


def by_planes(preds, targets, interpret):
    """[B, N, 4], [B, N, 4] → [B, N], in the form for any N."""
    return _scores(_Form(*preds.shape[:2], whole=False), preds, targets, interpret)


@functools.partial(jax.jit, static_argnums=2)
def _forward(preds, targets, interpret):
    return _scores(_Form(*preds.shape[:2]), preds, targets, interpret)


@functools.partial(jax.jit, static_argnums=0)
def _backward(interpret, saved, cotangent):
    form = _Form(*cotangent.shape)
    operands = [form.boxes, form.boxes, form.scores]
    call = form.call("backward", [form.shape] * 2, operands, [form.boxes] * 2, interpret)
    return tuple(map(form.unlay, call(*map(form.lay, saved), cotangent)))


_giou = jax.custom_vjp(_forward, nondiff_argnums=(2,))
_giou.defvjp(lambda p, t, interpret: (_giou(p, t, interpret), (p, t)), _backward)


def giou(preds, targets, *, interpret=None):
    """[B, N, 4], [B, N, 4] → [B, N]; one program for each block of samples."""
    return _giou(jnp.asarray(preds), jnp.asarray(targets), interprets(interpret, "tpu"))
