"""Estimates without a compiler: real calls, and cycles that a test plants."""

import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from kernels.machines.compat.libtpu import Bundle
from kernels.machines.pallas import calls
from kernels.machines.tpu import CHIPS, KernelSchedule, OpEstimate, Schedule
from kernels.matmul import BlockSizes, matmul


def blocked(m, k, n, *block, dtype=jnp.bfloat16):
    shapes = [jax.ShapeDtypeStruct(s, dtype) for s in ((m, k), (k, n))]
    return calls(functools.partial(matmul, block=BlockSizes(*block), interpret=False), *shapes)[0]


def kernel(call, cycles, **more):
    """The estimate of a kernel each of whose steps takes `cycles`."""
    total = cycles * math.prod(call.grid)
    more = {"model_cycles": total, "call": call, **more}
    return OpEstimate("matmul.1", "kernel", total, call.traffic, "a profile", "compute", **more)


def estimate(op, chip="v5e", schedules=()):
    """What the pictures read of an Estimate."""
    known = {"seconds": op.cycles / CHIPS[chip].clock_hz, "method": op.method}
    known |= {"band": None, "band_text": "no measurement of this kind"}
    schedule = Schedule(chip, tuple(schedules), "0")
    return SimpleNamespace(name="program", chip=chip, ops=(op,), schedule=schedule, **known)


def made_schedule(count=100, first=10, last=90):
    """A schedule whose MXU is full, and whose VPU is half full, in a loop from first to last."""
    slots, capacity = ("MXU", "VPU", "spill"), np.array([4, 2, 1])
    occupancy = np.zeros((count, 3), int)
    occupancy[first:last] = 4, 1, 0
    occupancy[first + 5] = 4, 2, 1
    inside = ("%1 = vmatmul.f32.mxu0 %v1", "%2 = vmatmul.f32.mxu1 %v2", "(%p1) %3 = vadd %v3, %v4")
    bundles = tuple(
        Bundle(i, "", int(first <= i < last), inside if first <= i < last else ())
        for i in range(count)
    )
    return KernelSchedule("matmul.1", bundles, slots, capacity, occupancy, None)
