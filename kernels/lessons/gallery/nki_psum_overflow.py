"""Two tiles in PSUM that need more than its eight banks."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The tiles do not fit into PSUM together",
    operator="add_vectors",
    caught_by="simulate",
    says="which has 16 KiB",
    cause="PSUM has eight banks of 2 KiB in each partition, and a tile takes whole banks: five "
    "and five are ten.",
    lesson="PSUM is for the sums of the Tensor engine. Other tiles belong in SBUF, which is "
    "twelve times as large.",
    workloads=(Workload("wide_rows", {"n": 268800}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    memory = nl.sbuf if repaired else nl.psum
    c = nl.ndarray(x.shape, dtype=x.dtype, buffer=memory)
    d = nl.ndarray(x.shape, dtype=x.dtype, buffer=memory)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_copy(dst=c, src=a)
    nisa.tensor_tensor(dst=d, data1=c, data2=b, op=nl.add)
    nisa.tensor_copy(dst=a, src=d)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
