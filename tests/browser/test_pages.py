"""Every page in a real browser: it fits the window, light and dark, and everybody can read it."""

import importlib.util
import json
from pathlib import Path

import build_book
import pytest

from kernels import optional

AXE = "axe_playwright_python"
HEAVIEST = 1.5e6  # bytes, not compressed
# The theme lets keys reach what scrolls 0.3 s after a change of width: two frames on it has begun.
_THEN = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 320)))"
THEME_BEGINS = f"() => {{ window.themed = new Promise((done) => {_THEN}) }}"
AXE_RUNS = "window.themed.then(() => axe.run({preload: false, resultTypes: ['violations']}))"
PAGES = [*build_book.toc_files(), "genindex", "search"]
# What is wrong with a page, and what is told of it.
PLANTED = json.loads(Path(__file__).with_name("planted.json").read_text())


def optional_or_skip(module, purpose):
    try:
        optional.require(module, purpose)
    except optional.MissingPackage as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which the package brings along."""
    optional_or_skip(AXE, "the tests of accessibility")
    (folder,) = importlib.util.find_spec(AXE).submodule_search_locations
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    """What axe-core finds serious or critical, a line each."""
    page.evaluate(THEME_BEGINS)  # and goes on meanwhile
    if not page.evaluate("'axe' in window"):
        thin(page)
        page.evaluate(axe)
    found = page.evaluate(AXE_RUNS)["violations"]
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def thin(page):
    """Leave out what axe-core would find again."""
    # One of each kind is enough of thousands: of the tokens of code, whose colours depend on it,
    # and of what stands in one kind of place and differs but in its words. Buttons and boxes stay:
    # what scrolls has to be reached by keys; and links of headings, which the theme lights up where
    # a page has no contents. A formula's strokes are of no kind.
    page.evaluate(
        """() => {
            const seen = new Set(), places = new Map([[document, ""]]);
            const again = (...kind) => seen.size == seen.add(kind.join("|")).size;
            const alike = (html) => html.replace(/(^|>)[^<]+/g, "$1word")
                .replace(/ (href|id|title)="[^"]+"/g, " $1");
            const place = (node) => places.get(node) ?? places.set(
                node, place(node.parentNode) + alike(node.cloneNode().outerHTML)).get(node);
            for (const formula of document.querySelectorAll(".math svg"))
                formula.replaceChildren();
            for (const token of document.querySelectorAll(".highlight span")) {
                const where = token.closest(".cell_output, .cell_input, details, main")?.className;
                if (again(token.className, token.parentElement.className, where))
                    token.replaceWith(...token.childNodes);
            }
            for (const node of document.querySelectorAll(
                "tr, li, dl, dt *, p, :is(em, strong, code):not(a *)"))
                if (node.isConnected && !node.matches(".headerlink, :has(.headerlink)")
                    && again(place(node), alike(node.innerHTML))) node.remove();
        }"""
    )


def look(page, scheme, width):
    """Show the page in this scheme and width, as it is after all transitions."""
    page.emulate_media(color_scheme=scheme)
    page.locator(f"html[data-theme={scheme}]").wait_for(state="attached")
    page.set_viewport_size({"width": width, "height": 900})


def beyond_the_window(page):
    """What sticks out where the page scrolls sideways, a line each."""
    return page.evaluate(
        """() => {
            const root = document.documentElement, width = root.clientWidth;
            if (root.scrollWidth <= width) return [];
            const out = [...document.querySelectorAll("body *")].filter(
                (node) => node.getBoundingClientRect().right > width + 1);
            return [`${root.scrollWidth} of ${width} pixels wide`,
                ...out.slice(-4).map((node) => node.outerHTML.slice(0, 120))];
        }"""
    )


def shrunk(page):
    """Plots that a narrow window makes so small that nobody reads their small print."""
    return page.evaluate(
        """() => [...document.querySelectorAll("img.plot")]
            .filter((plot) => plot.getClientRects().length)
            .map((plot) => [plot, parseFloat(plot.style.getPropertyValue("--drawn"))])
            .filter(([plot, drawn]) => plot.clientWidth < 0.75 * drawn)
            .map(([plot, drawn]) => `${plot.clientWidth} of ${drawn} pixels: ${plot.alt}`)"""
    )


def too_heavy(page):
    """What a page over the limit loads before anybody touches it, the heaviest first."""
    # Without mini-racer the browser loads MathJax, 1.2 MB.
    if not optional.available("py_mini_racer"):
        return []
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate(
        """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
            .map((entry) => [entry.decodedBodySize, entry.name])"""
    )
    total = sum(size for size, _ in loaded)
    if total <= HEAVIEST:
        return []
    lines = [f"{size} bytes: {name}" for size, name in sorted(loaded, reverse=True)[:8]]
    return [f"{total} bytes", *lines]


@pytest.fixture(scope="module")
def shared(browser):
    """A context for all pages: what they have in common, the first one loads."""
    # What plays would keep the theme from its work after a change of width.
    return browser.new_context(reduced_motion="reduce")


# Of its four looks axe-core examines a wide dark one and a narrow light one: of pages in turn, and
# both of each in the tier full.
@pytest.mark.parametrize("name", PAGES)
def test_a_page(open_page, shared, site, axe, name, pytestconfig):
    page, wrong = open_page(f"{site}/{name}.html", context=shared), []
    for scheme, width in (("light", 400), ("light", 1400), ("dark", 400), ("dark", 1400)):
        look(page, scheme, width)
        wrong += beyond_the_window(page) + shrunk(page)
    every = pytestconfig.getoption("tier") == "full"
    if every or PAGES.index(name) % 2:
        wrong += violations(page, axe)
    if every or not PAGES.index(name) % 2:
        look(page, "light", 400)
        wrong += violations(page, axe)
    wrong += too_heavy(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("planted", "told"), PLANTED["seen"])
def test_what_is_wrong_with_a_page_is_noticed(open_page, site, axe, planted, told):
    page = open_page(f"{site}/search.html", width=400)
    page.evaluate("text => document.querySelector('main').innerHTML += text", planted)
    found = beyond_the_window(page) + violations(page, axe) + shrunk(page)
    assert any(told in line for line in found), found


def test_a_heavy_page_is_noticed(open_page, site, monkeypatch):
    optional_or_skip("py_mini_racer", "light pages")
    page = open_page(f"{site}/search.html")
    monkeypatch.setitem(globals(), "HEAVIEST", 1e5)
    assert any("pydata-sphinx-theme.css" in line for line in too_heavy(page))


@pytest.mark.parametrize(("planted", "told"), PLANTED["heard"])
def test_a_fault_is_noticed(browser, open_page, faults, site, planted, told):
    page = open_page(f"{site}/search.html")
    assert not faults
    page.set_content(planted)
    page.wait_for_load_state("networkidle")
    assert any(told in fault for fault in faults), faults
    faults.clear()
