"""GIOU in NKI, for a NeuronCore-v2 (Inf2, Trn1): samples in partitions, boxes along them."""

from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl

__all__ = ["giou_kernel"]
EPSILON = 1e-5
# A pair of boxes takes 30 numbers of 4 bytes, if no tile's room is used twice, and the next tile is
# fetched meanwhile: 2 × 120 B × 512 = 120 KiB of a partition's 192.
BOXES = 512


@nki.jit
def giou_kernel(preds, targets, scalar_engine=False):
    """GIOU of pairs of boxes in HBM.

    Args:
        preds, targets: [B, N, 4] float32.
        scalar_engine: whether the two reciprocals run on the Scalar engine, beside the Vector
            engine; there they are faster and, the documents say, less precise.

    Returns:
        [B, N] float32 in HBM.
    """
    samples, boxes, _ = preds.shape
    scores = nl.ndarray((samples, boxes), dtype=preds.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + nl.tile_size.pmax - 1) // nl.tile_size.pmax):
        first = row * nl.tile_size.pmax
        last = min(first + nl.tile_size.pmax, samples)
        for part in nl.affine_range((boxes + BOXES - 1) // BOXES):
            left = part * BOXES
            right = min(left + BOXES, boxes)
            score = giou_tile(
                preds[first:last, left:right, :], targets[first:last, left:right, :], scalar_engine
            )
            nisa.dma_copy(dst=scores[first:last, left:right], src=score)
    return scores


def giou_tile(preds, targets, scalar_engine):
    """[rows, n, 4] twice in HBM → a tile [rows, n] in SBUF."""
    rows, n, _ = preds.shape
    p = tile(rows, n, 4)
    t = tile(rows, n, 4)
    nisa.dma_copy(dst=p, src=preds)
    nisa.dma_copy(dst=t, src=targets)

    # All four coordinates at once: of two corners, the inner and the outer ones.
    high, low = tile(rows, n, 4), tile(rows, n, 4)
    nisa.tensor_tensor(dst=high, data1=p, data2=t, op=nl.maximum)
    nisa.tensor_tensor(dst=low, data1=p, data2=t, op=nl.minimum)
    inter = area(low[:, :, 2:4], high[:, :, 0:2], True)
    enclosing = area(high[:, :, 2:4], low[:, :, 0:2], True)
    union = area(p[:, :, 2:4], p[:, :, 0:2], False)
    target = area(t[:, :, 2:4], t[:, :, 0:2], False)

    nisa.tensor_tensor(dst=union, data1=union, data2=target, op=nl.add)
    nisa.tensor_tensor(dst=union, data1=union, data2=inter, op=nl.subtract)
    nisa.tensor_scalar(dst=union, data=union, op0=nl.maximum, operand0=EPSILON)
    nisa.tensor_scalar(dst=enclosing, data=enclosing, op0=nl.maximum, operand0=EPSILON)

    iou = quotient(inter, union, scalar_engine)
    nisa.tensor_tensor(dst=union, data1=enclosing, data2=union, op=nl.subtract)
    empty = quotient(union, enclosing, scalar_engine)
    nisa.tensor_tensor(dst=iou, data1=iou, data2=empty, op=nl.subtract)
    return iou


def tile(rows, n, m):
    """A new tile [rows, n, m] of float32."""
    return nl.ndarray((rows, n, m), dtype=nl.float32, buffer=nl.sbuf)


def area(last, first, clamped):
    """[rows, n, 2] twice → width times height, [rows, n]; sides at least 0 where clamped."""
    rows, n, _ = last.shape
    sides = tile(rows, n, 2)
    result = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=sides, data1=last, data2=first, op=nl.subtract)
    width, height = sides[:, :, 0], sides[:, :, 1]
    if clamped:
        nisa.tensor_scalar(dst=width, data=width, op0=nl.maximum, operand0=0.0)
        nisa.scalar_tensor_tensor(
            dst=result, data=height, op0=nl.maximum, operand0=0.0, op1=nl.multiply, operand1=width
        )
    else:
        nisa.tensor_tensor(dst=result, data1=width, data2=height, op=nl.multiply)
    return result


def quotient(numerator, denominator, scalar_engine):
    """numerator / denominator, [rows, n]: modern NKI has no division."""
    inverse = nl.ndarray(denominator.shape, dtype=nl.float32, buffer=nl.sbuf)
    if scalar_engine:
        nisa.activation(dst=inverse, op=nl.reciprocal, data=denominator)
    else:
        nisa.reciprocal(dst=inverse, data=denominator)
    nisa.tensor_tensor(dst=inverse, data1=numerator, data2=inverse, op=nl.multiply)
    return inverse


def giou(preds, targets, *, interpret=None):
    """[B, N, 4], [B, N, 4] → [B, N]; NumPy arrays where the kernel is simulated."""
    return run(giou_kernel, preds, targets, interpret=interpret)
