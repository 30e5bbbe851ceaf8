"""The book builds without a warning, is whole, and needs no network to read."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import build_book
import nbformat
import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
REMOTE = re.compile(r"^\s*(https?:)?//", re.I)
# What a browser fetches by itself, so not the links that a reader may follow.
FETCHED = [
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("image", "href"),
    ("use", "href"),
]
IN_CSS = re.compile(r"""(?:@import\s+|url\()\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.I)


@functools.lru_cache
def soup(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def pages(html):
    found = sorted(path for path in html.rglob("*.html") if "_static" not in path.parts)
    assert len(found) >= len(build_book.toc_files())
    return found


def test_every_page_of_the_toc_is_there(html):
    for name in build_book.toc_files():
        assert (html / f"{name}.html").is_file(), name


def test_every_notebook_shows_what_it_answered(html, not_run):
    for path in build_book.toc_notebooks():
        page = soup(html / path.relative_to(ROOT).with_suffix(".html"))
        shows = bool(page.select("div.cell_output"))
        assert shows == (path not in not_run), f"{path.name} shows {'an' if shows else 'no'} output"
        assert not page.select("div.output.traceback"), f"{path.name} shows a traceback"


def remote_in_page(page):
    """Whatever a browser would fetch from elsewhere when it opens the page."""
    for tag, attribute in FETCHED:
        for node in page.find_all(tag, attrs={attribute: REMOTE}):
            yield f"<{tag} {attribute}={node[attribute]}>"
    for link in page.find_all("link", href=REMOTE):
        if not {"canonical", "next", "prev", "author", "license"} & set(link.get("rel", [])):
            yield f"<link rel={link.get('rel')} href={link['href']}>"
    for node in page.find_all(style=IN_CSS):
        yield f"style={node['style']}"
    for style in page.find_all("style"):
        yield from IN_CSS.findall(style.get_text())
    for script in page.find_all("script", src=False):
        # A script in the page may fetch one more: thebe's did.
        yield from re.findall(r"""["'](https?://[^"']+\.m?js)["']""", script.get_text())


def test_no_page_fetches_anything_from_elsewhere(html):
    remote = {
        f"{path.relative_to(html)}: {what}"
        for path in pages(html)
        for what in remote_in_page(soup(path))
    }
    remote |= {
        f"{path.relative_to(html)}: {what}"
        for path in html.rglob("*.css")
        for what in IN_CSS.findall(path.read_text(encoding="utf-8"))
    }
    assert not remote, "\n".join(sorted(remote))


def test_every_icon_has_its_rule_and_its_drawing(html):
    """The build drops what no page uses, of the style sheet and of the font."""
    fonts = pytest.importorskip("fontTools.ttLib")
    static = html / "_static"
    css = (static / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    rules = re.findall(r'((?:\.fa-[a-z0-9-]+:before,?)+)\{content:"\\([0-9a-f]+) ?"', css)
    codes = {n: int(code, 16) for names, code in rules for n in re.findall(r"fa-[a-z0-9-]+", names)}
    font = static / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.woff2"
    drawn = fonts.TTFont(font).getBestCmap()
    icons = [i["class"] for path in pages(html) for i in soup(path).select("i.fa-solid, i.fas")]
    assert icons
    for icon in icons:
        assert any(codes.get(name) in drawn for name in icon), icon
    assert len(codes) < 200, "icons that no page uses are still there"


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<link rel="preload" as="font" href="https://example.org/a.woff2">',
        '<img src="http://example.org/a.png">',
        '<div style="background: url(https://example.org/a.png)"></div>',
        "<style>@import 'https://example.org/a.css';</style>",
        '<script>const URL = "https://example.org/a.js"</script>',
    ],
)
def test_a_remote_resource_is_found(planted):
    assert list(remote_in_page(BeautifulSoup(planted, "html.parser")))


def lychee(*paths):
    """Check the links between pages, anchors included, without the network."""
    return subprocess.run(
        [
            Path(sys.executable).with_name("lychee"),
            "--offline",
            "--include-fragments",
            "--no-progress",
            "--root-dir",
            build_book.HTML,
            *paths,
        ],
        capture_output=True,
        text=True,
    )


