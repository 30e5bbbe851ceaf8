"""A tile with more rows than SBUF has partitions."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="A tile has 256 partitions",
    operator="add_vectors",
    caught_by="simulate",
    says="has 256 partitions; there are 128",
    cause="The first dimension of a tile is no row of memory: it is the partitions, and there "
    "are 128.",
    lesson="A larger batch makes more tiles, never taller ones. NumPy, and older simulators, "
    "take any number.",
    workloads=(Workload("two_tiles", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    height = nl.tile_size.pmax if repaired else 2 * nl.tile_size.pmax
    for first in range(0, rows, height):
        last = min(first + height, rows)
        a = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[first:last, :])
        nisa.dma_copy(dst=b, src=y[first:last, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[first:last, :], src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 256."""
    rows = 256, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
