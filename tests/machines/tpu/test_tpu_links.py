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


class TestEstimates:
    def estimate(self, implementation, chip, devices=4):
        x = jax.ShapeDtypeStruct((devices * 4096, 1024), jnp.bfloat16)  # 8 MiB a device
        ring = cut("all_gather", "x", (P("x"), P("x")), implementation=implementation)
        return tpu.estimate(ring[0], x, chip=chip, mesh={"x": devices}, **ring[1])

    @pytest.mark.parametrize("devices", [4, 16])
    def test_both_directions_of_a_link_halve_the_time(self, devices):
        one, both = (kernel_of(self.estimate(n, "v5e", devices)) for n in ("ring", "pallas"))
        assert one.bound == both.bound == "link" and one.cycles > 1.8 * both.cycles
        carried = (devices - 1) * (8 << 20) / 45e9 * 1.5e9  # at the published rate
        assert carried < one.cycles < carried / 0.9

    def test_what_nobody_published_is_told(self):
        assert "no measurement of this kind" in self.estimate("ring", "v6e").band_text
        assert any("nobody published" in note for note in self.estimate("ring", "v5e").notes)
        with pytest.raises(tpu.TpuCompileError, match="nobody published what the links of a v7x"):
            self.estimate("ring", "v7x")

    def test_the_schedule_is_that_of_each_chip(self):
        names = ("x", "y")
        function, specs = cut("all_gather", names, (P(names), P(names)))
        x = jax.ShapeDtypeStruct((8 * 4096, 1024), jnp.bfloat16)
        schedule = tpu.schedule(function, x, mesh={"x": 2, "y": 4}, **specs)
        assert len(schedule.kernels) >= 2  # a ring along each axis


@pytest.mark.parametrize(("devices", "links", "most"), [(2, 1, 1.3), (4, 2, 1.2)])
def test_sums_that_take_longer_than_the_product_are_waited_for(devices, links, most):
    """2048 rows of a product of 8192 × 8192 in bfloat16 on each chip, beside what links carry."""
    x, w = (jax.ShapeDtypeStruct((n, 8192), jnp.bfloat16) for n in (2048 * devices, 8192))
    bytes_per_cycle = links * 0.95 * 45e9 / tpu.CHIPS["v5e"].clock_hz
    transfer = (devices - 1) * 2048 * 8192 * 4 / bytes_per_cycle
    function, cuts = cut("matmul_reduce_scatter", "x", ((P(None, "x"), P("x")), P("x")))
    kernel = kernel_of(tpu.estimate(function, x, w, chip="v5e", mesh={"x": devices}, **cuts))
    assert kernel.bound == "link" and transfer < kernel.cycles < most * transfer


RINGS, ALONG_ONE = ("all_gather", "reduce_scatter"), ("all_to_all", "ring_attention")
ALL = (*RINGS, "all_gather_matmul", "matmul_reduce_scatter", *ALONG_ONE)


@pytest.mark.parametrize(
    ("chip", "mesh", "operators"),
    [
        ("v6e", {"x": 2, "y": 4}, RINGS),
        ("v7x", {"x": 2, "y": 4}, RINGS),
        ("v5e", {"x": 16, "y": 16}, ALL),
        ("v5p", {"x": 16, "y": 16}, RINGS),
    ],
    ids=str,
)
def test_it_compiles_for_8_to_256_chips(chip, mesh, operators):
    array = jax.ShapeDtypeStruct
    parts, (*_, last) = mesh["x"] ** 2, mesh
    x, w = (array(shape, jnp.bfloat16) for shape in ((256 * 256 * 8, 256), (256, 512)))
    blocks, sizes = array((parts, 64, 128), jnp.bfloat16), array((parts,), jnp.int32)
    q, tokens = array((1, 2, 8192, 128), jnp.bfloat16), P(None, None, last)
    for name in operators:
        names, arrays, specs = tuple(mesh), [x], (P(tuple(mesh)), P(tuple(mesh)))
        if "matmul" in name:
            arrays, specs = [x, w], ((P(names), P()), P(names))
        elif name == "all_to_all":
            names, arrays, specs = "x", [blocks, sizes], (P("x"), P("x"))
        elif name == "ring_attention":
            names, arrays, specs = last, [q, q, q], (tokens, tokens)
        function, cuts = cut(name, names, specs)
        run = tpu.compile(function, *arrays, chip=chip, mesh=mesh, **cuts).module.run
        assert sum(i.is_kernel for i in run) == (1 if name in ALONG_ONE else len(mesh))
