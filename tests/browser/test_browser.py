"""The fixtures of this folder notice what a page does wrong."""

import pytest


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("<script>console.error('planted')</script>", "console: planted"),
        ("<script>throw Error('planted')</script>", "error: planted"),
        ("<img src='http://example.org/a.png'>", "asks elsewhere: http://example.org/a.png"),
        ("<img src='gone.png'>", "404"),
    ],
)
def test_a_fault_is_noticed(browser, open_page, faults, site, planted, told):
    page = open_page(f"{site}/search.html")
    assert not faults
    page.set_content(planted)
    page.wait_for_load_state("networkidle")
    assert any(told in fault for fault in faults), faults
    faults.clear()


def test_the_window_is_as_asked(open_page, site):
    for scheme, width in (("light", 1400), ("dark", 400)):
        page = open_page(f"{site}/search.html", scheme, width)
        assert page.evaluate("innerWidth") == width
        assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
