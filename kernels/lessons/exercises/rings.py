"""Exercises of the chapter "Rings"."""

import functools

import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.machines import tpu
from kernels.proof.backends.pallas_tpu_mesh import IN_LESSONS_MESH
from kernels.proof.judge import same
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

DMA, FREE = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
HBM, VMEM = (pl.BlockSpec(memory_space=space) for space in (pltpu.HBM, pltpu.VMEM))
SIZES = "devices rows columns"
CHUNKS = drawn("devices devices rows columns")  # of each device, one for each
ORDERS = 12  # of arrival, besides those of the ladder
FAST_CYCLES = 125_000  # of a sum of 2 MiB a device, four of them; one way takes some 220,000


def _launched(kernel, x, shape, scratch, out, interpret):
    params = pltpu.CompilerParams(collective_id=0, has_side_effects=True)
    options = {"compiler_params": params, "interpret": interpret, "name": "answer"}
    return launch(kernel, x, shape=shape, blocks=(HBM, out), scratch_shapes=scratch, **options)


def _on_ring(local):
    """A `call` of an exercise, of a function (kernel, x, interpret) of one device's part."""

    def call(kernel, x, *, interpret):
        part = lambda part, axis, interpret: local(kernel, part, interpret)
        return IN_LESSONS_MESH.spread(part)(x, interpret=interpret)

    return call


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
        lambda x: np.repeat(x[:1], len(x), 0),
        drawn(SIZES),
        cases(SIZES, four=(4, 8, 128), five=(5, 8, 256)),
        call=_on_ring(lambda kernel, x, on: _launched(kernel, x, x.shape, [DMA] * 3, HBM, on)),
    ),
    _exercise(
        "ring_slots",
        lambda x: np.repeat(x[None], len(x), 0),
        drawn(SIZES),
        cases(SIZES, four=(4, 8, 128), five=(5, 8, 128)),
        call=_on_ring(_slots),
    ),
    _exercise(
        "ring_largest",
        lambda x: x.max(0),
        CHUNKS,
        cases(SIZES, four=(4, 8, 128), three=(3, 16, 128)),
        call=_on_ring(_scatter),
    ),
    _exercise(
        "ring_fast",
        lambda x: x.sum(0),
        CHUNKS,
        cases(SIZES, four=(4, 16, 128), three=(3, 32, 128)),
        call=_on_ring(functools.partial(_scatter, ways=(2,))),
        magnitude=lambda x: abs(x).sum(0),
        bar=bars.cycles(FAST_CYCLES, 118_741, bars.at(devices=4, rows=512, columns=1024)),
    ),
)
