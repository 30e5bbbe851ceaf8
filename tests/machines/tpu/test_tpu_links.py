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


def kernel_of(estimate):
    return next(op for op in estimate.ops if op.kind == "kernel")


def kernels_of(compiled):
    return [i.is_kernel for i in compiled.module.run].count(True)


class TestEstimates:
    X = jax.ShapeDtypeStruct((4 * 4096, 1024), jnp.bfloat16)  # 8 MiB a device

    def estimate(self, implementation, chip):
        ring = cut("all_gather", "x", (P("x"), P("x")), implementation=implementation)
        return tpu.estimate(ring[0], self.X, chip=chip, mesh={"x": 4}, **ring[1])

    def test_both_directions_of_a_link_halve_the_time(self):
        one, both = (kernel_of(self.estimate(name, "v5e")) for name in ("ring", "pallas"))
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
    ROWS, COLUMNS = P("x"), P(None, "x")

    def asked(self, name, implementation="pallas"):
        rows, columns = self.ROWS, self.COLUMNS
        specs = ((rows, columns), columns) if "gather" in name else ((columns, rows), rows)
        function, cuts = cut(name, "x", specs, implementation=implementation)
        return (function, self.X, self.X), {"chip": "v5e", "mesh": {"x": 4}, **cuts}

    def kernel(self, name):
        arguments, options = self.asked(name)
        return kernel_of(tpu.estimate(*arguments, **options))

    def test_the_transfer_of_x_hides_behind_the_product(self):
        chip = tpu.CHIPS["v5e"]
        product = 2 * 8192**3 / 4 / chip.bf16_flops
        transfer = 3 * 2048 * 8192 * 2 / 2 / (0.95 * 45e9)
        ours = self.kernel("all_gather_matmul").cycles / chip.clock_hz
        assert max(product, transfer) < ours < 1.15 * max(product, transfer)
        # XLA gathers all of x before it multiplies: the copy has no start and no end beside it.
        arguments, options = self.asked("all_gather_matmul", "xla")
        [gather] = tpu.compile(*arguments, **options).module.collectives
        assert gather.opcode == "all-gather" and ours < 0.65 * (transfer + product)

    def test_sums_that_take_longer_than_the_product_are_waited_for(self):
        transfer = 3 * 2048 * 8192 * 4 / 2 / (0.95 * 45e9) * tpu.CHIPS["v5e"].clock_hz
        kernel = self.kernel("matmul_reduce_scatter")
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
