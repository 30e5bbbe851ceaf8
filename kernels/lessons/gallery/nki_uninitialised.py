"""A sum that starts with whatever is in memory."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The sum is never set to zero",
    operator="add_vectors",
    caught_by="simulate",
    says="that were never written",
    cause="nl.ndarray reserves memory and sets nothing. Fresh memory is often zero, in a "
    "simulator and on a device that has just started.",
    lesson="Ask of every read whether something was written there, element by element.",
    workloads=(Workload("rows", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    if repaired:
        nisa.memset(dst=total, value=0.0)
    for term in (x, y):
        a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=term)
        nisa.tensor_tensor(dst=total, data1=total, data2=a, op=nl.add)
    nisa.dma_copy(dst=z, src=total)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
