"""A list comprehension in a kernel."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The tiles are made in a list comprehension",
    operator="add_vectors",
    caught_by="compile",
    says="a list comprehension is not in the kernel language",
    cause="A kernel is Python to a simulator. The compilers of NKI 0.1 to 0.6 parse it "
    "themselves, and know fewer forms.",
    lesson="What runs in a simulator need not compile, the vendor's own simulator included.",
    workloads=(Workload("rows", {"n": 2048}),),
    backend=NKI,
)


@nki.jit
def wrong(x, y):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
    nisa.dma_copy(dst=tiles[0], src=x)
    nisa.dma_copy(dst=tiles[1], src=y)
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
    nisa.dma_copy(dst=z, src=tiles[0])
    return z


@nki.jit
def right(x, y):
    """[128, f] twice → [128, f]."""
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf))
    nisa.dma_copy(dst=tiles[0], src=x)
    nisa.dma_copy(dst=tiles[1], src=y)
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
    nisa.dma_copy(dst=z, src=tiles[0])
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 128. Two kernels, since the lint reads what does not run."""
    add = right if repaired else wrong
    return run(add, x.reshape(128, -1), y.reshape(128, -1), interpret=interpret).reshape(-1)
