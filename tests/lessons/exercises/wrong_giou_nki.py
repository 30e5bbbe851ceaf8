"""Wrong answers to the exercises of this chapter, and what is said of each."""

from kernels.giou.nki import giou_tile, tile
from kernels.machines.neuron.api import nisa, nki, nl


@nki.jit
def too_long(preds, targets):
    rows, n, _ = preds.shape
    scores = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=scores, src=giou_tile(preds, targets, False))
    return scores


@nki.jit
def never_set(x):
    terms, samples, n = x.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + 127) // 128):
        first = row * 128
        last = min(first + 128, samples)
        total = nl.ndarray((last - first, n), dtype=nl.float32, buffer=nl.sbuf)
        for term in range(terms):
            one = nl.ndarray((last - first, n), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=one, src=x[term, first:last, :])
            nisa.tensor_tensor(dst=total, data1=total, data2=one, op=nl.add)
        nisa.dma_copy(dst=out[first:last, :], src=total)
    return out


@nki.jit
def too_tall(x):
    terms, samples, n = x.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for term in range(terms):
        one = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=one, src=x[term])
        nisa.tensor_tensor(dst=total, data1=total, data2=one, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def with_a_list(x):
    terms, samples, n = x.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + 127) // 128):
        first = row * 128
        last = min(first + 128, samples)
        tiles = [tile(last - first, n, 1)[:, :, 0] for _ in range(2)]
        nisa.memset(dst=tiles[0], value=0.0)
        for term in range(terms):
            nisa.dma_copy(dst=tiles[1], src=x[term, first:last, :])
            nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
        nisa.dma_copy(dst=out[first:last, :], src=tiles[0])
    return out


@nki.jit
def any_order(x):
    b = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=b, src=x)
    for _ in nl.affine_range(2):
        nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=b, data=b, op0=nl.add, operand0=1.0)
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=b)
    return out


@nki.jit
def zeros(x):
    out = nl.ndarray(x.shape[-2:], dtype=nl.float32, buffer=nl.shared_hbm)
    none = nl.ndarray(x.shape[-2:], dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=none, value=0.0)
    nisa.dma_copy(dst=out, src=none)
    return out


@nki.jit
def late_zeros(preds, targets):
    return zeros(preds[:, :, 0])


def areas(boxes):
    """A tile of boxes as areas."""
    rows, n, _ = boxes.shape
    here = nl.load(boxes)
    wide, high = (tile(rows, n, 1)[:, :, 0] for _ in range(2))
    nisa.tensor_tensor(dst=wide, data1=here[:, :, 2], data2=here[:, :, 0], op=nl.subtract)
    nisa.tensor_tensor(dst=high, data1=here[:, :, 3], data2=here[:, :, 1], op=nl.subtract)
    nisa.tensor_tensor(dst=wide, data1=wide, data2=high, op=nl.multiply)
    return wide


@nki.jit
def fetched_twice(boxes):
    """Once for the largest area, and once for the shares."""
    samples, n, _ = boxes.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + 127) // 128):
        first, last = row * 128, min(row * 128 + 128, samples)
        largest = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=areas(boxes[first:last]), axis=1)
        nisa.reciprocal(dst=largest, data=largest)
        share = areas(boxes[first:last])
        nisa.tensor_scalar(dst=share, data=share, op0=nl.multiply, operand0=largest)
        nisa.dma_copy(dst=out[first:last], src=share)
    return out


@nki.jit
def shares_of_the_tile(boxes):
    """The share of the first box's area."""
    samples, n, _ = boxes.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + 127) // 128):
        first, last = row * 128, min(row * 128 + 128, samples)
        share = areas(boxes[first:last])
        one = nl.ndarray((last - first, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=one, data=share[:, 0:1])
        nisa.tensor_scalar(dst=share, data=share, op0=nl.multiply, operand0=one)
        nisa.dma_copy(dst=out[first:last], src=share)
    return out


@nki.jit
def zeros_of_boxes(boxes):
    samples, n, _ = boxes.shape
    out = nl.ndarray((samples, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((samples + 127) // 128):
        first, last = row * 128, min(row * 128 + 128, samples)
        none = nl.ndarray((last - first, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=none, value=0.0)
        nisa.dma_copy(dst=out[first:last], src=none)
    return out


WRONG = (
    ("nki_shorter", too_long, "simulate", "has 22 instructions for a tile, not 21"),
    ("nki_shorter", late_zeros, "interpret", "every element is zero"),
    ("nki_sum", zeros, "interpret", "every element is zero"),
    ("nki_carried", zeros, "interpret", "in another order it gives the same"),
    ("nki_sum", never_set, "simulate", "that were never written"),
    ("nki_sum", too_tall, "simulate", "at most 128"),
    ("nki_sum", with_a_list, "compile", "a list comprehension"),
    ("nki_carried", any_order, "interpret", "no turn needs the one before"),
    ("nki_once", fetched_twice, "simulate", "are enough"),
    ("nki_once", shares_of_the_tile, "interpret", "allowed"),
    ("nki_once", zeros_of_boxes, "interpret", "every element is zero"),
    ("nki_fast", too_long, "speed", "the bar is 22.0, 12% away"),
    ("nki_fast", late_zeros, "interpret", "every element is zero"),
)
