"""Players answer keys and mouse, and show what Python computed: a browser counts the same."""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import nbformat
import numpy as np
import pytest
from commands import wait
from jax.experimental import pallas as pl
from pallas_samples import copy
from player_samples import blocked, bundles, causal, choices, on_neuron, sparse
from tpu_samples import made_schedule

from kernels import neuron, pictures, tpu
from kernels.machines.pallas import calls
from kernels.matmul.nki import matmul_kernel

M, K, N = 384, 1024, 640
SIZES = {"m": M, "k": K, "n": N}
CALL = blocked(128, 256, 128, **SIZES)


def focused(page):
    page.locator(".kernel-stage").focus()
    return page


def said(page):
    return page.locator(".kernel-words").text_content()


def totals(page):
    """Bytes moved so far and over the grid, of each operand that moves."""
    titles = page.locator(".kernel-card [title]").evaluate_all("all => all.map(e => e.title)")
    return [tuple(map(int, re.findall(r"\d+", title))) for title in titles]


def change(page, label, value):
    box = page.get_by_label(label, exact=True)
    box.fill(str(value))
    box.press("Enter")


def so_far(call, operand):
    """Bytes moved after each program: an input's before it runs, an output's when it leaves."""
    sizes = np.prod(np.minimum(operand.block, np.array(operand.shape) - operand.starts), axis=1)
    leaves = operand.moved
    if operand.role == "output":
        leaves = np.append(operand.moved[1:], True)
    return np.cumsum(sizes * leaves) * np.dtype(operand.dtype).itemsize


def test_each_step_is_what_the_index_maps_say(played):
    page = focused(played(pictures.play(CALL)))
    want = [so_far(CALL, operand) for operand in CALL.operands]
    for step, ids in enumerate(CALL.programs):
        assert [now for now, _ in totals(page)] == [counts[step] for counts in want]
        numbers = ", ".join(str(int(i)) for i in ids)
        words = [
            f"{o.name} {'fetched' if o.role == 'input' else 'written back'}"
            if counts[step] > (counts[step - 1] if step else 0)
            else f"{o.name} kept"
            for o, counts in zip(CALL.operands, want)
        ]
        told = f"Program {step + 1} of {len(CALL.programs)}, (i, j, s) = ({numbers}): "
        assert said(page) == told + ", ".join(words) + "."
        page.keyboard.press("ArrowRight")
    assert [all for _, all in totals(page)] == [o.traffic for o in CALL.operands]


def test_keys_buttons_and_slider_go_the_same_ways(played):
    page, last = focused(played(pictures.play(CALL))), len(CALL.programs)
    keys = "ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"
    for key, place in zip(keys, (2, 3, 2, last, last, 1, 1)):
        page.keyboard.press(key)
        assert said(page).startswith(f"Program {place} of {last},")
    for name, place in (("Next", 2), ("Last", last), ("Previous", last - 1), ("First", 1)):
        page.get_by_role("button", name=name).click()
        assert said(page).startswith(f"Program {place} of {last},")
    slider = page.get_by_role("slider")
    slider.fill("6")
    assert said(page).startswith(f"Program 7 of {last},")
    slider.press("ArrowRight")
    assert said(page).startswith(f"Program 8 of {last},")
    assert slider.get_attribute("aria-valuetext") == "program 8"


def test_space_plays_and_stops(played):
    page = focused(played(pictures.play(CALL)))
    page.keyboard.press(" ")
    page.get_by_role("button", name="Pause").wait_for()
    words = "document.querySelector('.kernel-words').textContent"
    page.wait_for_function(f"{words}.includes('am 3 of')")
    page.keyboard.press(" ")
    page.get_by_role("button", name="Play").wait_for()
    before = said(page)
    page.wait_for_timeout(900)
    assert said(page) == before


