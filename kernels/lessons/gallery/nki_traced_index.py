"""Beta 1: a loop index that is no number."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import beta1_nki as nki
from kernels.machines.neuron.api import beta1_nl as nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="Beta 1: min() of a loop index",
    operator="add_vectors",
    caught_by="compile",
    says="of the index of nl.affine_range",
    cause="Beta 1 traces the body of a loop once, with an index that stands for all its values. "
    "Python's min has to decide at once, and cannot.",
    lesson="In beta 1 the ragged edge is a mask. In modern NKI loops are unrolled, and it is "
    "min().",
    workloads=(Workload("ragged", {"n": 2000}),),
    backend=NKI,
)


@nki.jit
def wrong(x, y):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(f)[None, :]
    for tile in nl.affine_range((rows + 127) // 128):
        i_p = 128 * tile + nl.arange(min(128, rows - 128 * tile))[:, None]
        total = nl.load(x[i_p, i_f]) + nl.load(y[i_p, i_f])
        nl.store(z[i_p, i_f], total)
    return z


@nki.jit
def right(x, y):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(f)[None, :]
    for tile in nl.affine_range((rows + 127) // 128):
        i_p = 128 * tile + nl.arange(128)[:, None]
        inside = i_p < rows
        total = nl.load(x[i_p, i_f], mask=inside) + nl.load(y[i_p, i_f], mask=inside)
        nl.store(z[i_p, i_f], total, mask=inside)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 8. Two kernels, since the lint reads what does not run."""
    add = right if repaired else wrong
    return run(add, x.reshape(-1, 8), y.reshape(-1, 8), interpret=interpret).reshape(-1)
