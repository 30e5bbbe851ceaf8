"""Python's + between two tiles."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="Two tiles are added with +",
    operator="add_vectors",
    caught_by="simulate",
    says="the operator + on",
    cause="In beta 1 that made an instruction and a tile for its result. Modern NKI has "
    "neither: an instruction is told where its result goes.",
    lesson="Kernels of 2024 are full of operators. The lint of the third rung lists them all at "
    "once, the second stops at the first.",
    workloads=(Workload("rows", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def wrong(x, y):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    a = a + b
    nisa.dma_copy(dst=z, src=a)
    return z


@nki.jit
def right(x, y):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=z, src=a)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128. Two kernels, since the lint reads what does not run."""
    add = right if repaired else wrong
    return run(add, x.reshape(128, -1), y.reshape(128, -1), interpret=interpret).reshape(-1)
