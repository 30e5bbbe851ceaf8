"""Wrong kernels in NKI: sums of two vectors, tile by tile; a matmul; GIOU.

`add_tile` and `add_rows` are right, and have several faults. What the lint of the third rung finds
is a kernel of its own, since the lint reads what does not run as well.
"""

import functools

from kernels.giou.nki import EPSILON, areas, quotient
from kernels.lessons.gallery.bug import Bug, bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload, cases

ROWS = cases("n", rows=2048)
RAGGED = cases("n", ragged=2000)

_bug = functools.partial(bug, backend=NKI)


def summed(shape=(128, -1), *, fault="wrong", right=None, **facts):
    """Make a bug of a kernel that adds x and y.

    Args:
        shape: the one that both have in it; 128 or 8 divides n.
        fault: what the kernel is told to be wrong; None where it knows no better.
        right: the kernel in its place when repaired; None for the same, which is told nothing.
        facts: what Bug takes besides.
    """

    def declare(program):
        def kernel(x, y, *, interpret, repaired=False):
            x, y = x.reshape(shape), y.reshape(shape)
            chosen = (right or program) if repaired else program
            named = () if repaired or fault is None else (fault,)
            return run(chosen, x, y, *named, interpret=interpret).reshape(-1)

        known = {"operator": "add_vectors", "backend": NKI, "caught_by": "simulate"}
        return Bug(kernel, shown=program.function, **known | facts)

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


def _of_tile(fault, **facts):
    return summed(fault=fault, workloads=ROWS, **facts)(add_tile)


nki_uninitialised = _of_tile(
    "nki_uninitialised",
    title="The sum is never set to zero",
    says="that were never written",
    cause="nl.ndarray reserves memory and sets nothing. Fresh memory is often zero, in a "
    "simulator and on a device that has just started.",
    lesson="Ask of every read whether something was written there, element by element.",
)

nki_start_partition = _of_tile(
    "nki_start_partition",
    title="An operand starts at partition 16",
    says="starts at partition 16",
    cause="Engines read partitions in quadrants of 32: an operand starts at 0, 32, 64 or 96, "
    "and the larger ones at 0 or 64 only.",
    lesson="Cut a tile along its partitions in quarters or halves, or do not cut it.",
)

nki_partition_stride = _of_tile(
    "nki_partition_stride",
    title="An operand takes every other partition",
    says="step 2 along the partitions",
    cause="A lane of an engine belongs to a partition. An operand is a run of neighbours; only "
    "along a partition may it take steps.",
    lesson="What needs a stride goes into the free dimension.",
)

nki_hbm_operand = _of_tile(
    "nki_hbm_operand",
    title="An instruction reads an operand in HBM",
    says="an engine reaches SBUF and PSUM only",
    cause="The four engines are connected to SBUF and PSUM. Only the DMA engines reach HBM.",
    lesson="Every argument is copied in, every result out, by the kernel itself.",
)


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


def _of_rows(fault, **facts):
    return summed((-1, 8), fault=fault, **facts)(add_rows)


nki_partitions = _of_rows(
    "nki_partitions",
    title="A tile has 256 partitions",
    says="has 256 partitions; there are 128",
    cause="The first dimension of a tile is no row of memory: it is the partitions, and there "
    "are 128.",
    lesson="A larger batch makes more tiles, never taller ones. NumPy, and older simulators, "
    "take any number.",
    workloads=cases("n", two_tiles=2048),
)

nki_short_loop = _of_rows(
    "nki_short_loop",
    title="A part of the output is never written",
    caught_by="interpret",
    says="allowed",
    cause="The number of tiles is rounded down. What was in the output before is returned for "
    "the last rows.",
    lesson="A wrong number is found on the first rung. Where the right answer happens to be "
    "zero, only the second sees that nobody wrote it.",
    workloads=(Workload("whole", {"n": 2048}, why="two whole tiles: nothing is missing"), *RAGGED),
)

nki_double_write = _of_rows(
    "nki_double_write",
    title="The last tile overlaps the one before",
    says="a second time",
    cause="Moved back, the last tile is whole, and some rows are stored twice. Which store "
    "comes last is left to sixteen queues.",
    lesson="It happens to be harmless while both stores say the same. Change the kernel to add "
    "in place, and it is a race.",
    workloads=RAGGED,
)