def test_no_link_between_pages_is_broken(html):
    done = lychee(*pages(html))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_link_is_found(html, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<a href="gone.html">gone</a>')
    assert lychee(page).returncode
    page.write_text('<h1 id="here">here</h1><a href="#there">gone</a>')
    assert lychee(page).returncode


def test_the_search_finds_what_chapters_speak_of(html):
    index = (html / "searchindex.js").read_text(encoding="utf-8").lower()
    for term in ("vmem", "kernel"):
        assert re.search(rf'["{{,]{term}"?:', index), term


def write_notebook(path, *sources):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(notebook, path)
    return path


@pytest.mark.slow
def test_a_failing_notebook_is_told_by_cell(tmp_path):
    def fault(source):
        path = write_notebook(tmp_path / "fault.ipynb", "1 + 1", source)
        with pytest.raises(build_book.BookError) as error:
            build_book.run_notebook(path, timeout=5)
        return str(error.value)

    message = fault("1 / 0")
    assert "fault.ipynb, code cell 2" in message and "ZeroDivisionError" in message
    message = fault("import sys; print('a warning', file=sys.stderr)")
    assert "fault.ipynb, code cell 2 wrote to stderr" in message and "a warning" in message
    message = fault("import time; time.sleep(60)")
    assert "fault.ipynb, code cell 2" in message and "longer than 5 s" in message


# A cell that requires a package which nobody has.
LACKS = """
from kernels import optional
optional.EXTRAS["no_such_package"] = "dev"
optional.require("no_such_package", "drawing")
"""


@pytest.mark.slow
def test_a_notebook_that_lacks_a_package_is_named_and_kept_unexecuted(tmp_path, monkeypatch):
    monkeypatch.setattr(build_book, "BUILD", tmp_path)
    monkeypatch.setattr(build_book, "CACHE", tmp_path / "cache")
    lacks = write_notebook(tmp_path / "lacks.ipynb", "print('shown')", LACKS)
    whole = write_notebook(tmp_path / "whole.ipynb", "print('shown')")
    paths = [lacks, whole]
    lines = []

    def executed():
        """How many notebooks one more call executes, and which lack a package."""
        before = len(lines)
        missing = build_book.run_notebooks(paths, 60, lines.append)
        return sum("executed" in line for line in lines[before:]), missing

    assert executed() == (1, [lacks])
    told = r"not run: lacks\.ipynb: no_such_package is needed for drawing.*Install it with .pip"
    assert [line for line in lines if re.search(told, line)]
    cache = build_book.get_cache(str(build_book.CACHE))
    shows = []
    for path in paths:
        _, merged = cache.merge_match_into_notebook(nbformat.read(path, as_version=4))
        shows.append([len(cell.outputs) for cell in merged.cells])
    assert shows == [[0, 0], [1]]
    # It is tried again each time, the other one is not; once the package is there, it is executed.
    assert executed() == (0, [lacks])
    (tmp_path / "no_such_package.py").touch()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        assert executed() == (1, [])
        assert executed() == (0, [])
    # Any other error stays one; so does an import that is not required through the package.
    write_notebook(lacks, "import no_such_package")
    with pytest.raises(build_book.BookError, match=r"lacks\.ipynb, code cell 1"):
        build_book.run_notebooks(paths, 60, lines.append)


def nbmake(folder):
    """Run nbmake on the notebooks of a folder, with the book's cache inside it."""
    command = ["--nbmake", "-rs", "-n0", "-p", "no:cacheprovider", "."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *command],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "tools"), "KERNELS_BUILD": str(folder / "_build")},
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.slow
def test_pytest_skips_a_notebook_that_lacks_a_package(tmp_path):
    shutil.copy(ROOT / "notebooks" / "conftest.py", tmp_path)
    write_notebook(tmp_path / "lacks.ipynb", LACKS)
    write_notebook(tmp_path / "fails.ipynb", "import no_such_package")
    said = nbmake(tmp_path)
    assert "1 failed, 1 skipped" in said, said
    assert "not run: lacks.ipynb: no_such_package is needed for drawing" in said


@pytest.mark.slow
def test_tests_and_book_execute_a_notebook_once(tmp_path, monkeypatch):
    """Whoever comes first; a changed cell, or a changed package, is executed again."""
    monkeypatch.setattr(build_book, "BUILD", tmp_path / "_build")
    monkeypatch.setattr(build_book, "CACHE", tmp_path / "_build" / ".jupyter_cache")
    shutil.copy(ROOT / "notebooks" / "conftest.py", tmp_path)
    runs = tmp_path / "runs"
    runs.write_text("")
    count = f"with open({str(runs)!r}, 'a') as file: file.write('.')"
    path = write_notebook(tmp_path / "once.ipynb", count)
    assert build_book.run_notebooks([path], 60, str) == []
    assert "1 passed" in nbmake(tmp_path)
    assert runs.read_text() == "."
    write_notebook(path, count, "1 + 1")
    assert "1 passed" in nbmake(tmp_path)
    assert build_book.run_notebooks([path], 60, str) == []
    assert runs.read_text() == ".."
    monkeypatch.setattr(build_book, "digest", lambda *patterns: "another package")
    assert build_book.run_notebooks([path], 60, str) == []
    assert runs.read_text() == "..."
