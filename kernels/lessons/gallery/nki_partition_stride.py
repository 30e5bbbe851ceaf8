"""Every other partition."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="An operand takes every other partition",
    operator="add_vectors",
    caught_by="simulate",
    says="step 2 along the partitions",
    cause="A lane of an engine belongs to a partition. An operand is a run of neighbours; only "
    "along a partition may it take steps.",
    lesson="What needs a stride goes into the free dimension.",
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
    for part in range(2):
        rows = slice(64 * part, 64 * part + 64) if repaired else slice(part, 128, 2)
        nisa.tensor_tensor(dst=a[rows, :], data1=a[rows, :], data2=b[rows, :], op=nl.add)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
