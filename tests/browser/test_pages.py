"""Every page in a real browser: it fits the window, light and dark, and everybody can read it."""

import importlib.util
from pathlib import Path

import build_book
import pytest

from kernels import optional

AXE = "axe_playwright_python"
HEAVIEST = 1.5e6  # bytes, not compressed
PAGES = [*build_book.toc_files(), "genindex", "search"]


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
    # One of each kind is enough of thousands: of the tokens of code, whose colours depend on it,
    # and of the rows of tables, but for their words. A formula's strokes are of no kind.
    page.evaluate(
        """() => {
            const seen = new Set();
            for (const token of document.querySelectorAll(".highlight span")) {
                const place = token.closest(".cell_output, .cell_input, details, main")?.className;
                const kind = [token.className, token.parentElement.className, place].join("|");
                if (seen.has(kind)) token.replaceWith(...token.childNodes);
                seen.add(kind);
            }
            for (const row of document.querySelectorAll("tr")) {
                const kind = row.parentElement.className + row.outerHTML
                    .replace(/>[^<]+</g, ">word<").replace(/ (href|id|title)="[^"]+"/g, " $1");
                if (seen.has(kind)) row.remove();
                seen.add(kind);
            }
            for (const formula of document.querySelectorAll(".math svg"))
                formula.replaceChildren();
        }"""
    )
    page.evaluate(axe)
    found = page.evaluate("axe.run({preload: false, resultTypes: ['violations']})")["violations"]
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


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


# Each page is opened twice: axe-core looks at a wide light one and at a narrow dark one.
@pytest.mark.parametrize(("scheme", "widths"), [("light", (1400, 400)), ("dark", (400, 1400))])
@pytest.mark.parametrize("name", PAGES)
def test_a_page(open_page, site, axe, name, scheme, widths):
    page = open_page(f"{site}/{name}.html", scheme, widths[0])
    assert page.locator("html").get_attribute("data-theme") == scheme
    wrong = beyond_the_window(page) + violations(page, axe)
    if scheme == "light":
        wrong += too_heavy(page)
    wrong += shrunk(page)
    page.set_viewport_size({"width": widths[1], "height": 900})
    wrong += beyond_the_window(page) + shrunk(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("<pre style='overflow: visible'>" + "planted" * 99, "pixels wide"),
        ("<img src='data:,'>", "image-alt"),
        ("<img class='plot' style='--drawn: 800px; width: 366px' alt='a' src='data:,'>", "of 800"),
        ("<p style='color: #ccc; background: #fff'>faint</p>", "color-contrast"),
        ("<button></button>", "button-name"),
        (
            "<div class='highlight'><pre><span style='color: #ccc'>faint</span></pre></div>",
            "contrast",
        ),
        ("<table><tr><td>one<tr><td>two<tr><td style='color: #ccc'>faint</table>", "contrast"),
    ],
)
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
