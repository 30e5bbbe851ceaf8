"""Exercises of the chapter "Rings"."""

import functools

import jax
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.machines import tpu
from kernels.proof.backends.pallas_tpu_mesh import IN_LESSONS_MESH
from kernels.proof.judge import same
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload, cases

DMA, FREE = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
HBM, VMEM = (pl.BlockSpec(memory_space=space) for space in (pltpu.HBM, pltpu.VMEM))
SIZES = "devices rows columns"
CHUNKS = drawn("devices devices rows columns")  # of each device, one for each
ORDERS = 12  # of arrival, besides those of the ladder
FAST_CYCLES = 125_000  # of a sum of 2 MiB a device, four of them; one way takes some 220,000


def _launched(kernel, x, shape, scratch, out, interpret):
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(shape, x.dtype),
        in_specs=[HBM],
        out_specs=out,
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        interpret=interpret,
        name="answer",
    )
    return call(x)


def _on_ring(local):
    """A `call` of an exercise, of a function (kernel, x, interpret) of one device's part."""

    def call(kernel, x, *, interpret):
        part = lambda part, axis, interpret: local(kernel, part, interpret)
        return IN_LESSONS_MESH.spread(part)(x, interpret=interpret)

    return call


def _pass_on(kernel, x, interpret):
    return _launched(kernel, x, x.shape, [DMA, DMA, DMA], HBM, interpret)


def _slots(kernel, x, interpret):
    scratch = [pltpu.VMEM((2, *x.shape), x.dtype), DMA, DMA((2,)), DMA((2,)), FREE]
    return _launched(kernel, x, (lax.axis_size("x"), *x.shape), scratch, HBM, interpret)


def _scatter(kernel, x, interpret, ways=()):
    # x [devices, rows, columns]; two ways: each has half of the rows, and semaphores of its own
    shape = (*ways, x.shape[1] // (ways or (1,))[0], x.shape[2])
    slots = pltpu.VMEM((*ways, 2, *shape[len(ways) :]), x.dtype)
    semaphores = [DMA(ways) if ways else DMA, DMA((*ways, 2)), DMA((*ways, 2))]
    scratch = [slots, pltpu.VMEM(shape, x.dtype), *semaphores, FREE(ways) if ways else FREE]
    return _launched(kernel, x, x.shape[1:], scratch, VMEM, interpret)


def _many_orders(programs):
    """Right in many orders of arrival, and the same in all: a race may take some luck to be met."""
    function, arrays = programs[0]
    run = functools.partial(tpu.simulate, function, *arrays, mesh={"x": len(arrays[0])})
    first = run(seed=None).result
    for seed in range(2, 2 + ORDERS):
        try:
            again = run(seed=seed)
        except tpu.SimulationError as error:
            raise Refused(str(error)) from error
        if again.races or not same(first, again.result):
            words = f"race: {again.races[0]}" if again.races else "another result"
            raise Refused(f"in one of {ORDERS} more orders of arrival, {words}")
    return f"right in {ORDERS} more orders of arrival"


_exercise = functools.partial(
    Exercise, rungs=("interpret", "simulate"), backend=IN_LESSONS_MESH, judge=_many_orders
)
EXERCISES = (
    _exercise(
        "ring_pass_on",
        "Write kernel(x_ref, o_ref, own, sent, arrived) for o = the x of device 0, on all devices, "
        "[rows, columns] in HBM, handed from neighbour to neighbour; three semaphores for copies.",
        lambda x: np.repeat(x[:1], len(x), 0),
        drawn(SIZES),
        cases(SIZES, four=(4, 8, 128), five=(5, 8, 256)),
        call=_on_ring(_pass_on),
        hint="Device 0 has nothing to wait for, and the last device has nobody to send to: "
        "pl.when. hop.wait() is hop.wait_send() and hop.wait_recv().",
    ),
    _exercise(
        "ring_slots",
        "Write kernel(x_ref, o_ref, slots_ref, own, sent, arrived, free) for o = the x of all "
        "devices, [devices, rows, columns]: what arrives is kept in one of two slots in VMEM, "
        "slots_ref [2, rows, columns], and sent on from there; sent and arrived [2], free a "
        "regular semaphore.",
        lambda x: np.repeat(x[None], len(x), 0),
        drawn(SIZES),
        cases(SIZES, four=(4, 8, 128), five=(5, 8, 128)),
        call=_on_ring(_slots),
        hint="Who may write into your slot, when is it empty again, and who tells the sender? As "
        "many signals as waits.",
    ),
    _exercise(
        "ring_largest",
        "Write kernel(x_ref, o_ref, slots_ref, mine_ref, own, sent, arrived, free) for o = the "
        "largest of chunk `me` over all devices, x_ref [devices, rows, columns] in HBM, o_ref "
        "[rows, columns] in VMEM, by a ring in which all messages go to the left.",
        lambda x: x.max(0),
        CHUNKS,
        cases(SIZES, four=(4, 8, 128), three=(3, 16, 128)),
        call=_on_ring(_scatter),
        hint="Chunk c has to end on device c after devices - 1 hops to the left: where does it "
        "begin? And which chunk comes from the right in a step?",
    ),
    _exercise(
        "ring_fast",
        "Write kernel(x_ref, o_ref, slots_ref, mine_ref, own, sent, arrived, free) for o = the sum "
        "of chunk `me` over all devices, x_ref [devices, rows, columns] in HBM, o_ref [rows, "
        "columns] in VMEM, slots_ref [2, 2, rows / 2, columns], mine_ref [2, rows / 2, columns], "
        "own [2], sent and arrived [2, 2], free [2]; for four devices and chunks of 512 × 1024 in "
        f"float32 it is estimated at {FAST_CYCLES:,} cycles or fewer on a v5e.",
        lambda x: x.sum(0),
        CHUNKS,
        cases(SIZES, four=(4, 16, 128), three=(3, 32, 128)),
        call=_on_ring(functools.partial(_scatter, ways=(2,))),
        magnitude=lambda x: abs(x).sum(0),
        bar=bars.cycles(
            FAST_CYCLES, 118_741, Workload("bar", {"devices": 4, "rows": 512, "columns": 1024})
        ),
        hint="Half of the rows go right, the other half left. Start both hops of a step before you "
        "wait for one of them.",
    ),
)
