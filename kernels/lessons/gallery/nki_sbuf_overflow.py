"""Three tiles of which only two fit."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The tiles do not fit into SBUF together",
    operator="add_vectors",
    caught_by="simulate",
    says="which has 192 KiB",
    cause="Each tile fits. While the sum is made, two operands and the result are live, and "
    "take 199 KiB of each partition.",
    lesson="Add up what is live at the same time. The vendor's own simulator does not.",
    workloads=(Workload("long_rows", {"n": 2176000}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = 4096 if repaired else x.shape[1]
    for first in range(0, x.shape[1], width):
        last = min(first + width, x.shape[1])
        a = nl.ndarray((128, last - first), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, last - first), dtype=x.dtype, buffer=nl.sbuf)
        c = nl.ndarray((128, last - first), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[:, first:last])
        nisa.dma_copy(dst=b, src=y[:, first:last])
        nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[:, first:last], src=c)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
