"""A last tile that is moved back until it fits."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The last tile overlaps the one before",
    operator="add_vectors",
    caught_by="simulate",
    says="a second time",
    cause="Moved back, the last tile is whole, and some rows are stored twice. Which store "
    "comes last is left to sixteen queues.",
    lesson="It happens to be harmless while both stores say the same. Change the kernel to add "
    "in place, and it is a race.",
    workloads=(Workload("ragged", {"n": 2000}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[rows, f] twice → [rows, f], rows at least 128."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        first = start if repaired else min(start, rows - 128)
        last = min(first + 128, rows)
        a = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((last - first, f), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[first:last, :])
        nisa.dma_copy(dst=b, src=y[first:last, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[first:last, :], src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 200."""
    rows = 200, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
