"""Formulas are drawn while the book is built, and one that MathJax does not understand stops it."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from commands import python

from kernels import optional

EXT = Path(__file__).resolve().parent.parent / "book" / "_ext"
CONF = f"""
import sys
sys.path.insert(0, {str(EXT)!r})
extensions = ["myst_parser", "sphinx.ext.mathjax", "sphinx-mathjax-offline", "typeset"]
myst_enable_extensions = ["amsmath", "dollarmath"]
"""
TEXT = r"""# A page

In a line: $x_i < y$.

$$ z = \sum_k x_k $$ (sum)

\begin{align}
a &= b \\
c &= d
\end{align}

See {eq}`sum`.
"""


def build(folder, text):
    (folder / "conf.py").write_text(CONF)
    (folder / "index.md").write_text(text)
    return python("-m", "sphinx", "-q", "-W", str(folder), str(folder / "html"), timeout=120)


@pytest.fixture(autouse=True)
def racer():
    try:
        optional.require("py_mini_racer", "drawing formulas")
    except optional.MissingPackage as missing:
        pytest.skip(str(missing))


def test_a_page_carries_its_formulas(tmp_path):
    done = build(tmp_path, TEXT)
    assert done.returncode == 0, done.stderr
    page = BeautifulSoup((tmp_path / "html" / "index.html").read_text(), "html.parser")
    formulas = page.select(".math")
    assert [node.name for node in formulas] == ["span", "div", "div"]
    for node in formulas:
        assert node.svg["aria-hidden"] == "true" and node.math
        assert "\\" not in node.get_text()
    assert [node.find("mi").get_text() for node in formulas] == ["x", "z", "a"]
    assert formulas[1].select_one(".eqno").get_text().startswith("(1)")
    ids = [node["id"] for node in page.select("[id]")]
    assert len(ids) == len(set(ids))
    used = {node["xlink:href"].removeprefix("#") for node in page.select("use")}
    assert used == {node["id"] for node in page.select("defs path[id]")}  # x and = only once
    assert not page.find("script", src=lambda src: src and "mathjax" in src)
    assert not (tmp_path / "html" / "_static" / "mathjax").exists()


@pytest.mark.parametrize(
    ("fault", "told"), [(r"\frac{1", "Missing close brace"), (r"\nosuch", "Undefined control")]
)
def test_a_wrong_formula_stops_the_build(tmp_path, fault, told):
    done = build(tmp_path, f"# A page\n\n$$ {fault} $$\n")
    assert done.returncode and told in done.stderr
