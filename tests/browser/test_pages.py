"""Every page in a real browser: it fits the window, light and dark, and everybody can read it."""

import importlib.util
from pathlib import Path

import build_book
import pytest

from kernels import optional

AXE = "axe_playwright_python"
PAGES = [*build_book.toc_files(), "genindex", "search"]


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which the package brings along."""
    try:
        optional.require(AXE, "the tests of accessibility")
    except optional.MissingPackage as missing:
        pytest.skip(str(missing))
    (folder,) = importlib.util.find_spec(AXE).submodule_search_locations
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    """What axe-core finds serious or critical, a line each."""
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
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


# Each page is opened twice: axe-core looks at a wide light one and at a narrow dark one.
@pytest.mark.parametrize(("scheme", "widths"), [("light", (400, 1400)), ("dark", (1400, 400))])
@pytest.mark.parametrize("name", PAGES)
def test_a_page(open_page, site, axe, name, scheme, widths):
    page = open_page(f"{site}/{name}.html", scheme, widths[0])
    assert page.locator("html").get_attribute("data-theme") == scheme
    wrong = beyond_the_window(page)
    page.set_viewport_size({"width": widths[1], "height": 900})
    wrong += beyond_the_window(page) + violations(page, axe)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("<pre style='overflow: visible'>" + "planted " * 99, "planted"),
        ("<img src='data:,'>", "image-alt"),
        ("<p style='color: #ccc; background: #fff'>faint</p>", "color-contrast"),
        ("<button></button>", "button-name"),
    ],
)
def test_what_is_wrong_with_a_page_is_noticed(open_page, site, axe, planted, told):
    page = open_page(f"{site}/search.html", width=400)
    page.evaluate("text => document.querySelector('main').innerHTML += text", planted)
    found = beyond_the_window(page) + violations(page, axe)
    assert any(told in line for line in found), found
