"""A copy into VMEM that is used before it has arrived."""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The copy is used before it has arrived",
    operator="add_vectors",
    caught_by="simulate",
    says="race",
    cause="start() only begins a copy. Until wait() returns, the buffer holds what it held before.",
    lesson="interpret=True copies at once. The simulator delivers only when waited for.",
    workloads=(Workload("one_tile", {"n": 1024}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; y stays in HBM and is copied by hand."""

    def body(x_ref, y_hbm_ref, o_ref, y_ref, arrived):
        copy = pltpu.make_async_copy(y_hbm_ref, y_ref, arrived)
        copy.start()
        if repaired:
            copy.wait()
        o_ref[...] = x_ref[...] + y_ref[...]
        if not repaired:
            copy.wait()

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM(y.shape, y.dtype), pltpu.SemaphoreType.DMA],
        interpret=interpret,
    )(x, y)
