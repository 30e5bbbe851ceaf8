"""Kernels that reach other chips: compiled for meshes, and estimated by what links carry."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from kernels import collectives, tpu

pytestmark = pytest.mark.libtpu


def cut(name, names, specs, **options):
    """An operator of the collectives as a function of whole arrays; how they are cut."""
    local = lambda *arrays: getattr(collectives, name)(*arrays, names, **options)
    cuts = {"in_specs": specs[0], "out_specs": specs[1]}
    return lambda *arrays: jax.shard_map(local, **cuts, check_vma=False)(*arrays), cuts


def kernels_of(compiled):
    return [i.is_kernel for i in compiled.module.run].count(True)


class TestEstimates:
    X = jax.ShapeDtypeStruct((4 * 4096, 1024), jnp.bfloat16)  # 8 MiB a device

    def estimate(self, implementation, chip):
        ring = cut("all_gather", "x", (P("x"), P("x")), implementation=implementation)
        return tpu.estimate(ring[0], self.X, chip=chip, mesh={"x": 4}, **ring[1])

    def test_what_nobody_published_is_told(self):
        assert "no measurement of this kind" in self.estimate("ring", "v6e").band_text
        assert any("nobody published" in note for note in self.estimate("ring", "v5e").notes)
        with pytest.raises(tpu.TpuCompileError, match="nobody published what the links of a v7x"):
            self.estimate("ring", "v7x")

    def test_the_schedule_is_that_of_each_chip(self):
        names = ("x", "y")
        function, specs = cut("all_gather", names, (P(names), P(names)))
        schedule = tpu.schedule(function, self.X, mesh={"x": 2, "y": 4}, **specs)
        assert len(schedule.kernels) >= 2  # a ring along each axis

    @pytest.mark.parametrize(
        ("chip", "mesh"),
        [
            ("v5e", {"x": 4}),
            ("v6e", {"x": 2, "y": 4}),
            ("v7x", {"x": 2, "y": 4}),
            ("v5e", {"x": 16, "y": 16}),
            ("v5p", {"x": 16, "y": 16}),
        ],
        ids=str,
    )
    def test_it_compiles_for_4_to_256_chips(self, chip, mesh):
        names = tuple(mesh)
        x = jax.ShapeDtypeStruct((256 * 256 * 8, 128), jnp.bfloat16)
        for name in ("all_gather", "reduce_scatter"):
            function, specs = cut(name, names, (P(names), P(names)))
            program = tpu.compile(function, x, chip=chip, mesh=mesh, in_specs=specs["in_specs"])
            assert kernels_of(program) == len(mesh)


class TestProducts:
    """8192 × 8192 × 8192 in bfloat16 on four chips, what the links carry beside the product."""

    X = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)

    def test_sums_that_take_longer_than_the_product_are_waited_for(self):
        transfer = 3 * 2048 * 8192 * 4 / 2 / (0.95 * 45e9) * tpu.CHIPS["v5e"].clock_hz
        function, cuts = cut("matmul_reduce_scatter", "x", ((P(None, "x"), P("x")), P("x")))
        estimate = tpu.estimate(function, self.X, self.X, chip="v5e", mesh={"x": 4}, **cuts)
        kernel = next(op for op in estimate.ops if op.kind == "kernel")
        assert kernel.bound == "link" and transfer < kernel.cycles < 1.25 * transfer

    @pytest.mark.parametrize(("chip", "mesh"), [("v6e", {"x": 8}), ("v5e", {"x": 16, "y": 16})])
    def test_it_compiles_for_8_and_256_chips(self, chip, mesh):
        names = tuple(mesh)
        x = jax.ShapeDtypeStruct((256 * 256 * 8, 256), jnp.bfloat16)
        w = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
        for name in ("all_gather_matmul", "matmul_reduce_scatter"):
            function, specs = cut(name, names, ((P(names), P()), P(names)))
            program = tpu.compile(function, x, w, chip=chip, mesh=mesh, **specs)
            assert kernels_of(program) == len(mesh)
