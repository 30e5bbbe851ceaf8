"""Pictures are well-formed, say what they show, and change when the kernel does."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import boxes, words
from jax.experimental import pallas as pl
from player_samples import blocked, kinds

from kernels import pictures
from kernels.machines.neuron import CHIPS
from kernels.machines.pallas import calls
from kernels.machines.tpu import hlo, simulate
from kernels.vector import add_vectors

X = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)


def nothing(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, out_shape=X, grid=(0,), in_specs=[spec], out_specs=spec)(x)


CALLS = kinds() | {"empty": calls(nothing, X)[0], "long": blocked(128, 128, 128)}
FOUR = CALLS["four"]


@pytest.mark.parametrize("draw", [pictures.programs, pictures.traffic, pictures.memory])
@pytest.mark.parametrize("name", CALLS)
def test_every_picture_is_well_formed_and_inside_its_frame(draw, name):
    assert boxes(draw(CALLS[name]))


def test_the_four_programs_of_the_chapter():
    told = words(pictures.programs(FOUR))
    wanted = [f"program ({i}, {j}, 0)" for i in (0, 1) for j in (0, 1)]
    assert [w for w in told if w.startswith("program")] == wanted
    assert "x: input, float32 [1024, 1024] in blocks of [512, 1024]" in told
    assert "… and 500 more programs" in words(pictures.programs(CALLS["long"]))


def hatched(picture, colour):
    return len(re.findall(rf'fill="url\(#hatch-\w+-{colour}\)"', picture.svg))


def test_solid_where_a_block_moves_and_hatched_where_it_stays():
    picture = pictures.programs(FOUR)
    blue, orange = (c[1:] for c in pictures.COLOURS[:2])
    assert hatched(picture, blue) == 2  # x stays for the second program of a row
    assert hatched(picture, orange) == 0  # y moves every time


def test_each_picture_has_a_hatching_of_its_own():
    """Of two with one name a browser takes the first, and paints nothing where that is hidden."""
    names = [
        set(re.findall(r'id="(hatch-[^"]*)"', pictures.programs(call).svg))
        for call in (FOUR, CALLS["long"])
    ]
    assert names[0] and names[1] and not names[0] & names[1]
    assert set(re.findall(r"url\(#([^)]*)\)", pictures.programs(FOUR).svg)) == names[0]


def test_traffic_counts_what_calls_counts():
    told = words(pictures.traffic(FOUR))
    assert "2 blocks fetched" in told and "4 blocks written" in told
    assert told.count("×2") == 2 and "8.0 MiB" in told


def test_memory_shows_the_real_spaces():
    assert "SMEM: all of it" in words(pictures.memory(CALLS["smem"]))
    assert "VMEM: block [512, 1024]" in words(pictures.memory(FOUR))
    assert not any("VMEM" in w for w in words(pictures.memory(CALLS["gpu"])))


def test_order_numbers_every_program_on_its_core():
    x = np.ones(1 << 18, np.float32)
    told = words(pictures.order(simulate(add_vectors, x, x), (4,)))
    assert sorted(w for w in told if w.isdigit()) == ["1", "1", "2", "2"]
    assert {"core 0", "core 1"} <= set(told)


def example(a, b):
    return -((a @ b) * 0.125)


LOWERED = jax.jit(example).lower(
    jax.ShapeDtypeStruct((64, 32), jnp.int8), jax.ShapeDtypeStruct((32, 128), jnp.bfloat16)
)
GRAPHS = {"traced": LOWERED.as_text("hlo"), "compiled": LOWERED.compile().as_text()}


@pytest.mark.parametrize("layouts", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_well_formed_inside_its_frame_and_nothing_overlaps(name, layouts):
    corners = boxes(pictures.graph(hlo.parse(GRAPHS[name]), layouts=layouts))
    for (x0, y0, x1, y1), (u0, v0, u1, v1) in itertools.combinations(corners, 2):
        assert x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0


def test_a_graph_has_a_box_for_each_instruction_and_an_arrow_for_each_use():
    picture = pictures.graph(hlo.parse(GRAPHS["traced"]))
    told = words(picture)
    names = {"parameter 0", "parameter 1", "constant 0.125", "convert", "dot", "broadcast"}
    assert names | {"multiply", "negate", "s8[64,32]", "bf16[64,128]"} <= set(told)
    assert picture.says == "Graph of main.1: 8 instructions"
    assert sum("l4 7l4 -7" in p for p in re.findall(r'<path d="([^"]*)"', picture.svg)) == 7
    assert "0 instructions" in pictures.graph(hlo.parse("")).says


def test_a_fusion_is_opened_and_its_boxes_share_a_name():
    module = hlo.parse(GRAPHS["compiled"])
    told = words(pictures.graph(module))
    fusions = [i for i in module.run if i.opcode == "fusion"]
    assert fusions and "fusion" not in told
    for fusion in fusions:
        (inside,) = (module.computations[name] for name in fusion.called)
        made = [i for i in inside if i.opcode not in ("parameter", "fusion")]
        assert told.count(fusion.name) == len(made)


def test_a_neuron_core_is_drawn_from_its_data():
    chip = CHIPS["inf2"]
    shown = words(pictures.neuron_core(chip))
    for word in ("HBM", "SBUF", "PSUM", "Tensor", "Vector", "Scalar", "GpSimd", "1.12 GHz"):
        assert word in shown, word
    assert "of 192.0 KiB" in shown and "16 engines" in shown
    other = dataclasses.replace(chip, sbuf_bytes=256 << 10, dma_queues=3)
    assert {"of 256.0 KiB", "3 engines"} <= set(words(pictures.neuron_core(other)))
