"""The chips, programs cut over a mesh of them, and what the reader of HLO makes of these."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P
from refused import refuses

from kernels import tpu
from kernels.machines.tpu import CHIPS, chips, hlo, lower
from kernels.machines.tpu.export import abstract_device, export

DATA = Path(__file__).with_name("data")
A = jax.ShapeDtypeStruct((1024, 512), jnp.int8)
B = jax.ShapeDtypeStruct((512, 2048), jnp.bfloat16)


def f(a, b):
    return -((a @ b) * 0.125)


# Two devices of a v7x are a chip; seven of a v5e are a part of a slice.
@pytest.mark.parametrize(
    ("chip", "mesh", "name"), json.loads((DATA / "topologies.json").read_text())
)
def test_the_topology_holds_the_mesh(chip, mesh, name):
    assert chips.topology(chip, mesh) == name


@pytest.mark.parametrize("mesh", [{"x": 300}, {}, {"x": 0, "y": 4}, {"x": 2.0, "y": 2}])
def test_an_impossible_mesh_says_what_is_possible(mesh):
    with pytest.raises(ValueError, match=r"mesh is .*accepted: "):
        export(f, A, B, mesh=mesh)
    with pytest.raises(ValueError, match=r"makes 513 devices; accepted: at most 512"):
        chips.topology("v7x", {"x": 513})


test_specs_that_do_not_fit_are_named = refuses(
    lambda options: export(f, A, B, **options),
    ({"in_specs": P()}, "in_specs cut arrays over a mesh"),
    ({"mesh": {"x": 4}, "in_specs": (P("z"), P())}, "in_specs: .*z"),
    ({"mesh": {"x": 4}, "out_specs": P(("x", "x"))}, "out_specs: "),
    ({"mesh": {"x": 4}, "in_specs": ("x", P())}, "in_specs holds 'x'"),
)


@pytest.mark.libtpu
def test_without_specs_every_chip_has_everything():
    assert export(f, A, B).mesh == ()
    compiled = tpu.compile(f, A, B, mesh={"x": 4})
    assert compiled.mesh == (("x", 4),) and not hlo.parse(compiled.hlo).collectives
    assert compiled.memory.arguments == 1024 * 512 + 2 * 512 * 2048


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("{{0,1,2},{3,4,5}}", 3),
        ("[2,8]<=[16]", 8),
        ("mesh['a'=2,'b'=4] {'b'}", 4),
        ("mesh['a'=2,'b'=4] {'a','b'}", 8),
        ("", 1),
    ],
)
def test_group_sizes_in_every_spelling(groups, size):
    said = f"replica_groups={groups}, " if groups else ""
    (collective,) = hlo.parse(
        "ENTRY %main (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        f"  ROOT %r = f32[8]{{0}} all-reduce(%p), {said}to_apply=%add\n}}\n"
    ).collectives
    assert collective.group_size == size


# instruction → what it exchanges, and how many times its 96 bytes a chip sends
SENT = json.loads((DATA / "sent.json").read_text())


@pytest.mark.parametrize("instruction", SENT)
def test_what_each_chip_of_a_ring_sends(instruction):
    kind, share = SENT[instruction]
    groups = "replica_groups={{0,1,2}}"
    text = (
        "%inner (i: f32[3,8]) -> f32[3,8] {\n  %i = f32[3,8]{1,0:T(8,128)} parameter(0)\n"
        f"  ROOT %r = f32[3,8]{{1,0}} all-reduce(%i), {groups}, to_apply=%add\n}}\n\n"
        "ENTRY %main (p: f32[3,8]) -> f32[3,8] {\n  %p = f32[3,8]{1,0:T(8,128)} parameter(0)\n"
        f"  ROOT %root = {instruction.replace('{groups}', groups)}\n}}\n"
    )
    ((name, sent),) = hlo.parse(text).sent
    assert name == kind and sent == pytest.approx(share * 96)


@pytest.mark.libtpu
@pytest.mark.parametrize("chip", ["v5e", "v5p"])
def test_a_compiled_product_sends_what_its_cut_needs(chip):
    x, w = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((512, 256), (256, 1024)))
    cuts = {
        (P("x"), P("x"), P("x")): 3 / 4 * 2 * 256 * 1024,
        (P(None, "x"), P("x"), P()): 2 * 3 / 4 * 2 * 512 * 1024,
        (P(None, "x"), P("x"), P(None, "x")): 3 / 4 * 2 * 512 * 1024,
    }
    for (*specs, out), size in cuts.items():
        options = {"in_specs": tuple(specs), "out_specs": out, "executable": False}
        compiled = tpu.compile(jnp.matmul, x, w, chip=chip, mesh={"x": 4}, **options)
        sent = sum(sent for _, sent in hlo.parse(compiled.hlo).sent)
        assert size <= sent < 1.05 * size


def test_traced_hlo_reads_like_compiled_hlo():
    module = hlo.parse(jax.jit(f).lower(A, B).as_text("hlo"))
    assert [i.opcode for i in module.run] == ["convert", "dot", "broadcast", "multiply", "negate"]
    convert, dot = module.run[:2]
    assert dot.inputs[0] == convert.name and len(dot.operands) == 2


def test_a_listing_leaves_out_metadata_and_nothing_else():
    text = jax.jit(f).lower(A, B).compile().as_text()
    listing, module = hlo.listing(text), hlo.parse(text)
    assert "metadata" not in listing and "backend_config" not in listing
    entry = module.computations[module.entry]
    assert all(f"%{instruction.name} = " in listing for instruction in entry)
    assert listing.count("\n") == len(entry) + 1


@pytest.mark.parametrize("name", CHIPS)
def test_clock_and_mxus_give_the_peak_and_figures_have_sources(name):
    c = CHIPS[name]
    a_cycle = 2 * c.tensor_cores * c.mxus * c.mxu_size**2
    passes = {"v6e": 2, "v7x": 2}.get(name, 1)  # their MXUs take two bfloat16 operands a cycle
    assert c.clock_hz * a_cycle * passes == pytest.approx(c.bf16_flops, rel=0.01)
    assert c.int8_ops == (1 if name == "v7x" else 2) * c.bf16_flops  # that has float8 instead
    assert c.peak("int8") == c.int8_ops and c.peak("float32") == c.bf16_flops
    for field in ("clock_hz", "hbm_bytes_per_second", "bf16_flops", "vmem_bytes", "mxus"):
        assert len(c.source(field)) > 10
    with pytest.raises(ValueError, match="accepted"):
        c.source("colour")


@pytest.mark.parametrize("ask", [export, lower])
def test_an_unknown_chip_is_named(ask):
    with pytest.raises(ValueError, match="chip is 'v9'; accepted: v5e, v6e"):
        ask(abs, 1.0, chip="v9")


@pytest.mark.parametrize("name", CHIPS)
def test_jax_agrees(name):
    with abstract_device(name):
        info = pltpu.get_tpu_info()
    c = CHIPS[name]
    assert info.vmem_capacity_bytes == c.vmem_bytes and info.mxu_column_size == c.mxu_size
    assert info.bf16_ops_per_second * c.tensor_cores == pytest.approx(c.bf16_flops, rel=0.01)
    bytes_per_second = info.mem_bw_bytes_per_second * c.tensor_cores
    assert bytes_per_second == pytest.approx(c.hbm_bytes_per_second, rel=0.12)
