"""The pipeline and the schedule answer keys and mouse, and show what Python computed."""

import re

from player_samples import bundles, choices
from tpu_samples import made_schedule

from kernels import pictures, tpu

CHOICES = choices()


def said(page):
    return page.locator(".kernel-words").text_content()


def micro(cycles):
    return f"{float(f'{cycles / 1500:.3g}'):g} µs"


def test_each_step_says_what_the_pipeline_does(played):
    found = tpu.pipeline(CHOICES["256×256×256"].ops[0])
    page = played(pictures.pipeline(CHOICES, start="256×256×256"))
    page.locator(".kernel-stage").focus()
    for number, step in enumerate(found.steps[:12]):
        told = said(page)
        assert told.startswith(f"Step {number}: ")
        wait, work = round(step.start) - round(step.idle), round(step.stop) - round(step.start)
        assert f"works {micro(work)}" in told
        assert ("the core waits " in told) == (wait > 0)
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
    page = played(bundles())
    page.locator(".kernel-stage").focus()
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
    page = played(bundles(made_schedule(5000, 10, 4990)))
    page.locator(".kernel-stage").focus()
    page.get_by_role("slider", name="bundle").fill("2500")
    first, last = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", said(page))[:2])
    assert said(page).startswith("Bundles ") and first <= 2500 <= last < first + 100
    assert "MXU 100%, VPU 50%" in said(page)
    page.get_by_role("button", name="Zoom in").click()
    assert said(page).startswith("Bundles ")
    page.locator(".kernel-stage").focus()
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
