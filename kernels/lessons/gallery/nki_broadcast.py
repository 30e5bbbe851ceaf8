"""A column that is meant to be repeated."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="A column is added to a tile, as NumPy would",
    operator="add_vectors",
    caught_by="simulate",
    says="nothing is broadcast",
    cause="tensor_tensor streams two operands of the same size. A number for each partition is "
    "the business of tensor_scalar, which is also twice as fast.",
    lesson="Broadcasting is not free on this machine, so it is not silent either.",
    workloads=(Workload("rows", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[128, f] twice → [128, f]; each term is halved, and the sum doubled, against overflow."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    half = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=half, value=0.5)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    for term in (a, b):
        if repaired:
            nisa.tensor_scalar(dst=term, data=term, op0=nl.multiply, operand0=half)
        else:
            nisa.tensor_tensor(dst=term, data1=term, data2=half, op=nl.multiply)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128."""
    rows = 128, -1
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
