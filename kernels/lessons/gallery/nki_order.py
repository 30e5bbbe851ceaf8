"""A loop that says its iterations are independent, and hands a tile from one to the next."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="A loop is declared independent, and is not",
    operator="add_vectors",
    caught_by="simulate",
    says="reads what iteration",
    cause="nl.affine_range promises that iterations may run in any order. Here each uses what "
    "the one before has fetched.",
    lesson="A promise that nobody checks is broken silently. The simulator remembers which "
    "iteration wrote what, and the second rung runs such loops backwards and shuffled as well.",
    workloads=(Workload("four_parts", {"n": 4096}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f], f a multiple of 8; y is fetched one part ahead."""
    width = x.shape[1] // 4
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ahead = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=ahead, src=y[:, 0:width])
    loop = nl.sequential_range if repaired else nl.affine_range
    for part in loop(4):
        first, last = part * width, part * width + width
        a = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[:, first:last])
        nisa.tensor_tensor(dst=a, data1=a, data2=ahead, op=nl.add)
        nisa.dma_copy(dst=z[:, first:last], src=a)
        if part < 3:
            nisa.dma_copy(dst=ahead, src=y[:, last : last + width])
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
