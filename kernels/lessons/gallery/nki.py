"""Wrong kernels in NKI: sums of two vectors, tile by tile; a matmul; GIOU.

`add_tile` and `add_rows` are right, and have several faults. What the lint of the third rung finds
is a kernel of its own, since the lint reads what does not run as well.
"""

import functools

from kernels.giou.nki import EPSILON, areas, quotient
from kernels.lessons.gallery.bug import FACTS, bug, from_table
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload, cases

ROWS = cases("n", rows=2048)
RAGGED = cases("n", ragged=2000)

_bug = functools.partial(bug, backend=NKI)


def summed(*workloads, shape=(128, -1), fault="wrong", right=None):
    """Make a bug of a kernel that adds x and y.

    Args:
        workloads: what the bug is run on.
        shape: the one that x and y have in it; 128 or 8 divides n.
        fault: what the kernel is told to be wrong, the bug's name where it has several; None where
            it knows no better.
        right: the kernel in its place when repaired; None for the same, which is told nothing.
    """

    def declare(program):
        def kernel(x, y, *, interpret, repaired=False):
            x, y = x.reshape(shape), y.reshape(shape)
            chosen = (right or program) if repaired else program
            named = () if repaired or fault is None else (fault,)
            return run(chosen, x, y, *named, interpret=interpret).reshape(-1)

        name = fault if fault in FACTS else program.function.__name__
        return from_table(name, kernel, *workloads, shown=program.function, backend=NKI)

    return declare


def fetched(x):
    """A tensor, or a part of one, in a tile of SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile):
    """A tensor in HBM with a tile's numbers."""
    z = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=z, src=tile)
    return z


