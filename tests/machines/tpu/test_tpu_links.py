"""Kernels that reach other chips: compiled for meshes, and estimated by what links carry."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from kernels import collectives, tpu

pytestmark = pytest.mark.libtpu


def cut(name, names, **options):
    """An operator of the collectives as a function of a whole array."""
    local = lambda x: getattr(collectives, name)(x, names, **options)
    specs = {"in_specs": P(names), "out_specs": P(names)}
    return lambda x: jax.shard_map(local, **specs, check_vma=False)(x)


class TestEstimates:
    X = jax.ShapeDtypeStruct((4 * 4096, 1024), jnp.bfloat16)  # 8 MiB a device

    def estimate(self, implementation, chip, name="all_gather"):
        function = cut(name, "x", implementation=implementation)
        specs = {"in_specs": P("x"), "out_specs": P("x")}
        return tpu.estimate(function, self.X, chip=chip, mesh={"x": 4}, **specs)

    def kernel(self, *asked):
        return next(op for op in self.estimate(*asked).ops if op.kind == "kernel")

    def test_both_directions_of_a_link_halve_the_time(self):
        one, both = (self.kernel(name, "v5e") for name in ("ring", "pallas"))
        assert one.bound == both.bound == "link"
        assert one.cycles > 1.8 * both.cycles
        carried = 3 * 4096 * 1024 * 2 / 45e9 * 1.5e9  # three times 8 MiB at the published rate
        assert carried < one.cycles < carried / 0.9

    def test_what_nobody_published_is_told(self):
        assert "no measurement of this kind" in self.estimate("ring", "v6e").band_text
        assert any("nobody published" in note for note in self.estimate("ring", "v5e").notes)
        with pytest.raises(tpu.TpuCompileError, match="nobody published what the links of a v7x"):
            self.estimate("ring", "v7x")

    def test_the_schedule_is_that_of_each_chip(self):
        specs = {"mesh": {"x": 2, "y": 4}, "in_specs": P(("x", "y")), "out_specs": P(("x", "y"))}
        schedule = tpu.schedule(cut("all_gather", ("x", "y")), self.X, **specs)
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
        for name in ("all_gather", "reduce_scatter"):
            x = jax.ShapeDtypeStruct((256 * 256 * 8, 128), jnp.bfloat16)
            program = tpu.compile(cut(name, names), x, chip=chip, mesh=mesh, in_specs=P(names))
            assert [i.is_kernel for i in program.module.run].count(True) == len(mesh)
