"""What a reader does with a page, by keyboard alone; and what a page looks like on paper."""

import json
from pathlib import Path

import chapters
import pytest

PAGES = chapters.by_slug()
CHAPTER = f"{PAGES['blockspec_matmul']}.html"
FOCUSED = "document.activeElement"


def tab_to(page, selector, limit=400):
    """Press Tab until what matches has the focus, as a reader would."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate(f"{FOCUSED}.matches({selector!r})"):
            return page.locator(":focus")
    raise AssertionError(f"Tab never reaches {selector}")


# What a reader looks for → the pages that the search has to lead with.
WANTED = json.loads(Path(__file__).with_name("searches.json").read_text())


@pytest.mark.parametrize("query", WANTED)
def test_a_search_leads_with_the_page_that_teaches_it(query, open_page, tab, site):
    page = open_page(f"{site}/search.html?q={query.replace(' ', '+')}", page=tab)
    page.locator("#search-results .search-summary").wait_for()
    field, icon = (page.locator(f".bd-search-container .bd-search {it}") for it in ("input", "i"))
    padding = field.evaluate("node => parseFloat(getComputedStyle(node).paddingLeft)")
    right = icon.bounding_box()["x"] + icon.bounding_box()["width"]
    assert field.bounding_box()["x"] + padding >= right  # on no letter
    results = page.locator("#search-results ul.search li > a")
    results.nth(len(WANTED[query]) - 1).wait_for()
    first = [link.get_attribute("href") for link in results.all()[:4]]
    for wanted in WANTED[query]:
        assert any(wanted in href for href in first), first
    assert "api.html" not in "".join(first)


def test_the_search_finds_chapters(open_page, tab, site):
    page = open_page(f"{site}/{CHAPTER}", page=tab)
    page.keyboard.press("Control+k")
    page.keyboard.type("VMEM")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=VMEM*")
    # Results come in one by one.
    page.locator("#search-results li a[href*='grids_and_memory']").first.wait_for()


def test_an_old_address_leads_to_the_chapter(open_page, site):
    moved = chapters.MOVED.read_text(encoding="utf-8")
    old, new = next(chapters.forwarding(chapters.toc_files(), moved))
    open_page(f"{site}/{old}.html#exercises").wait_for_url(f"{site}/{new}.html#exercises")


def test_the_theme_goes_round(open_page, site):
    page = open_page(f"{site}/search.html")
    tab_to(page, ".theme-switch-button")
    button = page.locator(".theme-switch-button:visible").first
    seen = []
    for _ in range(3):
        button.focus()  # the theme takes the focus away after a click
        page.keyboard.press("Enter")
        seen.append(page.locator("html").get_attribute("data-theme"))
    assert {"light", "dark"} == set(seen)


def test_what_is_folded_opens(open_page, site):
    page = open_page(f"{site}/{CHAPTER}")
    summary = tab_to(page, "details.hide > summary")
    folded = summary.locator("xpath=..")
    content = folded.locator(".cell_output, .cell_input").first
    assert folded.get_attribute("open") is None and not content.is_visible()
    page.keyboard.press("Enter")
    assert folded.get_attribute("open") is not None and content.is_visible()


def test_the_table_of_contents_opens_on_a_narrow_window(open_page, site):
    page = open_page(f"{site}/search.html", width=400)
    link = page.get_by_role("link", name="Hello, Pallas").first
    assert not link.is_visible()
    tab_to(page, ".primary-toggle")
    page.keyboard.press("Enter")
    link.wait_for(state="visible")
    page.keyboard.press("Escape")
    link.wait_for(state="hidden")


def test_the_focus_is_seen(open_page, site):
    page = open_page(f"{site}/{CHAPTER}")
    for _ in range(30):
        page.keyboard.press("Tab")
        style = f"getComputedStyle({FOCUSED})"
        how = page.evaluate(f"[{style}.outlineStyle, {style}.boxShadow]")
        assert how != ["none", "none"], page.evaluate(f"{FOCUSED}.outerHTML.slice(0, 200)")


A4 = 718  # pixels between margins of 10 mm


@pytest.mark.parametrize("name", ["flash_attention", "giou_nki"])
def test_a_chapter_can_be_printed(open_page, site, name):
    page = open_page(f"{site}/{PAGES[name]}.html", "dark", A4)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert page.locator("details:not([open])").count() == 0
    for shown in (".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-header-article", ".copybtn"):
        assert not page.locator(shown).first.is_visible(), shown
    # A picture, code or a table that reaches over the edge of the paper, or scrolls.
    cut = page.evaluate(
        """(width) => [...document.querySelectorAll(".bd-article *")].filter((node) =>
            !node.closest("math, defs, .headerlink") && node.getClientRects().length &&
            (node.getBoundingClientRect().right > width + 1 ||
             (getComputedStyle(node).overflowX == "auto" && node.scrollWidth > node.clientWidth + 1)
            )).map((node) => node.outerHTML.slice(0, 160))""",
        A4,
    )
    assert not cut, "\n".join(cut)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.pdf(format="A4", page_ranges="1-2").count(b"/Type /Page\n") > 1