def test_changed_blocks_move_what_python_counts_and_a_changed_grid_changes_them(played):
    page = played(pictures.play(CALL))
    for block in ((128, 256, 640), (64, 512, 640), (384, 128, 256), (256, 384, 512)):
        for name, size in zip("isj", block):
            change(page, f"block of {name}", size)
        want = blocked(*block, **SIZES)
        counts = [int(page.get_by_label(f"blocks along {name}").input_value()) for name in "ijs"]
        assert tuple(counts) == want.grid
        assert [all for _, all in totals(page)] == [operand.traffic for operand in want.operands]
        page.get_by_role("button", name="Back to the kernel's own blocks").click()
        assert [all for _, all in totals(page)] == [operand.traffic for operand in CALL.operands]
    for name, count, size in (("i", 2, 192), ("s", 7, -(-K // 7)), ("j", 9, 72)):
        change(page, f"blocks along {name}", count)
        assert page.get_by_label(f"block of {name}").input_value() == str(size)
    assert page.get_by_label("blocks along j").input_value() == "9"
    change(page, "blocks along j", 300)
    assert "No 300 blocks of one size cover 640: 214 blocks of 3 do." in remarks(page)


def remarks(page):
    return page.locator(".kernel-remarks").text_content()


def test_the_order_of_the_loops_decides_what_is_kept(played):
    page = played(pictures.play(CALL))
    now = list("ijs")
    for order in list(itertools.permutations("ijs"))[1:]:
        for place, name in enumerate(order):  # bring each to its place, one step outwards at a time
            while now.index(name) > place:
                page.get_by_role("button", name=f"Move the loop over {name} one outwards").click()
                at = now.index(name)
                now[at - 1], now[at] = now[at], now[at - 1]
        want = [swapped_traffic(operand, order) for operand in CALL.operands]
        assert [all for _, all in totals(page)] == want, order
        assert ("z leaves" in remarks(page)) == (order[2] != "s")


def swapped_traffic(operand, order):
    """Counted the slow way: walk the loops, and add a block's bytes where it changes."""
    sizes = dict(zip("ijs", CALL.grid))
    starts = operand.starts.reshape(*CALL.grid, 2)
    before, total = None, 0
    for ids in itertools.product(*(range(sizes[name]) for name in order)):
        at = dict(zip(order, ids))
        start = tuple(map(int, starts[at["i"], at["j"], at["s"]]))
        if start != before:
            cut = np.minimum(operand.block, np.array(operand.shape) - start)
            total += int(np.prod(cut)) * np.dtype(operand.dtype).itemsize
        before = start
    return total


def test_a_dimension_that_no_loop_cuts_can_be_left_in_part(played):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[:8, :128]

    def function(block):
        in_specs, out_specs = (
            pl.BlockSpec(sizes, lambda i: (i, 0)) for sizes in ((64, block), (8, 128))
        )
        x, out = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 512), (32, 128)))
        specs = {"grid": (4,), "in_specs": [in_specs], "out_specs": out_specs}
        return calls(pl.pallas_call(kernel, out_shape=out, **specs), x)[0]

    page = played(pictures.play(function(512)))
    page.get_by_text("Dimensions that no loop cuts").click()
    change(page, "block of the columns of x", 256)
    assert "4 of 8 blocks of x are read by no program." in remarks(page)
    assert [all for _, all in totals(page)] == [o.traffic for o in function(256).operands]


def test_a_size_that_cannot_be_is_refused_in_words(played):
    page = played(pictures.play(CALL))
    for value in ("0", "-1", "1.5", "", str(M + 1)):
        before = totals(page)
        change(page, "block of i", value)
        told = f"block of i is {value or 'empty'}; accepted: a whole number from 1 to {M}"
        assert told in remarks(page)
        assert page.get_by_label("block of i").get_attribute("aria-invalid") == "true"
        assert totals(page) == before
        change(page, "block of i", 64)
        assert told not in remarks(page)
    for name in "ijs":
        change(page, f"block of {name}", 1)
    assert re.search(r"block of s is 1, which makes \d+ programs; accepted", remarks(page))


