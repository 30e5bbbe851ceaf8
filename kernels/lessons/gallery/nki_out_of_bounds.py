"""A slice that ends beyond its tensor."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="A slice ends beyond the tensor",
    operator="add_vectors",
    caught_by="simulate",
    says="out of bounds",
    cause="NumPy cuts such a slice short without a word, so on a laptop the ragged tile is "
    "right. A DMA goes on behind the tensor.",
    lesson="Cut the slice with min(). Do not let NumPy's kindness prove anything.",
    workloads=(Workload("ragged", {"n": 2000}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, 128):
        height = min(128, rows - first)
        last = first + height if repaired else first + 128
        a = nl.ndarray((height, f), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((height, f), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[first:last, :])
        nisa.dma_copy(dst=b, src=y[first:last, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[first:last, :], src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 200."""
    rows = 200, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
