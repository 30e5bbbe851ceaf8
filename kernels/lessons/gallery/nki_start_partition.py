"""An operand that starts in the middle of a quadrant."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="An operand starts at partition 16",
    operator="add_vectors",
    caught_by="simulate",
    says="starts at partition 16",
    cause="Engines read partitions in quadrants of 32: an operand starts at 0, 32, 64 or 96, "
    "and the larger ones at 0 or 64 only.",
    lesson="Cut a tile along its partitions in quarters or halves, or do not cut it.",
    workloads=(Workload("rows", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    height = 32 if repaired else 16
    for first in range(0, 128, height):
        rows = slice(first, first + height)
        nisa.tensor_tensor(dst=a[rows, :], data1=a[rows, :], data2=b[rows, :], op=nl.add)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
