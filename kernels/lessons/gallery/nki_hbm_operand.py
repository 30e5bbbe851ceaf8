"""An engine is told to read main memory."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="An instruction reads an operand in HBM",
    operator="add_vectors",
    caught_by="simulate",
    says="an engine reaches SBUF and PSUM only",
    cause="The four engines are connected to SBUF and PSUM. Only the DMA engines reach HBM.",
    lesson="Every argument is copied in, every result out, by the kernel itself.",
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
    nisa.tensor_tensor(dst=a, data1=a, data2=b if repaired else y, op=nl.add)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
