"""Softmax in NKI, for a NeuronCore: rows in partitions; the Scalar engine raises and adds up.

One instruction of the Scalar engine does four things to an element: it adds the bias (minus the
row's largest), raises, writes the result, and adds it to the row's sum.
"""

import numpy as np

from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl

__all__ = ["WHOLE", "softmax_kernel"]
# A row of float32 that stays: x and exp(x) take 8 bytes an element, and the next tile's x 4 more
# while this one is worked on. 12 B × 8192 = 96 KiB of a partition's 192.
WHOLE = 8192


@nki.jit
def softmax_kernel(x):
    """[rows, n], float32 or bfloat16 in HBM → [rows, n], along n."""
    rows, n = x.shape
    out = nl.ndarray((rows, n), dtype=x.dtype, buffer=nl.shared_hbm)
    for part in nl.affine_range((rows + nl.tile_size.pmax - 1) // nl.tile_size.pmax):
        first = part * nl.tile_size.pmax
        last = min(first + nl.tile_size.pmax, rows)
        if n <= WHOLE:
            whole_rows(out[first:last, :], x[first:last, :])
        else:
            long_rows(out[first:last, :], x[first:last, :])
    return out


def whole_rows(out, x):
    """Rows that stay in SBUF: [p, n] in HBM → out, [p, n] in HBM."""
    p, n = x.shape
    a = nl.ndarray((p, n), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    minus_max = column(p)
    nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=a, axis=1, negate=True)
    powers = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
    total = column(p)
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=total, bias=minus_max
    )
    scale(out, powers, total)


def long_rows(out, x):
    """Rows that are read three times, in parts: for the largest, for the sum, for the result."""
    p, n = x.shape
    parts = (n + WHOLE - 1) // WHOLE
    maxima = nl.ndarray((p, parts), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((p, parts), dtype=nl.float32, buffer=nl.sbuf)
    for part in nl.affine_range(parts):
        a = fetched(x, part)
        nisa.tensor_reduce(dst=maxima[:, part : part + 1], op=nl.maximum, data=a, axis=1)
    minus_max, total = column(p), column(p)
    nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=maxima, axis=1, negate=True)
    for part in nl.affine_range(parts):
        exp_part(fetched(x, part), minus_max, sums[:, part : part + 1])
    nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
    for part in nl.affine_range(parts):
        again = column(p)
        powers = exp_part(fetched(x, part), minus_max, again)
        left = part * WHOLE
        scale(out[:, left : min(left + WHOLE, n)], powers, total)


def fetched(x, part):
    """The columns of a part of x, in SBUF."""
    left = part * WHOLE
    right = min(left + WHOLE, x.shape[1])
    a = nl.ndarray((x.shape[0], right - left), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[:, left:right])
    return a


def exp_part(a, minus_max, total):
    """exp(a − the largest), and its row sums in total."""
    powers = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=total, bias=minus_max
    )
    return powers


def scale(out, powers, total):
    """powers over total, to HBM: a reciprocal of one number a row, and a product."""
    p, n = powers.shape
    inverse = column(p)
    nisa.reciprocal(dst=inverse, data=total)
    result = nl.ndarray((p, n), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out, src=result)


def column(p):
    """A new tile of one float32 for each row."""
    return nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)


def softmax(x, *, interpret=None):
    """[…, n] → […, n]; a NumPy array where the kernel is simulated."""
    rows = x.reshape(-1, x.shape[-1])
    return np.asarray(run(softmax_kernel, rows, interpret=interpret)).reshape(x.shape)
