"""Wrong rings: one gather by remote DMA, in one direction, with a fault of each kind, and a sum."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family
from kernels.proof.backends.pallas_tpu_mesh import IN_LESSONS_MESH
from kernels.proof.workload import Workload

MESH = pl.DeviceIdType.MESH
FOUR = Workload("four", {"devices": 4, "rows": 8, "columns": 128})
# In a shorter ring, the neighbour's signal comes too late to pass for another's.
SIX = Workload("six", {"devices": 6, "rows": 8, "columns": 128})


def ring(x, axis_name, *, interpret, fault):
    """[rows, columns] → [devices · rows, columns]; what arrives is kept in one of two slots, from
    which it is sent on. Right when repaired; else it has the fault of that name."""
    n, (rows, columns) = lax.axis_size(axis_name), x.shape

    def body(x_ref, o_ref, slots_ref, copied, sent, arrived, free):
        # slots_ref [2, rows, columns]; copied: for copies on this device; sent and arrived: one for
        # each slot; free: the right neighbour's slot may be written
        me = lax.axis_index(axis_name)
        left, right = lax.rem(me + n - 1, n), lax.rem(me + 1, n)

        def copy(source, target):
            local = pltpu.make_async_copy(source, target, copied)
            local.start()
            local.wait()

        barrier = pltpu.get_barrier_semaphore()
        neighbours = (right,) if fault == "ring_with_half_a_barrier" else (left, right)

        def meet():
            for neighbour in neighbours:
                pl.semaphore_signal(barrier, 1, device_id=neighbour, device_id_type=MESH)
            pl.semaphore_wait(barrier, len(neighbours))

        meet()
        copy(x_ref, o_ref.at[me])
        copy(x_ref, slots_ref.at[0])
        for step in range(n - 1):
            now, then = step % 2, (step + 1) % 2
            hop = pltpu.make_async_remote_copy(
                src_ref=slots_ref.at[now],
                dst_ref=slots_ref.at[then],
                send_sem=sent.at[now],
                recv_sem=arrived.at[then],
                device_id=lax.min(me + 1, n - 1) if fault == "ring_wrong_wrap" else right,
                device_id_type=MESH,
            )
            if step and fault == "ring_collective_id_twice":
                meet()
            elif step and fault != "ring_with_reused_slot":
                pl.semaphore_wait(free, 1)
            hop.start()
            hop.wait_send()
            if step < n - 2 and fault not in ("ring_with_reused_slot", "ring_collective_id_twice"):
                pl.semaphore_signal(free, 1, device_id=left, device_id_type=MESH)
            if fault == "ring_wrong_semaphore":
                pltpu.make_async_copy(x_ref, slots_ref.at[then], arrived.at[now]).wait()
            elif fault != "ring_without_wait":
                hop.wait_recv()
            whose = lax.rem(me - step - 1 + (fault != "ring_negative_block") * n, n)
            copy(slots_ref.at[then], o_ref.at[whose])

    gathered = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, rows, columns), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[
            pltpu.VMEM((2, rows, columns), x.dtype),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.REGULAR,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        interpret=interpret,
    )(x)
    return gathered.reshape(n * rows, columns)


_faulty = family(ring, FOUR, backend=IN_LESSONS_MESH)

ring_with_half_a_barrier = _faulty("ring_with_half_a_barrier")
ring_without_wait = _faulty("ring_without_wait")
ring_with_reused_slot = _faulty("ring_with_reused_slot")
ring_wrong_semaphore = _faulty("ring_wrong_semaphore")
ring_wrong_wrap = _faulty("ring_wrong_wrap")
ring_collective_id_twice = _faulty("ring_collective_id_twice", SIX)
ring_negative_block = _faulty("ring_negative_block")


@bug(replace(FOUR, name="bf16", dtype="bfloat16"), FOUR, backend=IN_LESSONS_MESH)
def ring_rounded_sums(x, axis_name, *, interpret, repaired=False):
    """[devices · rows, columns] of each → the sum of this device's rows, which travels to the
    right; in float32 when repaired."""
    n, dtype = lax.axis_size(axis_name), jnp.float32 if repaired else jnp.bfloat16
    rows, columns = x.shape[0] // n, x.shape[1]

    def body(x_ref, o_ref, sums_ref, sent, arrived):
        # x_ref [n, rows, columns], sums_ref [n, rows, columns]: a place for each step
        me = lax.axis_index(axis_name)
        left, right = lax.rem(me + n - 1, n), lax.rem(me + 1, n)
        barrier = pltpu.get_barrier_semaphore()
        for neighbour in (left, right):
            pl.semaphore_signal(barrier, 1, device_id=neighbour, device_id_type=MESH)
        pl.semaphore_wait(barrier, 2)
        sums_ref[0] = x_ref[left].astype(dtype)
        for step in range(n - 1):
            hop = pltpu.make_async_remote_copy(
                src_ref=sums_ref.at[step],
                dst_ref=sums_ref.at[step + 1],
                send_sem=sent.at[step],
                recv_sem=arrived.at[step],
                device_id=right,
                device_id_type=MESH,
            )
            hop.start()
            hop.wait()
            sums_ref[step + 1] += x_ref[lax.rem(me + 2 * n - step - 2, n)].astype(dtype)
        o_ref[...] = sums_ref[n - 1].astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((rows, columns), x.dtype),
        scratch_shapes=[
            pltpu.VMEM((n, rows, columns), dtype),
            *[pltpu.SemaphoreType.DMA((n - 1,))] * 2,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        interpret=interpret,
    )(x.reshape(n, rows, columns))
