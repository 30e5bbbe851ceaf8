"""A sum over tiles in PSUM of which only the last tile is left."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import run
from kernels.machines.neuron.api import nisa, nki, nl
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import Workload

BUG = Bug(
    title="Every product overwrites the sum in PSUM",
    operator="matmul",
    caught_by="interpret",
    says="allowed",
    cause="accumulate=False overwrites, and it is said of every tile of the contraction: the last "
    "one is all that is left.",
    lesson="The first product of a sum overwrites PSUM and the others add to it. That is what "
    "nc_matmul does when nobody says otherwise. One tile of the contraction hides the mistake.",
    workloads=(
        Workload("one_tile", {"m": 64, "k": 128, "n": 96}, why="nothing to add up"),
        Workload("two_tiles", {"m": 64, "k": 256, "n": 96}),
    ),
    backend=NKI,
)


@nki.jit
def product(xt, y, repaired):
    """[k, m], [k, n] → [m, n]; k a multiple of 128."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    for tile in range(k // 128):
        a = nl.ndarray((128, m), dtype=xt.dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, n), dtype=y.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=xt[tile * 128 : (tile + 1) * 128, :])
        nisa.dma_copy(dst=b, src=y[tile * 128 : (tile + 1) * 128, :])
        accumulate = None if repaired else False
        nisa.nc_matmul(dst=total, stationary=a, moving=b, accumulate=accumulate)
    c = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=c, src=total)
    nisa.dma_copy(dst=z, src=c)
    return z


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; m at most 128, n at most 512, k a multiple of 128."""
    return run(product, x.T, y, repaired, interpret=interpret)
