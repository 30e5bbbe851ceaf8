"""Pallas for several TPUs, inside jax.shard_map: simulated here, and compiled for slices.

A job's arrays are whole: their first dimension is the devices', and each device gets its part of it
and the name of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Job, Refused, Simulated
from kernels.proof.backends.pallas_tpu import FEW, _PallasTpu
from kernels.proof.backends.xla_mesh import AXIS


class _PallasMesh(_PallasTpu):
    """In a child process with as many devices; in step and unwatched, or in an order drawn."""

    name = "TPU mesh"

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        def whole(*arrays: Any, **options: Any) -> Any:
            part = lambda *parts: function(*(p[0] for p in parts), AXIS, **options)[None]
            spec = jax.sharding.PartitionSpec(AXIS)
            mesh = jax.sharding.get_abstract_mesh()
            if mesh.empty:  # where only shapes are asked for
                auto = (jax.sharding.AxisType.Auto,)
                mesh = jax.sharding.AbstractMesh((arrays[0].shape[0],), (AXIS,), auto)
            cut = jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
            return cut(*arrays)

        return whole

    def interpret(self, job: Job) -> Any:
        function, arrays = jax_arrays.programs(job, interpret=False)[0]
        return self._simulated(function, arrays, None).result

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        function, arrays = jax_arrays.programs(job, interpret=False)[1]
        run = self._simulated(function, [cotangents[0], *arrays[1:]], None)
        return run.result[-len(job.wanted) :]

    def simulate(self, job: Job, order: int, watched: bool = True) -> Simulated:
        function, arrays = jax_arrays.programs(job, interpret=False)[0]
        run = self._simulated(function, arrays, order)
        if run.races:
            raise Refused(f"race: {run.races[0]}")
        return Simulated(run.result)

    def _simulated(self, function: Any, arrays: Sequence[Any], seed: int | None) -> Any:
        from kernels.machines.tpu.simulator import SimulationError, simulate

        try:
            return simulate(function, *arrays, mesh=self.cut(arrays)["mesh"], seed=seed)
        except SimulationError as error:
            raise Refused(str(error)) from error

    def cut(self, arrays: Sequence[Any]) -> dict[str, Any]:
        import jax

        spec = jax.sharding.PartitionSpec(AXIS)
        return {"mesh": {AXIS: arrays[0].shape[0]}, "in_specs": spec, "out_specs": spec}

    def _look_at(self, program: Any) -> None:
        if math.prod(dict(program.mesh).values()) > 1:  # a ring of one needs no kernel
            super()._look_at(program)

    def _no_machine(self, device: str) -> str:
        return "needs several TPUs"


PALLAS_TPU_MESH = _PallasMesh()
IN_LESSONS_MESH = _PallasMesh(FEW)
