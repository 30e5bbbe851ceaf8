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
    Workload("whole", {"n": 2048}), *RAGGED, shape=(-1, 8), fault="nki_unmasked_store"
)(add_masked)


@summed(*RAGGED, shape=(-1, 8), fault=None, right=add_masked)
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
