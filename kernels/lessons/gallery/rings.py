"""Wrong rings: one gather by remote DMA, in one direction, with a fault of each kind, and a sum."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.pallas_tpu_mesh import IN_LESSONS_MESH
from kernels.proof.workload import Workload

MESH = pl.DeviceIdType.MESH
FOUR = Workload("four", {"devices": 4, "rows": 8, "columns": 128})
# In a shorter ring, the neighbour's signal comes too late to pass for another's.
SIX = Workload("six", {"devices": 6, "rows": 8, "columns": 128})


def ring(x, axis_name, *, interpret, fault, repaired=False):
    """[rows, columns] → [devices · rows, columns]; what arrives is kept in one of two slots, from
    which it is sent on. Right when repaired; else it has the fault of that name."""
    wrong = None if repaired else fault
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
        neighbours = (right,) if wrong == "barrier" else (left, right)

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
                device_id=lax.min(me + 1, n - 1) if wrong == "wrap" else right,
                device_id_type=MESH,
            )
            if step and wrong == "collective_id":
                meet()
            elif step and wrong != "reused_slot":
                pl.semaphore_wait(free, 1)
            hop.start()
            hop.wait_send()
            if step < n - 2 and wrong not in ("reused_slot", "collective_id"):
                pl.semaphore_signal(free, 1, device_id=left, device_id_type=MESH)
            if wrong == "wrong_semaphore":
                pltpu.make_async_copy(x_ref, slots_ref.at[then], arrived.at[now]).wait()
            elif wrong != "no_wait":
                hop.wait_recv()
            whose = lax.rem(me - step - 1 + (wrong != "negative") * n, n)
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


def ring_sum(x, axis_name, *, interpret, repaired=False):
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


def _ring(fault, title, *others, workload=FOUR):
    """others: where it is caught, what is said, the cause and the lesson."""
    kernel = IN_LESSONS_MESH.spread(functools.partial(ring, fault=fault))
    facts = "all_gather", *others, (workload,)
    return Bug(kernel, title, *facts, backend=IN_LESSONS_MESH, shown=ring)


ring_with_half_a_barrier = _ring(
    "barrier",
    "a barrier with the wrong neighbour",
    "simulate",
    "before device",
    "a device hears that its left neighbour has entered the kernel, and writes into its right one, "
    "which may still use that memory for something else",
    "a sender has to hear from its receiver; signal both neighbours, and wait for both",
)
ring_without_wait = _ring(
    "no_wait",
    "a message that nobody waits for",
    "simulate",
    "never waited for|nobody waits for",
    "the receiver reads before it knows that the message is there; mostly it is",
    "a device waits twice: for its own message to leave, and for the one that it receives",
)
ring_with_reused_slot = _ring(
    "reused_slot",
    "a slot written again while it is sent on",
    "simulate",
    "race",
    "a fast neighbour is two steps ahead, and its message overwrites what hasn't been sent on yet",
    "two slots need a semaphore back to the sender that says which is free",
)
ring_wrong_semaphore = _ring(
    "wrong_semaphore",
    "a wait for the other slot's semaphore",
    "interpret",
    "deadlock",
    "the message raises one semaphore and the receiver waits for the other one of the pair",
    "the receiver waits for the semaphore that the sender names as recv_sem; a cycle of waits is a "
    "deadlock",
)
ring_wrong_wrap = _ring(
    "wrap",
    "the last device sends to itself",
    "interpret",
    "deadlock",
    "the neighbour of the last device is the first: me + 1 is clamped where it has to wrap",
    "neighbours are taken modulo the devices along the axis",
)
ring_collective_id_twice = _ring(
    "collective_id",
    "a collective_id used twice",
    "simulate",
    "race",
    "every step meets at the same barrier: a fast neighbour's signal of the next step is taken for "
    "one of the slow neighbour, whose slot is then overwritten while it is being sent on",
    "a barrier of neighbours serves once; what comes after it needs a semaphore for each neighbour",
    workload=SIX,
)
ring_negative_block = _ring(
    "negative",
    "a block's number below zero",
    "interpret",
    "AssertionError",
    "lax.rem(-1, n) is -1, so what came across the ring's end is written before the result",
    "lax.rem takes the sign of its first argument: add n before",
)
ring_rounded_sums = Bug(
    IN_LESSONS_MESH.spread(ring_sum),
    title="sums that travel in bfloat16",
    operator="reduce_scatter",
    caught_by="interpret",
    says="off",
    cause="the sum is rounded to 8 bits on its way to every device but the first",
    lesson="in bfloat16 a short ring hides it: the budget allows a rounding of each term, of which "
    "four devices take 60 %; of 16 it may take more than all. Prove each dtype by itself",
    workloads=(replace(FOUR, name="bf16", dtype="bfloat16"), FOUR),
    backend=IN_LESSONS_MESH,
    shown=ring_sum,
)
