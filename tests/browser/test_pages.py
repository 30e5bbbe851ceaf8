"""Every page in a real browser: it fits the window, light and dark, and everybody can read it."""

import json
from pathlib import Path

import build_book
import pytest
from commands import weekly

from kernels import optional

HEAVIEST = 1.5e6  # bytes, not compressed
# Scheme and width, each one step from the next, the last from the first.
WAYS = [("light", 1400), ("dark", 1400), ("dark", 400), ("light", 400)]
PAGES = [*build_book.toc_files(), "genindex", "search"]
# What is wrong with a page, and what is told of it.
PLANTED = json.loads(Path(__file__).with_name("planted.json").read_text())
LOOKS = Path(__file__).with_name("looks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which the package brings along."""
    [folder] = pytest.importorskip("axe_playwright_python").__path__
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


def ask(page, question):
    """What a function of looks.js answers."""
    return page.evaluate(f"{LOOKS.rstrip()}.{question}()")


def violations(page, axe):
    """What axe-core finds serious or critical, a line each."""
    ask(page, "thin")
    ask(page, "themeBegins")  # after what changes the page, and goes on meanwhile
    page.evaluate(axe)
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}"
        for rule in ask(page, "examined")
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def look(page, scheme, width):
    """Show the page in this scheme and width, as it is after all transitions."""
    page.emulate_media(color_scheme=scheme)
    page.locator(f"html[data-theme={scheme}]").wait_for(state="attached")
    page.set_viewport_size({"width": width, "height": 900})


def does_not_fit(page):
    """What sticks out where the page scrolls sideways, and plots so small in a narrow window that
    nobody reads their small print, a line each."""
    return ask(page, "beyondTheWindow") + ask(page, "shrunk")


def too_heavy(page):
    """What a page over the limit loads before anybody touches it, the heaviest first."""
    # Without mini-racer the browser loads MathJax, 1.2 MB.
    if not optional.available("py_mini_racer"):
        return []
    page.wait_for_load_state("networkidle")
    loaded = ask(page, "loaded")
    total = sum(size for size, _ in loaded)
    if total <= HEAVIEST:
        return []
    lines = [f"{size} bytes: {name}" for size, name in sorted(loaded, reverse=True)[:8]]
    return [f"{total} bytes", *lines]


def in_turn(place, name):
    """Of ledgers, and of the pages of the package, which are generated alike, the tier full alone
    opens two of three."""
    alike = name.startswith(("book/ledger/", "book/api/"))
    return weekly(name) if alike and place % 3 else name


# Of its four looks axe-core examines the last: of pages in turn a wide dark one and a narrow light
# one, and both of each in the tier full.
@pytest.mark.parametrize("name", map(in_turn, range(len(PAGES)), PAGES))
def test_a_page(open_page, tab, site, axe, name, pytestconfig):
    wrong, turn = [], PAGES.index(name) % 2 * 2
    ways = [*WAYS[turn:], *WAYS[:turn]]
    page = open_page(f"{site}/{name}.html", *ways[0], page=tab)
    for way in ways:
        look(page, *way)
        wrong += does_not_fit(page)
    wrong += violations(page, axe)
    if pytestconfig.getoption("tier") == "full":
        look(page, *ways[1])
        wrong += violations(page, axe)
    wrong += too_heavy(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("planted", "told"), PLANTED["seen"])
def test_what_is_wrong_with_a_page_is_noticed(open_page, tab, site, axe, planted, told):
    page = open_page(f"{site}/search.html", width=400, page=tab)
    page.evaluate("text => document.querySelector('main').innerHTML += text", planted)
    found = does_not_fit(page) + violations(page, axe)
    assert any(told in line for line in found), found


def test_a_heavy_page_is_noticed(open_page, tab, site, monkeypatch):
    pytest.importorskip("py_mini_racer")
    page = open_page(f"{site}/search.html", page=tab)
    monkeypatch.setitem(globals(), "HEAVIEST", 1e5)
    assert any("pydata-sphinx-theme.css" in line for line in too_heavy(page))


@pytest.mark.parametrize(("planted", "told"), PLANTED["heard"])
def test_a_fault_is_noticed(open_page, faults, site, planted, told):
    page = open_page(f"{site}/search.html")
    assert not faults
    page.set_content(planted)
    page.wait_for_load_state("networkidle")
    assert any(told in fault for fault in faults), faults
    faults.clear()