nki_out_of_bounds = _of_rows(
    "nki_out_of_bounds",
    title="A slice ends beyond the tensor",
    says="out of bounds",
    cause="NumPy cuts such a slice short without a word, so on a laptop the ragged tile is "
    "right. A DMA goes on behind the tensor.",
    lesson="Cut the slice with min(). Do not let NumPy's kindness prove anything.",
    workloads=RAGGED,
)


@summed(
    title="A column is added to a tile, as NumPy would",
    says="nothing is broadcast",
    cause="tensor_tensor streams two operands of the same size. A number for each partition is "
    "the business of tensor_scalar, which is also twice as fast.",
    lesson="Broadcasting is not free on this machine, so it is not silent either.",
    workloads=ROWS,
)
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


@summed(
    title="The tiles do not fit into PSUM together",
    says="which has 16 KiB",
    cause="PSUM has eight banks of 2 KiB in each partition, and a tile takes whole banks: five "
    "and five are ten.",
    lesson="PSUM is for the sums of the Tensor engine. Other tiles belong in SBUF, which is "
    "twelve times as large.",
    workloads=cases("n", wide_rows=268800),
)
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


@summed(
    title="The tiles do not fit into SBUF together",
    says="which has 192 KiB",
    cause="Each tile fits. While the sum is made, two operands and the result are live, and "
    "take 199 KiB of each partition.",
    lesson="Add up what is live at the same time. The vendor's own simulator does not.",
    workloads=cases("n", long_rows=2176000),
)
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


@summed(
    title="A loop is declared independent, and is not",
    says="reads what iteration",
    cause="nl.affine_range promises that iterations may run in any order. Here each uses what "
    "the one before has fetched.",
    lesson="A promise that nobody checks is broken silently. The simulator remembers which "
    "iteration wrote what, and the second rung runs such loops backwards and shuffled as well.",
    workloads=cases("n", four_parts=4096),
)
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


@summed(
    fault=None,
    right=add_tile,
    title="Two tiles are added with +",
    says="the operator + on",
    cause="In beta 1 that made an instruction and a tile for its result. Modern NKI has "
    "neither: an instruction is told where its result goes.",
    lesson="Kernels of 2024 are full of operators. The lint of the third rung lists them all at "
    "once, the second stops at the first.",
    workloads=ROWS,
)
@nki.jit
def nki_operator(x, y):
    """[128, f] twice → [128, f]."""
    a, b = fetched(x), fetched(y)
    a = a + b
    return stored(a)


@summed(
    fault=None,
    right=add_tile,
    title="The tiles are made in a list comprehension",
    caught_by="compile",
    says="a list comprehension is not in the kernel language",
    cause="A kernel is Python to a simulator. The compilers of NKI 0.1 to 0.6 parse it "
    "themselves, and know fewer forms.",
    lesson="What runs in a simulator need not compile, the vendor's own simulator included.",
    workloads=ROWS,
)
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
    title="Every product overwrites the sum in PSUM",
    operator="matmul",
    caught_by="interpret",
    says="allowed",
    cause="accumulate=False overwrites, and it is said of every tile of the contraction: the last "
    "one is all that is left.",
    lesson="The first product of a sum overwrites PSUM and the others add to it. That is what "
    "nc_matmul does when nobody says otherwise. One tile of the contraction hides the mistake.",
    workloads=cases("m k n", one_tile=(64, 128, 96, "nothing to add up"), two_tiles=(64, 256, 96)),
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
    title="The union is subtracted before the areas are clamped",
    operator="giou",
    caught_by="interpret",
    says="allowed",
    cause="The published NKI kernel takes enclosing - union first and clamps the divisor later; "
    "its C++ and PyTorch companions clamp the enclosing area first. For two identical "
    "points they say 0.0 and -1.0.",
    lesson="Write the contract down before the second implementation. Boxes of no area are in "
    "every data set, and never in the benchmark.",
    workloads=cases("b n", boxes=(8, 32, "boxes of whole pixels: the order makes no odds"))
    + cases("b n", values="wide", wide=(17, 100)),
    shown=giou.function,
)
def nki_late_clamp(preds, targets, *, interpret, repaired=False):
    """[B, N, 4], [B, N, 4] → [B, N]; B at most 128."""
    return run(giou, preds, targets, repaired, interpret=interpret)
