"""Pallas for several TPUs, inside jax.shard_map: simulated here, and compiled for slices.

A job's arrays are whole: their first dimension is the devices', and each device gets its part of it
and the name of the axis. Where a job's options say `torus`, the devices stand in so many rows, and
each gets the names of both axes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Job, Refused, Simulated, Skipped
from kernels.proof.backends.pallas_tpu import FEW, Brought, _PallasTpu
from kernels.proof.backends.xla_mesh import AXIS

ROWS_AND_COLUMNS = AXIS, "y"  # of a torus
MOST = 16  # devices of a mesh that is simulated: each takes a thread, and its turn


def over(
    function: Callable[..., Any], mesh: Mapping[str, int], in_specs: Any, out_specs: Any
) -> Callable[..., Any]:
    """A function of one device's arrays as one of whole arrays, inside jax.shard_map."""

    def whole(*arrays: Any) -> Any:
        import jax

        devices = jax.sharding.get_abstract_mesh()
        if devices.empty:  # where only shapes are asked for
            kinds = (jax.sharding.AxisType.Auto,) * len(mesh)
            devices = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh), kinds)
        specs = {"in_specs": in_specs, "out_specs": out_specs}
        return jax.shard_map(function, mesh=devices, **specs, check_vma=False)(*arrays)

    return whole


class _PallasMesh(_PallasTpu):
    """In a child process with as many devices; in step and unwatched, or in an order drawn."""

    name = "TPU mesh"
    elsewhere = "needs several TPUs"

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def whole(*arrays: Any, torus: int = 1, **options: Any) -> Any:
            axes = ROWS_AND_COLUMNS if torus > 1 else AXIS
            part = lambda *parts: function(*(p[0] for p in parts), axes, **options)[None]
            return over(part, **self.cut(arrays, torus=torus))(*arrays)

        return whole

    def interpret(self, job: Job) -> Any:
        alone = replace(job, wanted=())  # or else the call is traced for its gradients too
        function, arrays = jax_arrays.programs(alone, **self._interpreting(False))[0]
        return self._simulated(function, arrays, None, job.options).result

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        function, arrays = jax_arrays.programs(job, **self._interpreting(False))[1]
        back = tuple(cotangents) if isinstance(arrays[0], tuple) else cotangents[0]
        run = self._simulated(function, [back, *arrays[1:]], None, job.options)
        return run.result[-len(job.wanted) :]

    def simulate(self, job: Job, order: int, watched: bool = True) -> Simulated:
        function, arrays = jax_arrays.programs(job, **self._interpreting(False))[0]
        run = self._simulated(function, arrays, order, job.options)
        if run.races:
            raise Refused(f"race: {run.races[0]}")
        return Simulated(run.result)

    def _simulated(
        self, function: Any, arrays: Sequence[Any], seed: int | None, options: Mapping[str, Any]
    ) -> Any:
        from kernels.machines.tpu.simulator import SimulationError, simulate

        try:
            mesh = self.cut(arrays, **options)["mesh"]
            return simulate(function, *arrays, mesh=mesh, seed=seed)
        except SimulationError as error:
            if error.gap:
                words = f"JAX's simulation of a TPU does not know all of it: {error}"
                raise Skipped(words) from error
            raise Refused(str(error)) from error

    def cut(self, arrays: Sequence[Any], *, torus: int = 1, **options: Any) -> dict[str, Any]:
        import jax

        devices = arrays[0].shape[0]
        sizes = (torus, devices // torus) if torus > 1 else (devices,)
        mesh = dict(zip(ROWS_AND_COLUMNS, sizes, strict=False))
        spec = jax.sharding.PartitionSpec(tuple(mesh))
        return {"mesh": mesh, "in_specs": spec, "out_specs": spec}

    def _look_at(self, program: Any) -> None:
        if math.prod(dict(program.mesh).values()) > 1:  # a ring of one needs no kernel
            super()._look_at(program)


class BroughtToMesh(_PallasMesh, Brought):
    """A function of whole arrays that somebody brought; it spreads them over a mesh by itself.

    Args:
        chips: that it is compiled for.
        cut: how, as kernels.tpu.compile takes it.
    """

    orders = 12  # a race may show in a third of them

    def __init__(self, chips: Sequence[str], cut: Mapping[str, Any]) -> None:
        super().__init__(chips)
        self._cut = dict(cut)

    def cut(self, arrays: Sequence[Any], **options: Any) -> dict[str, Any]:
        if not isinstance(arrays[0], tuple):
            return self._cut
        # The cotangents come first; what is pulled back is cut as the partitioner likes.
        specs = (self._cut["out_specs"], *self._cut["in_specs"])
        return self._cut | {"in_specs": specs, "out_specs": None}

    def _simulated(
        self, function: Any, arrays: Sequence[Any], seed: int | None, options: Mapping[str, Any]
    ) -> Any:
        if (devices := math.prod(self._cut["mesh"].values())) > MOST:
            raise Skipped(f"{devices} devices are more than the {MOST} that are simulated")
        return super()._simulated(function, arrays, seed, options)


PALLAS_TPU_MESH = _PallasMesh()
IN_LESSONS_MESH = _PallasMesh(FEW)