def test_what_a_tpu_cannot_tile_is_what_lowering_refuses(played):
    page = played(pictures.play(CALL))
    y = jax.ShapeDtypeStruct((256, N), jnp.float32)
    for size, refused in ((64, True), (128, False), (320, True), (640, False)):
        change(page, "block of j", size)
        assert ("A TPU cannot tile y: " in remarks(page)) == refused
        block = pl.BlockSpec((256, size), lambda j: (0, j))
        specs = {"grid": (-(-N // size),), "in_specs": [block], "out_specs": block}
        outcome = contextlib.nullcontext()
        if refused:
            outcome = pytest.raises(ValueError, match=r"divisible by|multiples? of")
        with outcome:
            tpu.lower(pl.pallas_call(copy, out_shape=y, **specs), y)


def test_blocks_that_are_not_affine_are_stepped_through_as_recorded(played):
    kinds = (causal(), "index map of k is no sum"), (sparse(), "which only the run knows")
    for call, words in kinds:
        page = focused(played(pictures.play(call)))
        assert words in remarks(page) and page.locator(".kernel-field").count() == 0
        page.keyboard.press("End")
        assert totals(page) == [(o.traffic, o.traffic) for o in call.operands]


DRAWN = {
    "grid": lambda: pictures.play(CALL),
    "timeline": lambda: pictures.timeline(on_neuron()),
    "pipeline": lambda: pictures.pipeline(choices()),
    "schedule": bundles,
    "ring": pictures.ring,
}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
@pytest.mark.parametrize("name", DRAWN)
def test_nothing_sticks_out(played, name, scheme, width):
    page = played(DRAWN[name](), scheme=scheme, width=width, has_touch=width == 400)
    small = "all => all.filter((node) => Math.min(node.offsetWidth, node.offsetHeight) < 44).length"
    assert width > 400 or page.locator("button:visible, input:visible").evaluate_all(small) == 0
    assert page.locator(".kernel-stage").is_visible()
    assert not page.locator(".kernel-picture").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_function("document.documentElement.scrollWidth <= 400")
    page.emulate_media(media="print")
    assert page.locator(".kernel-picture").is_visible()
    assert not page.locator(".kernel-stage").is_visible()


def test_a_telephone_keeps_the_buttons_in_sight(played):
    page = played(pictures.play(CALL), width=390, has_touch=True)
    page.add_style_tag(path=Path(__file__).parents[2] / "book" / "_static" / "custom.css")
    page.evaluate("scrollTo(0, 400)")
    assert page.get_by_role("button", name="Next").bounding_box()["y"] == 3.5 * 16


def test_without_scripts_or_where_they_fail_the_still_picture_stands(played, faults):
    good = pictures.play(CALL)
    failing = pictures.Player(good.svg, good.says, "grid", {"axes": None})
    for player, scripts in ((good, False), (failing, True)):
        page = played(player, java_script_enabled=scripts)
        assert page.locator(".kernel-picture svg").is_visible()
        assert page.locator(".kernel-stage").count() == 0 and bool(faults) == scripts
    faults.clear()


def test_less_motion_where_the_reader_wants_less(played):
    look = "getComputedStyle(document.querySelector('.kernel-moves')).transitionDuration"
    assert played(pictures.play(CALL)).evaluate(look) != "0s"
    assert played(pictures.play(CALL), reduced_motion="reduce").evaluate(look) == "0s"


def test_an_instruction_says_what_it_is_and_what_it_waited_for(played):
    found = on_neuron()
    page = focused(played(pictures.timeline(found)))
    own = sorted((s for s in found.timeline if s.engine == found.bound), key=lambda s: s.start)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    clock = neuron.CHIPS[found.chip].clock_hz[found.bound]
    for slot in own:
        told = page.locator(".kernel-tip").inner_text()
        cycles = round((slot.end - slot.start) * clock)
        assert told.startswith(f"#{slot.number} {slot.instruction}\n{slot.engine}, ")
        assert f"{slot.start * 1e6:.2f} to {slot.end * 1e6:.2f} µs, {cycles} cycles" in told
        assert f"line {slot.source}\n" in told
        last = max((found.timeline[n].end for n in slot.after), default=0)
        if abs(last - slot.start) < 1e-9:
            (number,) = re.search(r"waited for its operands: #(\d+)", told).groups()
            assert int(number) in slot.after
        else:
            assert "waited for its engine: " in told
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert not page.locator(".kernel-tip").is_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert said(page)


def span(page):
    """The microseconds in view: from, to."""
    numbers = re.findall(r"[\d.]+", page.locator(".kernel-view").text_content())
    return [float(number) for number in numbers[:2]]


def test_zoom_and_pan(played):
    found = on_neuron()
    page = focused(played(pictures.timeline(found)))
    whole = span(page)
    assert whole == [0, round(found.seconds * 1e6, 1)]
    page.keyboard.press("+")
    page.keyboard.press("+")
    start, end = span(page)
    assert end - start == pytest.approx(whole[1] / 4, abs=0.11)
    page.keyboard.press("Shift+ArrowRight")
    assert span(page)[0] == pytest.approx(start + (end - start) / 4, abs=0.11)
    page.keyboard.press("-")
    page.get_by_role("button", name="All of it").click()
    assert span(page) == whole
    box = page.locator(".kernel-timeline").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 60
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    start, end = span(page)
    assert end - start == pytest.approx(whole[1] / 1.25, abs=0.11)
    page.mouse.down()
    page.mouse.move(x + 30, y, steps=4)
    page.mouse.up()
    assert span(page)[0] < start


def test_a_lane_counts_its_instructions(played):
    xt, y = (jax.ShapeDtypeStruct((128, n), jnp.float32) for n in (128, 512))
    found = neuron.estimate(matmul_kernel, xt, y, chip="trn1")
    told = played(pictures.timeline(found)).locator(".kernel-stage").text_content()
    assert found.engines["Tensor"].instructions == 1
    assert "·  1 instruction," in told and "1 instructions" not in told
    assert f"·  {found.engines['DMA'].instructions} instructions" in told


def test_short_bars_are_merged_and_come_apart(played):
    found = on_neuron()
    page = played(pictures.timeline(found, first=1000 * found.seconds), width=400)
    bars = focused(page).locator(".kernel-slot")
    assert bars.count() < len(found.timeline)
    for _ in range(20):
        page.keyboard.press("-")
    merged = bars.count()
    page = played(pictures.timeline(found))
    assert page.locator(".kernel-slot").count() > merged


def test_the_mouse_finds_an_instruction(played):
    found = on_neuron()
    page = played(pictures.timeline(found, first=found.seconds / 6))
    bar = page.locator(".kernel-slot").nth(2)
    number = int(bar.get_attribute("data-first"))
    bar.hover()
    assert page.locator(".kernel-tip").inner_text().startswith(f"#{number} ")
    bar.click()
    assert page.locator(".kernel-chosen").count() == 1
    assert said(page).startswith(f"#{number} ")
    page.mouse.move(0, 0)
    assert page.locator(".kernel-tip").is_visible()  # what was chosen stays


def test_words_beside_an_instruction_stay_inside(played):
    page = focused(played(pictures.timeline(on_neuron()), width=1400))
    stage = page.locator(".kernel-stage")
    for width, key in itertools.product((1400, 400), ("ArrowRight", "Home", "End")):
        page.set_viewport_size({"width": width, "height": 900})
        page.keyboard.press(key)
        tip, around = page.locator(".kernel-tip").bounding_box(), stage.bounding_box()
        for side, size in (("x", "width"), ("y", "height")):
            assert around[side] <= tip[side]
            assert tip[side] + tip[size] <= around[side] + around[size]


def test_the_landing_page_asks_what_its_one_control_answers(open_page, site):
    """The larger the blocks the fewer bytes, and neither the largest nor the smallest is best."""
    page = open_page(f"{site}/book/index.html", "light", 1400)
    best, asked, moved = [], [], []
    for size in (128, 256, 512, 1024, 2048, 4096):
        page.get_by_role("button", name=str(size), exact=True).click()
        words = page.locator(".kernel-floors").text_content()
        moved.append(sum(all for _, all in totals(page)))
        best.append(float(re.search(r"([\d.]+) ms at best", words)[1]))
        asked.append("more than is granted" in words)
        assert moved[-1] == 2 * (2 * (4096 // size) + 1) * 4096**2
    assert best[0] > 3 * best[2] and best[5] > 1.1 * best[2] and min(best) == best[2]
    assert asked == [False] * 4 + [True] * 2


def test_a_ring_tells_its_events_and_marks_what_is_lost(played):
    player = pictures.ring()
    page = played(player)
    for chosen, choice in enumerate(player.data["choices"]):
        page.get_by_role("slider", name="speeds").fill(str(chosen))
        assert page.locator(".kernel-title").inner_text() == choice["label"]
        focused(page)
        texts, lost = {}, 0
        for words, changes in choice["events"]:
            texts.update(changes)
            marked = sum(text.startswith(player.data["lost"]) for text in texts.values())
            assert said(page) == words and page.locator(".kernel-lost").count() == marked
            shown = page.locator(".kernel-lanes text").all_text_contents()
            slots = [t.removeprefix("!") for cell, t in texts.items() if cell % 4 < 2 and t]
            assert set(slots) <= set(shown)
            lost = max(lost, marked)
            page.keyboard.press("ArrowRight")
        assert (lost > 0) == ("wrong" in choice["events"][-1][0])


CHOICES = choices()


def micro(cycles):
    return f"{float(f'{cycles / 1500:.3g}'):g} µs"


def test_each_step_says_what_the_pipeline_does(played):
    found = tpu.pipeline(CHOICES["256×256×256"].ops[0])
    page = focused(played(pictures.pipeline(CHOICES, start="256×256×256")))
    for number, step in enumerate(found.steps[:12]):
        told = said(page)
        assert told.startswith(f"Step {number}: ")
        wait, work = round(step.start) - round(step.idle), round(step.stop) - round(step.start)
        assert f"works {micro(work)}" in told and ("the core waits " in told) == (wait > 0)
        if wait:
            assert f"waits {micro(wait)}" in told
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert said(page).startswith("Step 39: ")  # of 64: the first 40 can be looked at


def test_the_slider_changes_the_blocks_and_the_steps_begin_again(played):
    player = pictures.pipeline(CHOICES, start="128×128×128")
    page = played(player)
    slider = page.get_by_role("slider", name="block sizes")
    for number, (label, each) in enumerate(CHOICES.items()):
        choice = player.data["choices"][number]
        waits = sum(start > idle for idle, start, *_ in choice["steps"][1 : player.data["shown"]])
        assert choice["label"] == label and (waits > 0) == (choice["parts"]["wait"] > 0)
        assert page.locator(".kernel-lanes rect[fill$='-wait)']").count() == waits
        told = f"{each.seconds * 1e3:.3g} ms ({each.band_text}), estimated"
        assert page.locator(".kernel-title").inner_text().startswith(label)
        assert told in page.locator(".kernel-title").inner_text()
        assert slider.get_attribute("aria-valuetext") == f"{label}: {told}"
        assert said(page).startswith("Step 0: ")
        page.get_by_role("button", name="Next").click()
        assert said(page).startswith("Step 1: ")
        if number + 1 < len(CHOICES):
            slider.press("ArrowRight")


def test_a_bar_chooses_its_blocks_and_tells_its_parts(played):
    player = pictures.pipeline(CHOICES)
    page = played(player)
    bar = page.locator(".kernel-choice").first
    bar.locator("rect").nth(1).hover()
    share = 100 * player.data["choices"][0]["parts"]["products"]
    tip = page.locator(".kernel-tip").inner_text()
    assert "128×128×128" in tip and f"peak rate: {share:.1f}% of the time" in tip
    bar.click()
    assert page.locator(".kernel-title").inner_text().startswith("128×128×128")
    page.keyboard.press("Escape")


def test_each_bundle_says_what_it_holds(played):
    page = focused(played(bundles()))
    page.keyboard.press("Home")
    assert said(page) == "Bundle 0, outside the loop: no operation."
    for _ in range(15):
        page.keyboard.press("ArrowRight")
    assert said(page) == "Bundle 15, in the loop: MXU 4 of 4, VPU 2 of 2, spill 1 of 1."
    assert "vmatmul.f32.mxu0" in page.locator(".kernel-bundle").inner_text()
    page.keyboard.press("ArrowRight")
    assert said(page) == "Bundle 16, in the loop: MXU 4 of 4, VPU 1 of 2."
    page.keyboard.press("Shift+ArrowRight")
    assert said(page).startswith("Bundle 26,")
    page.keyboard.press("End")
    assert said(page).startswith("Bundle 99, outside the loop")
    page.get_by_role("slider", name="bundle").fill("50")
    assert said(page).startswith("Bundle 50, in the loop")


def test_a_long_kernel_is_shown_in_ranges_until_the_reader_zooms(played):
    page = focused(played(bundles(made_schedule(5000, 10, 4990))))
    page.get_by_role("slider", name="bundle").fill("2500")
    first, last = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", said(page))[:2])
    assert said(page).startswith("Bundles ") and first <= 2500 <= last < first + 100
    assert "MXU 100%, VPU 50%" in said(page)
    page.get_by_role("button", name="Zoom in").click()
    assert said(focused(page)).startswith("Bundles ")
    for _ in range(6):
        page.keyboard.press("+")
    assert said(page).startswith("Bundle 2,500, in the loop: MXU 4 of 4")
    assert page.locator(".kernel-bundle").inner_text() == "vadd; vmatmul.f32 ×2"
    page.keyboard.press("ArrowLeft")
    assert said(page).startswith("Bundle 2,499,")
    page.keyboard.press("0")
    assert said(page).startswith("Bundles ")


def test_the_mouse_finds_a_bundle(played):
    page = played(bundles())
    heat = page.locator(".kernel-heat svg")
    box = heat.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 60)
    assert page.locator(".kernel-tip").inner_text().startswith("bundle 99")
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 60)
    assert said(page).startswith("Bundle 99,")
    page.mouse.move(2, 2)
    page.locator(".kernel-tip").wait_for(state="hidden")


CELL = """
import functools, jax
from kernels import pictures
from kernels.machines.pallas import calls
from kernels.matmul import BlockSizes, matmul

x = jax.ShapeDtypeStruct((512, 512), "bfloat16")
pictures.play(calls(functools.partial(matmul, block=BlockSizes(128, 256, 128)), x, x)[0])
"""


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with one notebook, whose two cells draw a player each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL) for _ in range(2)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    places = {name: str(tmp_path / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.port=0"),
            *("--allow-root", f"--ServerApp.root_dir={tmp_path}"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        env={k: v for k, v in os.environ.items() if k != "KERNELS_PLAYERS"} | places,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        files = (tmp_path / "JUPYTER_RUNTIME_DIR").glob  # there before the server has written it
        wait(infos := lambda: [t for f in files("jpserver-*.json") if "}" in (t := f.read_text())])
        info = json.loads(infos()[0])
        assert info["hostname"] == "localhost" and info["token"]  # nobody else is listened to
        yield f"http://127.0.0.1:{info['port']}/lab/tree/mine.ipynb?token={info['token']}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
def test_a_player_plays_in_jupyterlab(browser, lab):
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    page.set_default_timeout(60_000)
    page.goto(lab)
    page.get_by_text("| Idle").wait_for()  # what comes before its kernel is lost
    for cell in range(2):
        page.locator(".jp-CodeCell .cm-content").nth(cell).click()
        page.keyboard.press("Shift+Enter")
        page.locator(".kernel-stage").nth(cell).wait_for()
    first, words = page.locator(".kernel-stage").first, page.locator(".kernel-words").first
    assert page.locator(".kernel-stage").count() == 2
    seen = [words.text_content()]
    first.get_by_label("Next (right arrow)").click()
    seen.append(words.text_content())
    first.focus()
    for key in ("ArrowRight", "End", "Home"):  # in Lab some of them are commands
        first.press(key)
        seen.append(words.text_content())
    assert len(set(seen[:4])) == 4 and seen[4] == seen[0]
    assert page.locator(".jp-CodeCell").count() in (2, 3)  # the empty one below the last
    assert not page.locator(".kernel-player, kernel-player:not([data-playing])").count()
    page.close()