@nki.jit
def add_tile(x, y, fault=None):
    """[128, f] twice → [128, f]: the terms one after another, half of the partitions at a time."""
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    if fault != "nki_uninitialised":
        nisa.memset(dst=total, value=0.0)
    height = 16 if fault == "nki_start_partition" else 64
    for term in (x, y):
        a = term if fault == "nki_hbm_operand" else fetched(term)
        for first in range(0, 128, height):
            rows = slice(first, first + height)
            if fault == "nki_partition_stride":
                rows = slice(first // 64, 128, 2)
            nisa.tensor_tensor(
                dst=total[rows, :], data1=total[rows, :], data2=a[rows, :], op=nl.add
            )
    return stored(total)


def _of_tile(fault):
    return summed(*ROWS, fault=fault)(add_tile)


nki_uninitialised = _of_tile("nki_uninitialised")
nki_start_partition = _of_tile("nki_start_partition")
nki_partition_stride = _of_tile("nki_partition_stride")
nki_hbm_operand = _of_tile("nki_hbm_operand")


@nki.jit
def add_rows(x, y, fault=None):
    """[rows, f] twice → [rows, f], in tiles of 128 rows and a shorter one."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    height = 256 if fault == "nki_partitions" else 128
    tiles = rows // 128 if fault == "nki_short_loop" else (rows + height - 1) // height
    for number in range(tiles):
        first = height * number
        if fault == "nki_double_write":
            first = min(first, rows - 128)
        last = min(first + height, rows)
        if fault == "nki_out_of_bounds":
            last = first + 128
        a, b = fetched(x[first:last, :]), fetched(y[first:last, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[first:last, :], src=a)
    return z


def _of_rows(fault, *workloads):
    return summed(*workloads, shape=(-1, 8), fault=fault)(add_rows)


nki_partitions = _of_rows("nki_partitions", *cases("n", two_tiles=2048))
nki_short_loop = _of_rows(
    "nki_short_loop",
    Workload("whole", {"n": 2048}, why="two whole tiles: nothing is missing"),
    *RAGGED,
)
nki_double_write = _of_rows("nki_double_write", *RAGGED)
nki_out_of_bounds = _of_rows("nki_out_of_bounds", *RAGGED)


@summed(*ROWS)
@nki.jit
def nki_broadcast(x, y, fault=None):
    """[128, f] twice → [128, f]; each term is halved, and the sum doubled, against overflow."""
    a, b = fetched(x), fetched(y)
    half = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=half, value=0.5)
    for term in (a, b):
        if fault:
            nisa.tensor_tensor(dst=term, data1=term, data2=half, op=nl.multiply)
        else:
            nisa.tensor_scalar(dst=term, data=term, op0=nl.multiply, operand0=half)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0)
    return stored(a)


@summed(*cases("n", wide_rows=268800))
@nki.jit
def nki_psum_overflow(x, y, fault=None):
    """[128, f] twice → [128, f]."""
    a, b = fetched(x), fetched(y)
    memory = nl.psum if fault else nl.sbuf
    c = nl.ndarray(x.shape, dtype=x.dtype, buffer=memory)
    d = nl.ndarray(x.shape, dtype=x.dtype, buffer=memory)
    nisa.tensor_copy(dst=c, src=a)
    nisa.tensor_tensor(dst=d, data1=c, data2=b, op=nl.add)
    nisa.tensor_copy(dst=a, src=d)
    return stored(a)


@summed(*cases("n", long_rows=2176000))
@nki.jit
def nki_sbuf_overflow(x, y, fault=None):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1] if fault else 4096
    for first in range(0, x.shape[1], width):
        last = min(first + width, x.shape[1])
        a, b = fetched(x[:, first:last]), fetched(y[:, first:last])
        c = nl.ndarray(a.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[:, first:last], src=c)
    return z


@summed(*cases("n", four_parts=4096))
@nki.jit
def nki_order(x, y, fault=None):
    """[128, f] twice → [128, f], f a multiple of 8; y is fetched one part ahead."""
    width = x.shape[1] // 4
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ahead = fetched(y[:, 0:width])
    loop = nl.affine_range if fault else nl.sequential_range
    for part in loop(4):
        first, last = part * width, part * width + width
        a = fetched(x[:, first:last])
        nisa.tensor_tensor(dst=a, data1=a, data2=ahead, op=nl.add)
        nisa.dma_copy(dst=z[:, first:last], src=a)
        if part < 3:
            nisa.dma_copy(dst=ahead, src=y[:, last : last + width])
    return z


@summed(*ROWS, fault=None, right=add_tile)
@nki.jit
def nki_operator(x, y):
    """[128, f] twice → [128, f]."""
    a, b = fetched(x), fetched(y)
    a = a + b
    return stored(a)


@summed(*ROWS, fault=None, right=add_tile)
@nki.jit
def nki_comprehension(x, y):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
    nisa.dma_copy(dst=tiles[0], src=x)
    nisa.dma_copy(dst=tiles[1], src=y)
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
    nisa.dma_copy(dst=z, src=tiles[0])
    return z


@nki.jit
def product(xt, y, accumulate):
    """[k, m], [k, n] → [m, n]; k a multiple of 128."""
    (k, m), n = xt.shape, y.shape[1]
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    for first in range(0, k, 128):
        a, b = fetched(xt[first : first + 128, :]), fetched(y[first : first + 128, :])
        nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=accumulate)
    c = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=c, src=total)
    return stored(c)


@_bug(
    *cases("m k n", one_tile=(64, 128, 96, "nothing to add up"), two_tiles=(64, 256, 96)),
    shown=product.function,
)
def nki_overwritten_sum(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; m at most 128, n at most 512, k a multiple of 128."""
    return run(product, x.T, y, None if repaired else False, interpret=interpret)


@nki.jit
def giou(preds, targets, repaired):
    """[B, N, 4] twice → [B, N]; B at most 128."""
    inter, union, enclosing = areas(preds, targets)
    empty = nl.ndarray(union.shape, dtype=nl.float32, buffer=nl.sbuf)
    if not repaired:
        nisa.tensor_tensor(dst=empty, data1=enclosing, data2=union, op=nl.subtract)
    nisa.tensor_scalar(dst=union, data=union, op0=nl.maximum, operand0=EPSILON)
    nisa.tensor_scalar(dst=enclosing, data=enclosing, op0=nl.maximum, operand0=EPSILON)
    if repaired:
        nisa.tensor_tensor(dst=empty, data1=enclosing, data2=union, op=nl.subtract)
    iou = quotient(inter, union, False)
    empty = quotient(empty, enclosing, False)
    nisa.tensor_tensor(dst=iou, data1=iou, data2=empty, op=nl.subtract)
    return stored(iou)


@_bug(
    *cases("b n", boxes=(8, 32, "boxes of whole pixels: the order makes no odds")),
    *cases("b n", values="wide", wide=(17, 100)),
    shown=giou.function,
)
def nki_late_clamp(preds, targets, *, interpret, repaired=False):
    """[B, N, 4], [B, N, 4] → [B, N]; B at most 128."""
    return run(giou, preds, targets, repaired, interpret=interpret)
