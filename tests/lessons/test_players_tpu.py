"""The pictures of pipelines and of schedules show what the estimate and the compiler said."""

import json
import re

import numpy as np
import pytest
from drawn import boxes, words
from player_samples import bundles, choices
from tpu_samples import blocked, estimate, kernel, made_schedule

from kernels import pictures, tpu

LARGEST = 150_000  # characters of a player's data


def carried(player):
    """What the page hands to the script."""
    page = player.element
    text = re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1]
    assert len(text) < LARGEST
    return json.loads(text)


@pytest.mark.parametrize("draw", [lambda: pictures.pipeline(choices()), bundles])
def test_the_still_is_well_formed_and_inside_its_frame(draw):
    assert boxes(draw())


def test_each_choice_is_the_pipeline_of_its_estimate():
    found = choices()
    data = carried(pictures.pipeline(found, start="256×256×256"))
    assert [c["label"] for c in data["choices"]] == list(found)
    assert data["start"] == 1
    for choice, each in zip(data["choices"], found.values(), strict=True):
        whole = tpu.pipeline(each.ops[0])
        assert choice["ms"] == pytest.approx(each.seconds * 1e3, rel=1e-3)
        assert sum(choice["parts"].values()) == pytest.approx(1, abs=1e-3)
        assert choice["parts"]["wait"] == pytest.approx(
            whole.parts["wait"] / whole.cycles, abs=1e-3
        )
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
    call = blocked(512, 512, 512, 128, 128, 128)
    op = kernel(call, 900)
    player = bundles(call=call)
    seconds = op.cycles / tpu.CHIPS["v5e"].clock_hz
    rate = 2 * 512**3 / seconds
    assert f"{rate / 1e12:.3g} TFLOP/s" in words(player)
    assert f"{2 * 512**3 / call.traffic:,.3g} operations for each byte of HBM" in player.says
    place = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', player.svg)
    roof = re.search(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)H', player.svg)
    x0, y0, x1, y1 = map(float, roof.groups())
    at = y0 + (float(place[1]) - x0) * (y1 - y0) / (x1 - x0)
    assert float(place[2]) > max(at, y1)  # y grows downwards: under the roof


def test_a_kernel_that_multiplies_nothing_has_no_point():
    import jax
    import jax.numpy as jnp

    from kernels.machines.pallas import calls
    from kernels.vector import add_vectors

    x = jax.ShapeDtypeStruct((4096,), jnp.float32)
    player = bundles(call=calls(add_vectors, x, x)[0])
    assert "<circle" not in player.svg and "no place under this roof" in player.says


def test_a_schedule_that_is_not_there_is_refused():
    op = kernel(blocked(512, 512, 512, 128, 128, 128), 900)
    with pytest.raises(ValueError, match="estimate is program, without a schedule; accepted"):
        pictures.schedule(estimate(op))
    with pytest.raises(ValueError, match=r"kernel is 'other'; accepted: matmul\.1"):
        pictures.schedule(estimate(op, schedules=(made_schedule(),)), "other")
