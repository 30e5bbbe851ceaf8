"""A loop that forgets the ragged tile, so that a part of the output is never written."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="A part of the output is never written",
    operator="add_vectors",
    caught_by="interpret",
    says="allowed",
    cause="The number of tiles is rounded down. What was in the output before is returned for "
    "the last rows.",
    lesson="A wrong number is found on the first rung. Where the right answer happens to be "
    "zero, only the second sees that nobody wrote it.",
    workloads=(
        Workload("whole", {"n": 2048}, why="two whole tiles: nothing is missing"),
        Workload("ragged", {"n": 2000}),
    ),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = (rows + 127) // 128 if repaired else rows // 128
    for tile in nl.affine_range(tiles):
        first, last = 128 * tile, min(128 * tile + 128, rows)
        a = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[first:last, :])
        nisa.dma_copy(dst=b, src=y[first:last, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[first:last, :], src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 8."""
    rows = -1, 8
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
