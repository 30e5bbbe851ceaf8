"""Areas that are clamped after they were used: what one of the published GIOU kernels did."""

from kernels.giou.nki import EPSILON, area, quotient, tile
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The union is subtracted before the areas are clamped",
    operator="giou",
    caught_by="interpret",
    says="allowed",
    cause="The published NKI kernel takes enclosing - union first and clamps the divisor later; "
    "its C++ and PyTorch companions clamp the enclosing area first. For two identical "
    "points they say 0.0 and -1.0.",
    lesson="Write the contract down before the second implementation. Boxes of no area are in "
    "every data set, and never in the benchmark.",
    workloads=(
        Workload("boxes", {"b": 8, "n": 32}, why="boxes of whole pixels: the order makes no odds"),
        Workload("wide", {"b": 17, "n": 100}, values="wide"),
    ),
    backend=NKI,
)


@nki.jit
def giou(preds, targets, repaired):
    """[B, N, 4] twice → [B, N]; B at most 128."""
    rows, n, _ = preds.shape
    scores = nl.ndarray((rows, n), dtype=preds.dtype, buffer=nl.shared_hbm)
    p, t, high, low = tile(rows, n, 4), tile(rows, n, 4), tile(rows, n, 4), tile(rows, n, 4)
    nisa.dma_copy(dst=p, src=preds)
    nisa.dma_copy(dst=t, src=targets)
    nisa.tensor_tensor(dst=high, data1=p, data2=t, op=nl.maximum)
    nisa.tensor_tensor(dst=low, data1=p, data2=t, op=nl.minimum)
    inter = area(low[:, :, 2:4], high[:, :, 0:2], True)
    enclosing = area(high[:, :, 2:4], low[:, :, 0:2], True)
    union = area(p[:, :, 2:4], p[:, :, 0:2], False)
    target = area(t[:, :, 2:4], t[:, :, 0:2], False)
    nisa.tensor_tensor(dst=union, data1=union, data2=target, op=nl.add)
    nisa.tensor_tensor(dst=union, data1=union, data2=inter, op=nl.subtract)
    empty = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.sbuf)
    if not repaired:
        nisa.tensor_tensor(dst=empty, data1=enclosing, data2=union, op=nl.subtract)
    nisa.tensor_scalar(dst=union, data=union, op0=nl.maximum, operand0=EPSILON)
    nisa.tensor_scalar(dst=enclosing, data=enclosing, op0=nl.maximum, operand0=EPSILON)
    if repaired:
        nisa.tensor_tensor(dst=empty, data1=enclosing, data2=union, op=nl.subtract)
    iou = quotient(inter, union, False)
    empty = quotient(empty, enclosing, False)
    nisa.tensor_tensor(dst=iou, data1=iou, data2=empty, op=nl.subtract)
    nisa.dma_copy(dst=scores, src=iou)
    return scores


def kernel(preds, targets, *, interpret, repaired=False):
    """[B, N, 4], [B, N, 4] → [B, N]; B at most 128."""
    return run(giou, preds, targets, repaired, interpret=interpret)
