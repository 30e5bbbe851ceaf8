"""Players hold what their kernels do, what was estimated, and what the compiler said."""

import dataclasses
import functools
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import boxes, words
from jax.experimental import pallas as pl
from player_samples import blocked, bundles, causal, choices, kinds, on_neuron, sparse
from tpu_samples import blocked as product
from tpu_samples import estimate, kernel, made_schedule

from kernels import pictures, tpu
from kernels.lessons.pictures import rings
from kernels.machines.pallas import calls
from kernels.machines.pallas.calls import affine
from kernels.vector import add_vectors

LARGEST = 50_000  # characters of a player's data


def mapped(index_map, *, grid=(4, 2), block=(8, 128), shape=(256, 512)):
    """A call whose one input has this index map."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[:8, :128]

    def function(x):
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
            grid=grid,
            in_specs=[pl.BlockSpec(block, index_map)],
            out_specs=pl.BlockSpec((8, 128), lambda *_: (0, 0)),
        )(x)

    return calls(function, jax.ShapeDtypeStruct(shape, jnp.float32))[0]


CALLS = kinds() | {
    "long": blocked(128, 128, 128, m=4096, k=4096, n=4096),
    "ragged": blocked(128, 128, 128, m=257, k=300, n=190),
    "causal": causal(),
    "sparse": sparse(),
}
PLAYERS = {
    **{name: functools.partial(pictures.play, call) for name, call in CALLS.items()},
    "ring": pictures.ring,
    "engines": lambda: pictures.timeline(on_neuron()),
    "engines, their first half": lambda: pictures.timeline(on_neuron(), on_neuron().seconds / 2),
}


@pytest.mark.parametrize("name", PLAYERS)
def test_a_player_is_small_and_has_a_still_picture(name):
    player = PLAYERS[name]()
    text = json.dumps(player.data, allow_nan=False)
    assert len(text) < LARGEST
    boxes(player)
    html = player.element
    assert f'kind="{player.kind}"' in html
    held = html.partition('<script type="application/json">')[2].partition("</script>")[0]
    assert json.loads(held) == json.loads(text)


@pytest.mark.parametrize("name", ["four", "long", "ragged", "vmapped", "smem"])
def test_an_affine_map_gives_every_start(name):
    call = CALLS[name]
    player = pictures.play(call)
    assert not player.data["fixed"] and player.data["shown"] == len(call.programs)
    for operand, told in zip(call.operands, player.data["operands"]):
        offset, steps, unit = (np.array(told[key], int) for key in ("offset", "steps", "unit"))
        steps = steps.reshape(len(unit), len(call.grid))
        assert np.array_equal((offset + call.programs @ steps.T) * unit, operand.starts)


def test_a_loop_of_one_step_still_knows_what_it_cuts():
    call = CALLS["four"]
    assert call.grid == (2, 2, 1) and affine(call)[0].steps.tolist() == [[1, 0, 0], [0, 0, 1]]
    cuts = [axis["cuts"] for axis in pictures.play(call).data["axes"]]
    assert cuts == [[(0, 0), (2, 0)], [(1, 1), (2, 1)], [(0, 1), (1, 0)]]


def test_the_loops_have_the_names_of_the_index_maps():
    assert CALLS["four"].axes == ("i", "j", "s")
    assert mapped(lambda row, column: (row, column)).axes == ("row", "column")
    assert mapped(lambda *ids: ids).axes == ("i", "j")


@pytest.mark.parametrize(
    "planted",
    [
        lambda i, j: (jnp.minimum(i, 2), j),
        lambda i, j: (i * j, 0),
        lambda i, j: (i // 2, j),
        lambda i, j: (jnp.where(i == 3, 5, i), j),
    ],
    ids=["minimum", "product", "quotient", "one program"],
)
def test_a_map_that_is_not_affine_is_noticed(planted):
    call = mapped(planted)
    assert affine(call)[0] is None and affine(call)[1] is not None
    data = pictures.play(call).data
    assert "index map of x is no sum of multiples" in data["fixed"]
    of_x = data["operands"][0]["starts"]
    starts = [np.broadcast_to(np.array(d), len(call.programs)) for d in of_x]
    assert np.array_equal(np.stack(starts, 1), call.operands[0].starts)


def test_elements_and_what_only_the_run_knows_cannot_be_changed():
    elements = mapped(lambda i, j: (3 * i, j), block=(pl.Element(8), 128))
    assert affine(elements)[0].unit.tolist() == [1, 128]
    assert "counts elements" in pictures.play(elements).data["fixed"]
    data = pictures.play(CALLS["sparse"]).data
    assert "which only the run knows" in data["fixed"]
    assert any("starts" not in told and "offset" not in told for told in data["operands"])


@pytest.mark.parametrize(
    ("index_map", "why"),
    [
        (lambda i, j: (3 - i, j), "x does not take its blocks one by one"),
        (lambda i, j: (2 * i, j), "x does not take its blocks one by one"),
        (lambda i, j: (i, j), "the grid is not as long as x has blocks"),
    ],
)
def test_a_loop_that_does_not_walk_all_blocks_is_fixed(index_map, why):
    assert why in pictures.play(mapped(index_map)).data["axes"][0]["fixed"]


def test_a_long_recording_is_cut_off_and_says_so():
    data = pictures.play(causal(tokens=128 * 64)).data
    assert data["programs"] == 2 * 64 * 64 and 1000 < data["shown"] < data["programs"]
    assert len(json.dumps(data)) < LARGEST


def test_a_grid_of_no_programs_or_of_too_many_is_refused():
    with pytest.raises(ValueError, match=r"call.grid is \(0,\); accepted: 1 to"):
        pictures.play(mapped(lambda i: (0, 0), grid=(0,)))
    with pytest.raises(ValueError, match=r"call.grid is \(1024, 512\); accepted: 1 to 262144"):
        pictures.play(mapped(lambda i, j: (0, 0), grid=(1024, 512)))


def test_a_time_line_holds_every_instruction():
    found = on_neuron()
    data = pictures.timeline(found).data
    assert len(data["slots"]) == len(found.timeline)
    for slot, (lane, kind, start, end, source, *after) in zip(found.timeline, data["slots"]):
        assert data["lanes"][lane]["name"] == slot.engine
        assert data["kinds"][kind] == slot.instruction
        assert math.isclose(start * data["tick"], slot.start, abs_tol=data["tick"])
        assert math.isclose(end * data["tick"], slot.end, abs_tol=data["tick"])
        assert data["sources"][source] == slot.source and tuple(after) == slot.after
        assert all(data["slots"][n][3] <= start + 2 for n in after)
    assert [lane["name"] for lane in data["lanes"] if lane["binds"]] == [found.bound]


def test_a_time_line_refuses_what_it_cannot_draw():
    found = on_neuron()
    with pytest.raises(ValueError, match="first is 0; accepted: seconds above 0"):
        pictures.timeline(found, first=0)
    many = found.timeline * (1 + 1500 // len(found.timeline))
    with pytest.raises(ValueError, match="accepted: 1 to 1500 instructions"):
        pictures.timeline(dataclasses.replace(found, timeline=many))


def replayed(told):
    """The texts of all places after each event."""
    texts = [""] * rings.CELLS * rings.DEVICES
    for _, changes in told:
        for place, text in changes:
            texts[place] = text
        yield list(texts)


@pytest.mark.parametrize("slow", rings.SPEEDS)
def test_a_ring_that_waits_for_free_sums_up_every_chunk_however_slow_a_device_is(slow):
    told = rings.events(slow, guarded=True)
    *_, texts = replayed(told)
    for device in range(rings.DEVICES):
        chunk, parts = texts[rings.CELLS * device + (rings.DEVICES - 1) % 2].split(": ")
        assert int(chunk) == device and sorted(parts.split("+")) == ["0", "1", "2", "3"]
    assert told[-1][0] == "The end: each device has its chunk's sum."
    assert not any(text.startswith(rings.LOST) for now in replayed(told) for text in now)
    hops = [words for words, _ in told if " sends slot " in words]
    assert len(hops) == rings.DEVICES * (rings.DEVICES - 1)


def test_without_free_a_slow_device_loses_sums():
    outcomes = {slow: rings.events(slow, guarded=False) for slow in rings.SPEEDS}
    assert "each device has" in outcomes[1][-1][0]  # as on a machine where nobody is slow
    for slow in rings.SPEEDS[1:]:
        texts = [text for now in replayed(outcomes[slow]) for text in now]
        assert any(text.startswith(rings.LOST) for text in texts)
        assert outcomes[slow][-1][0].startswith("The end: wrong on device")


def test_a_sum_that_nobody_has_read_is_lost_too():
    told = rings.events(16, guarded=False)
    lost = [words for words, _ in told if "that sum is lost" in words]
    # The second falls on device 1's first message in slot 1, to which it has added nothing yet.
    places = [re.search(r"slot \d of device \d", words)[0] for words in lost]
    assert places == ["slot 0 of device 1", "slot 1 of device 1"]
    assert told[-1][0] == "The end: wrong on devices 0, 1 and 3."


def carried(player):
    """What the page hands to the script."""
    text = re.search(r'<script type="application/json">(.*?)</script>', player.element, re.S)[1]
    assert len(text) < 3 * LARGEST
    return json.loads(text)


@pytest.mark.parametrize("draw", [lambda: pictures.pipeline(choices()), bundles])
def test_the_still_is_well_formed_and_inside_its_frame(draw):
    assert boxes(draw())


def test_each_choice_is_the_pipeline_of_its_estimate():
    found = choices()
    data = carried(pictures.pipeline(found, start="256×256×256"))
    assert [c["label"] for c in data["choices"]] == list(found) and data["start"] == 1
    for choice, each in zip(data["choices"], found.values(), strict=True):
        whole = tpu.pipeline(each.ops[0])
        assert choice["ms"] == pytest.approx(each.seconds * 1e3, rel=1e-3)
        assert sum(choice["parts"].values()) == pytest.approx(1, abs=1e-3)
        waited = whole.parts["wait"] / whole.cycles
        assert choice["parts"]["wait"] == pytest.approx(waited, abs=1e-3)
        assert choice["count"] == len(whole.steps)
        assert choice["steps"][3][3] == round(whole.steps[3].stop)
        size = {name: o.block_bytes for o in each.ops[0].call.operands for name in [o.name]}
        names = [*choice["inputs"], *choice["outputs"]]
        assert all(moved == size[names[lane]] for lane, _, moved, *_ in choice["moves"])


def test_the_still_of_a_pipeline_names_what_it_shows():
    found = choices()
    player = pictures.pipeline(found)
    told = words(player)
    assert "512×1024×512: the first 4 of 4 steps" in told
    assert {"x, HBM → VMEM", "y, HBM → VMEM", "core", "z, VMEM → HBM", "µs on a v5e"} <= set(told)
    assert "Estimated, not measured: a profile" in told
    for label, each in found.items():
        assert label in told and f"{each.seconds * 1e3:.3g} ms ({each.band_text})" in told
    assert player.says.startswith("The first steps of 512×1024×512 on a v5e, estimated: products")


def test_bands_are_left_out_where_they_say_nothing_of_the_choices():
    found = choices()
    player = pictures.pipeline(found, bands=False)
    told = words(player)
    assert all(f"{each.seconds * 1e3:.3g} ms" in told for each in found.values())
    assert not any(choice["band"] for choice in carried(player)["choices"])


def test_a_pipeline_of_what_has_none_is_refused():
    found = choices()
    with pytest.raises(ValueError, match="estimates is of nothing; accepted"):
        pictures.pipeline({})
    with pytest.raises(ValueError, match="estimates is of v5e, v6e; accepted"):
        pictures.pipeline({**found, "other": choices("v6e")["128×128×128"]})
    with pytest.raises(ValueError, match="start is '1×1×1'; accepted"):
        pictures.pipeline(found, start="1×1×1")
    fusion = tpu.OpEstimate("fusion", "fusion", 1.0, 1, "", "HBM")
    with pytest.raises(ValueError, match="is of 0 kernels; accepted: a program with one"):
        pictures.pipeline({"x": estimate(fusion)})


def held(data):
    """int [bundles, slots], and the operations of each: what the script reads of the letters."""
    place = {letter: i for i, letter in enumerate(data["letters"])}

    def numbers(letters):
        return [place[a] * len(place) + place[b] for a, b in zip(letters[::2], letters[1::2])]

    def names(kind):
        threes = [kind[at : at + 3] for at in range(2, len(kind), 3)]
        return {data["names"][numbers(each[:2])[0]]: place[each[2]] for each in threes}

    kinds = [data["kinds"][k] for k in numbers(data["order"])]
    rows = np.array([[int(digit) for digit in row] for row in data["held"]])
    return rows[[numbers(kind[:2])[0] for kind in kinds]], list(map(names, kinds))


def test_every_bundle_is_what_the_schedule_holds():
    schedule = made_schedule()
    data = carried(bundles(schedule))
    rows, names = held(data)
    np.testing.assert_array_equal(rows, schedule.occupancy)
    assert names == [schedule.names(i) for i in range(100)]
    assert names[0] == {} and names[50] == {"vmatmul.f32": 2, "vadd": 1}
    assert data["loops"] == [[10, 90, 1]] and data["first"] == 10
    assert len(data["text"]) == 80 and "%1 = vmatmul.f32.mxu0 %v1" in data["text"][0]
    assert data["inside"] == [round(v, 4) for v in schedule.loop_utilisation.values()]


def test_a_long_kernel_has_no_text_and_stays_small():
    schedule = made_schedule(60_000, 10, 59_000)
    data = carried(bundles(schedule))
    rows, _ = held(data)
    assert data["text"] == [] and data["bundles"] == 60_000
    np.testing.assert_array_equal(rows, schedule.occupancy[: len(rows)])
    assert len(rows) == 40_000


def test_the_still_of_a_schedule_shades_each_slot():
    schedule = made_schedule(100)
    player = bundles(schedule)
    shades = {
        float(o): d.count("M")
        for d, o in re.findall(r'<path d="([^"]*)" fill="#3b78c2" opacity="([\d.]+)"', player.svg)
    }
    full = schedule.occupancy / schedule.capacity
    assert shades == {1.0: int((full == 1).sum()), 0.6: int((full == 0.5).sum())}
    told = words(player)
    assert "MXU  100%" in told and "matmul: 100 bundles" in told
    assert "bundle" in told and "operations for each byte of HBM" in told and "TFLOP/s" in told


def test_the_point_under_the_roofline():
    call = product(512, 512, 512, 128, 128, 128)
    op = kernel(call, 900)
    player = bundles(call=call)
    rate = 2 * 512**3 / (op.cycles / tpu.CHIPS["v5e"].clock_hz)
    assert f"{rate / 1e12:.3g} TFLOP/s" in words(player)
    assert f"{2 * 512**3 / call.traffic:,.3g} operations for each byte of HBM" in player.says
    place = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', player.svg)
    roof = re.search(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)H', player.svg)
    x0, y0, x1, y1 = map(float, roof.groups())
    at = y0 + (float(place[1]) - x0) * (y1 - y0) / (x1 - x0)
    assert float(place[2]) > max(at, y1)  # y grows downwards: under the roof


def test_a_kernel_that_multiplies_nothing_has_no_point():
    x = jax.ShapeDtypeStruct((4096,), jnp.float32)
    player = bundles(call=calls(add_vectors, x, x)[0])
    assert "<circle" not in player.svg and "no place under this roof" in player.says


def test_a_schedule_that_is_not_there_is_refused():
    op = kernel(product(512, 512, 512, 128, 128, 128), 900)
    with pytest.raises(ValueError, match="estimate is program, without a schedule; accepted"):
        pictures.schedule(estimate(op))
    with pytest.raises(ValueError, match=r"kernel is 'other'; accepted: matmul\.1"):
        pictures.schedule(estimate(op, schedules=(made_schedule(),)), "other")
