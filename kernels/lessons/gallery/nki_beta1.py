"""Wrong sums of two vectors in beta 1 of NKI, whose ragged edges are masks."""

from kernels.lessons.gallery.nki import RAGGED, summed
from kernels.machines.neuron.api import beta1_nki as nki
from kernels.machines.neuron.api import beta1_nl as nl
from kernels.proof.workload import Workload


@nki.jit
def add_masked(x, y, fault=None):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(f)[None, :]
    for tile in nl.affine_range((rows + 127) // 128):
        i_p = 128 * tile + nl.arange(128)[:, None]
        inside = i_p < rows
        total = nl.load(x[i_p, i_f], mask=inside) + nl.load(y[i_p, i_f], mask=inside)
        nl.store(z[i_p, i_f], total, mask=None if fault else inside)
    return z


nki_unmasked_store = summed(
    (-1, 8),
    title="Beta 1: the store has lost its mask",
    says="out of bounds",
    cause="The load leaves out the rows that are not there, the store does not. It writes what "
    "a mask had left out, behind the end of the tensor.",
    lesson="A mask belongs to an instruction, not to a tile. Each access of HBM needs its own.",
    workloads=(Workload("whole", {"n": 2048}), *RAGGED),
)(add_masked)


@summed(
    (-1, 8),
    fault=None,
    right=add_masked,
    title="Beta 1: min() of a loop index",
    caught_by="compile",
    says="of the index of nl.affine_range",
    cause="Beta 1 traces the body of a loop once, with an index that stands for all its values. "
    "Python's min has to decide at once, and cannot.",
    lesson="In beta 1 the ragged edge is a mask. In modern NKI loops are unrolled, and it is "
    "min().",
    workloads=RAGGED,
)
@nki.jit
def nki_traced_index(x, y):
    """[rows, f] twice → [rows, f]."""
    rows, f = x.shape
    z = nl.ndarray((rows, f), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(f)[None, :]
    for tile in nl.affine_range((rows + 127) // 128):
        i_p = 128 * tile + nl.arange(min(128, rows - 128 * tile))[:, None]
        total = nl.load(x[i_p, i_f]) + nl.load(y[i_p, i_f])
        nl.store(z[i_p, i_f], total)
    return z
