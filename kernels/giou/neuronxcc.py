"""GIOU in beta 1 of NKI, `neuronxcc.nki` of SDK 2.20 to 2.26: operators, index grids, masks."""

from kernels.machines.neuron import run
from kernels.machines.neuron.api import beta1_nki as nki
from kernels.machines.neuron.api import beta1_nl as nl

__all__ = ["giou_kernel"]
EPSILON = 1e-5
BOXES = 512  # as in kernels.giou.nki; here the compiler makes the tiles


@nki.jit
def giou_kernel(preds, targets):
    """GIOU of boxes in HBM, float32 [B, 4 N] twice, coordinates side by side → [B, N]."""
    samples, boxes = preds.shape[0], preds.shape[1] // 4
    scores = nl.ndarray((samples, boxes), dtype=preds.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(nl.tile_size.pmax)[:, None]
    width = min(BOXES, boxes)
    i_f = nl.arange(width)[None, :]
    i_4 = nl.arange(4 * width)[None, :]
    for row in nl.affine_range((samples + nl.tile_size.pmax - 1) // nl.tile_size.pmax):
        sample = row * nl.tile_size.pmax + i_p
        for part in nl.affine_range((boxes + width - 1) // width):
            number = part * 4 * width + i_4
            inside = (sample < samples) & (number < 4 * boxes)
            p = nl.load(preds[sample, number], mask=inside)
            t = nl.load(targets[sample, number], mask=inside)
            left, top, right, bottom = (4 * i_f + c for c in range(4))

            # Of two corners, the inner and the outer ones.
            inner_left = nl.maximum(p[i_p, left], t[i_p, left])
            inner_top = nl.maximum(p[i_p, top], t[i_p, top])
            inner_right = nl.minimum(p[i_p, right], t[i_p, right])
            inner_bottom = nl.minimum(p[i_p, bottom], t[i_p, bottom])
            outer_left = nl.minimum(p[i_p, left], t[i_p, left])
            outer_top = nl.minimum(p[i_p, top], t[i_p, top])
            outer_right = nl.maximum(p[i_p, right], t[i_p, right])
            outer_bottom = nl.maximum(p[i_p, bottom], t[i_p, bottom])

            inter_width = nl.maximum(inner_right - inner_left, 0.0)
            inter_height = nl.maximum(inner_bottom - inner_top, 0.0)
            inter = inter_width * inter_height
            outer_width = nl.maximum(outer_right - outer_left, 0.0)
            outer_height = nl.maximum(outer_bottom - outer_top, 0.0)
            pred = (p[i_p, right] - p[i_p, left]) * (p[i_p, bottom] - p[i_p, top])
            target = (t[i_p, right] - t[i_p, left]) * (t[i_p, bottom] - t[i_p, top])

            union = nl.maximum(pred + target - inter, EPSILON)
            enclosing = nl.maximum(outer_width * outer_height, EPSILON)
            score = inter / union - (enclosing - union) / enclosing

            box = part * width + i_f
            nl.store(scores[sample, box], score, mask=(sample < samples) & (box < boxes))
    return scores


def giou(preds, targets, *, interpret=None):
    """[B, N, 4], [B, N, 4] → [B, N]; NumPy arrays where the kernel is simulated."""
    rows = preds.shape[0], preds.shape[1] * 4
    return run(giou_kernel, preds.reshape(rows), targets.reshape(rows), interpret=interpret)
