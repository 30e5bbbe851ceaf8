"""Kernels that reach other chips: compiled for meshes, and estimated by what links carry."""

import functools

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


def on_rows(name, names, x, w):
    """A product over rows that are cut, of a whole w."""
    local = lambda x, w: getattr(collectives, name)(x, w, names)
    specs = {"in_specs": (P(names), P()), "out_specs": P(names)}
    return jax.shard_map(local, **specs, check_vma=False)(x, w)


class TestProducts:
    """8192 × 8192 × 8192 in bfloat16 on four chips, what the links carry beside the product."""

    X = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)
    ROWS, COLUMNS = P("x"), P(None, "x")

    def program(self, name, implementation="pallas"):
        rows, columns = self.ROWS, self.COLUMNS
        ins, out = ((rows, columns), columns) if "gather" in name else ((columns, rows), rows)
        operator = getattr(collectives, name)
        local = lambda x, w: operator(x, w, "x", implementation=implementation)
        specs = {"in_specs": ins, "out_specs": out}
        function = lambda x, w: jax.shard_map(local, **specs, check_vma=False)(x, w)
        return (function, self.X, self.X), {"chip": "v5e", "mesh": {"x": 4}, **specs}

    def kernel(self, name):
        arguments, options = self.program(name)
        return next(op for op in tpu.estimate(*arguments, **options).ops if op.kind == "kernel")

    def test_the_transfer_of_x_hides_behind_the_product(self):
        chip = tpu.CHIPS["v5e"]
        product = 2 * 8192**3 / 4 / chip.bf16_flops
        transfer = 3 * 2048 * 8192 * 2 / 2 / (0.95 * 45e9)
        ours = self.kernel("all_gather_matmul").cycles / chip.clock_hz
        assert max(product, transfer) < ours < 1.15 * max(product, transfer)
        # XLA gathers all of x before it multiplies: the copy has no start and no end beside it.
        arguments, options = self.program("all_gather_matmul", "xla")
        [gather] = tpu.compile(*arguments, **options).module.collectives
        assert gather.opcode == "all-gather" and ours < 0.65 * (transfer + product)

    def test_sums_that_take_longer_than_the_product_are_waited_for(self):
        transfer = 3 * 2048 * 8192 * 4 / 2 / (0.95 * 45e9) * tpu.CHIPS["v5e"].clock_hz
        kernel = self.kernel("matmul_reduce_scatter")
        assert kernel.bound == "link" and transfer < kernel.cycles < 1.25 * transfer

    @pytest.mark.parametrize(("chip", "mesh"), [("v6e", {"x": 8}), ("v5e", {"x": 16, "y": 16})])
    def test_it_compiles_for_8_and_256_chips(self, chip, mesh):
        names = tuple(mesh)
        for name in ("all_gather_matmul", "matmul_reduce_scatter"):
            function = functools.partial(on_rows, name, names)
            x = jax.ShapeDtypeStruct((256 * 256 * 8, 256), jnp.bfloat16)
            w = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
            specs = {"in_specs": (P(names), P()), "out_specs": P(names)}
            program = tpu.compile(function, x, w, chip=chip, mesh=mesh, **specs)
            assert [i.is_kernel for i in program.module.run].count(True) == len(mesh)
