"""Beta 1: a ragged tile that is stored without its mask."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import beta1_nki as nki
from kernels.machines.neuron.api import beta1_nl as nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="Beta 1: the store has lost its mask",
    operator="add_vectors",
    caught_by="simulate",
    says="out of bounds",
    cause="The load leaves out the rows that are not there, the store does not. It writes what "
    "a mask had left out, behind the end of the tensor.",
    lesson="A mask belongs to an instruction, not to a tile. Each access of HBM needs its own.",
    workloads=(Workload("whole", {"n": 2048}), Workload("ragged", {"n": 2000})),
    backend=NKI,
)


@nki.jit
def add(x, y, repaired):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(f)[None, :]
    for tile in nl.affine_range((rows + 127) // 128):
        i_p = 128 * tile + nl.arange(128)[:, None]
        inside = i_p < rows
        total = nl.load(x[i_p, i_f], mask=inside) + nl.load(y[i_p, i_f], mask=inside)
        nl.store(z[i_p, i_f], total, mask=inside if repaired else None)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 8."""
    rows = -1, 8
    return run(add, x.reshape(rows), y.reshape(rows), repaired, interpret=interpret).reshape(-1)
