"""The book builds without a warning, is whole, and needs no network to read."""

import html as html_text
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import build_book
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup, SoupStrainer
from commands import process, python
from sqlalchemy.exc import DatabaseError

ROOT = Path(__file__).resolve().parent.parent
TRACEBACK = re.compile(r'<div class="output traceback\b')
REMOTE = re.compile(r"^\s*(https?:)?//", re.I)
# What a browser fetches by itself, so not the links that a reader may follow.
FETCHED = [(tag, "src") for tag in ("script", "img", "source", "iframe", "video", "audio", "embed")]
FETCHED += [("img", "srcset"), ("source", "srcset"), ("object", "data")]
FETCHED += [("image", "href"), ("use", "href")]
LOADS = {"link", "style", "script", *(tag for tag, _ in FETCHED)}
STYLE = re.compile(r"""\sstyle\s*=\s*(["'])(.*?)\1""", re.I | re.S)
IN_CSS = re.compile(r"""(?:@import\s+|url\()\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.I)


def pages(html):
    paths = sorted(path for path in html.rglob("*.html") if "_static" not in path.parts)
    assert len(paths) >= len(build_book.toc_files())
    return paths


def test_no_page_shows_a_traceback(html, not_run):
    for path in build_book.toc_notebooks():
        page = (html / path.relative_to(ROOT).with_suffix(".html")).read_text(encoding="utf-8")
        assert not TRACEBACK.search(page), f"{path.name} shows a traceback"
        assert path not in not_run or '<div class="cell_output' not in page, path.name


def test_every_warm_up_is_open_and_its_solution_right(html, not_run):
    """By what the cells answered when the book was built."""
    for path in {*build_book.toc_notebooks()} - {*not_run}:
        cells = build_book.code_cells(build_book.kept(path)[0])
        tried = [cell for cell in cells if "exercises.warm_up(" in cell.source]
        for cell in tried:
            words = "".join(o.get("data", {}).get("text/plain", "") for o in cell.outputs)
            wanted = "not written yet" if "# yours" in cell.source else "right"
            assert words.rpartition(": ")[2] == wanted, f"{path.name}: {cell.source}"
        solutions = sum("# A solution" in cell.source for cell in tried)
        assert sum("# yours" in cell.source for cell in tried) == solutions >= 3, path.name


def remote_in_page(text):
    """Whatever a browser would fetch from elsewhere when it opens the page."""
    # Of what loads something alone: the tree of a whole page takes much longer.
    page = BeautifulSoup(text, "html.parser", parse_only=SoupStrainer([*LOADS]))
    for tag, attribute in FETCHED:
        for node in page.find_all(tag, attrs={attribute: REMOTE}):
            yield f"<{tag} {attribute}={node[attribute]}>"
    for link in page.find_all("link", href=REMOTE):
        if not {"canonical", "next", "prev", "author", "license"} & set(link.get("rel", [])):
            yield f"<link rel={link.get('rel')} href={link['href']}>"
    for _, style in STYLE.findall(text):
        yield from IN_CSS.findall(html_text.unescape(style))
    for style in page.find_all("style"):
        yield from IN_CSS.findall(style.get_text())
    for script in page.find_all("script", src=False):
        # A script in the page may fetch one more: thebe's did.
        yield from re.findall(r"""["'](https?://[^"']+\.m?js)["']""", script.get_text())


def test_no_page_fetches_anything_from_elsewhere(html):
    files = [(path, remote_in_page) for path in pages(html)]
    files += [(path, IN_CSS.findall) for path in html.rglob("*.css")]
    remote = {
        f"{path.relative_to(html)}: {what}"
        for path, finds in files
        for what in finds(path.read_text(encoding="utf-8"))
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
    texts = (path.read_text(encoding="utf-8") for path in pages(html))
    classes = [names.split() for text in texts for names in re.findall(r'<i class="([^"]+)', text)]
    icons = [names for names in classes if {"fa-solid", "fas"} & {*names}]
    assert icons
    for icon in icons:
        assert any(codes.get(name) in drawn for name in icon), icon
    assert len(codes) < 200, "icons that no page uses are still there"
    boxes = dict(re.findall(r'--(pst-icon-[a-z-]+):"(.)"', css))
    for name in re.findall(r"--pst-icon-admonition-[a-z]+:var\(--([a-z-]+)\)", css):
        assert ord(boxes[name]) in drawn, name


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<img src="http://example.org/a.png">',
        '<div style="background: url(https://example.org/a.png)"></div>',
        "<p style='background: url(&quot;//example.org/a.png&quot;)'></p>",
        "<style>@import 'https://example.org/a.css';</style>",
        '<script>const URL = "https://example.org/a.js"</script>',
    ],
)
def test_a_remote_resource_is_found(planted):
    assert list(remote_in_page(planted))


def lychee(*paths):
    """Check the links between pages, anchors included, without the network."""
    program = Path(sys.executable).with_name("lychee")
    options = ["--offline", "--include-fragments", "--no-progress", "--root-dir", build_book.HTML]
    return process(program, *options, *paths)


def test_no_link_between_pages_is_broken(html):
    done = lychee(*pages(html))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_link_is_found(html, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<a href="gone.html">gone</a>')
    assert lychee(page).returncode
    page.write_text('<h1 id="here">here</h1><a href="#there">gone</a>')
    assert lychee(page).returncode


def write_notebook(path, *sources):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(notebook, path)
    return path


@pytest.mark.slow
def test_a_failing_notebook_is_told_by_cell(tmp_path):
    shown = set()

    def fault(source, timeout=60):
        path = write_notebook(tmp_path / "fault.ipynb", "1 + 1", source, "print('after')")
        with pytest.raises(build_book.Failed) as failure:
            build_book.run_notebook(path, timeout)
        shown.add(build_book.outputs_of(path, {path: failure.value}))
        outputs = [cell.outputs for cell in failure.value.notebook.cells]
        assert outputs[0] and outputs[1] and not outputs[2]
        title, line = failure.value.brief.splitlines()
        assert str(failure.value).startswith(title) and title.startswith("fault.ipynb, code cell 2")
        return title.partition(": ")[2], line.removeprefix("    "), str(failure.value)

    error, line, story = fault("x = 0\n1 / x")
    assert (error, line) == ("ZeroDivisionError: division by zero", "1 / x")
    assert "Traceback (most recent call last)" in story
    assert fault("assert None")[0] == "AssertionError"
    error, line, story = fault("raise ValueError('\\n  two\\n  lines')")
    assert error == "ValueError: two lines"
    assert len(fault("raise ValueError('long' * 1000)")[0]) == 160
    error, line, story = fault("import sys\nprint('a warning\\nand more', file=sys.stderr)")
    assert (error, line) == ("wrote to stderr: and more", "import sys")
    assert "a warning\nand more" in story
    assert fault("import warnings\nwarnings.warn('old')")[0].endswith(": UserWarning: old")
    error, line, story = fault("import time; time.sleep(60)", timeout=1)
    assert error == "took longer than 1 s, the timeout in _config.yml"
    error, line, story = fault("import os\nos.write(2, b'why'); os.abort()")
    assert error == "ended the kernel" and "why" in story
    assert len(shown) == 8, "a page would not be made anew where another cell fails"


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kernel_that_does_not_start_is_started_once_more(tmp_path, monkeypatch, deaths):
    monkeypatch.setenv("HOME", os.devnull)  # nor does it need a home
    path = write_notebook(tmp_path / "whole.ipynb", "import matplotlib.pyplot\nprint('shown')")
    execute, starts = build_book.nbclient.NotebookClient.execute, []

    def die(client, **options):
        starts.append(client)
        if len(starts) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return execute(client, **options)

    monkeypatch.setattr(build_book.nbclient.NotebookClient, "execute", die)
    if deaths == 1:
        notebook, _ = build_book.run_notebook(path, timeout=60)
        assert notebook.cells[0].outputs[0].text == "shown\n"
    else:
        with pytest.raises(RuntimeError, match="before replying"):
            build_book.run_notebook(path, timeout=60)
    assert len(starts) == 2


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
    paths = [lacks, write_notebook(tmp_path / "whole.ipynb", "print('shown')")]
    lines = []

    def executed():
        """How many notebooks one more call executes, and which lack a package."""
        before = len(lines)
        missing, failed = build_book.run_notebooks(paths, 60, lines.append)
        assert not failed
        return sum("executed" in line for line in lines[before:]), missing

    assert executed() == (1, [lacks])
    notice = r"not run: lacks\.ipynb: no_such_package is needed for drawing.*Install it with .pip"
    assert [line for line in lines if re.search(notice, line)]
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
        assert executed() == (1, []) and executed() == (0, [])
    # Any other error stays one; so does an import that is not required through the package.
    write_notebook(lacks, "import no_such_package")
    missing, failed = build_book.run_notebooks(paths, 60, lines.append)
    assert missing == [] and "lacks.ipynb, code cell 1: ModuleNotFound" in str(failed.pop(lacks))
    assert not failed


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda entry: entry.write_text(entry.read_text().replace("right", "wrong")),
            "what was kept of it is damaged (its checksum is another)",
        ),
        (lambda entry: entry.write_bytes(entry.read_bytes()[:99]), "is damaged"),
        (lambda entry: entry.unlink(), "is damaged"),  # killed between folder and file
        (lambda entry: shutil.rmtree(entry.parent), "is damaged"),  # and before both
        (lambda entry: (entry.parents[2] / "global.db").write_bytes(b"none" * 99), "all note"),
    ],
)
def test_a_damaged_entry_of_the_cache_is_told_and_never_shown(
    tmp_path, monkeypatch, capsys, damage, message
):
    monkeypatch.setattr(build_book, "BUILD", tmp_path)
    monkeypatch.setattr(build_book, "CACHE", tmp_path / "cache")
    path = write_notebook(tmp_path / "one.ipynb", "print('shown')")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="right")]
    for _ in range(2):
        build_book.keep(path, notebook, execution_seconds=1.0)
        assert build_book.kept(path)[0].cells[0].outputs[0].text == "right"
        (entry,) = (tmp_path / "cache").rglob("*.ipynb")
        damage(entry)
        assert build_book.kept(path) is None and message in capsys.readouterr().out


@pytest.mark.parametrize(
    "full", [OSError(28, "No space left on device"), DatabaseError("INSERT", {}, Exception("disk"))]
)
def test_a_full_disk_is_told_in_a_line(monkeypatch, capsys, full):
    monkeypatch.setattr(sys, "argv", ["build_book.py"])
    monkeypatch.setattr(build_book, "build_book", Mock(side_effect=full))
    assert build_book.main() == 1
    line = r"^\nNot built: .*(disk|space).*make book goes on\.\n$"
    assert re.search(line, capsys.readouterr().err)


@pytest.mark.slow
def test_tests_and_book_execute_a_notebook_once(tmp_path, monkeypatch):
    """Whoever comes first; a changed cell, or a changed package, is executed again. What lacks a
    package is skipped by name."""
    monkeypatch.setattr(build_book, "BUILD", tmp_path / "_build")
    monkeypatch.setattr(build_book, "CACHE", tmp_path / "_build" / ".jupyter_cache")
    shutil.copy(ROOT / "notebooks" / "conftest.py", tmp_path)
    runs = tmp_path / "runs"
    runs.write_text("")
    count = "with open({!r}, 'a') as file: file.write({!r})".format
    books = write_notebook(tmp_path / "books.ipynb", count(str(runs), "b"))
    changed = write_notebook(tmp_path / "changed.ipynb", count(str(runs), "c"))
    assert build_book.run_notebooks([books, changed], 60, str) == ([], {})
    assert sorted(runs.read_text()) == ["b", "c"]
    write_notebook(changed, count(str(runs), "C"))
    write_notebook(tmp_path / "lacks.ipynb", LACKS)
    write_notebook(tmp_path / "fails.ipynb", "import no_such_package")
    # build_book first: it makes the start of nbmake short.
    command = ["-p", "build_book", "--nbmake", "-rs", "-n0", "-p", "no:cacheprovider", "."]
    paths = os.pathsep.join(str(ROOT / name) for name in ("tools", "tests"))
    env = os.environ | {"PYTHONPATH": paths, "KERNELS_BUILD": str(build_book.BUILD)}
    said = python("-m", "pytest", *command, cwd=tmp_path, env=env).stdout
    assert "1 failed, 2 passed, 1 skipped" in said, said
    assert "not run: lacks.ipynb: no_such_package is needed for drawing" in said
    assert build_book.run_notebooks([books, changed], 60, str) == ([], {})
    assert sorted(runs.read_text()) == ["C", "b", "c"]
    monkeypatch.setattr(build_book, "digest", lambda *patterns: "another package")
    assert build_book.run_notebooks([books], 60, str) == ([], {})
    assert sorted(runs.read_text()) == ["C", "b", "b", "c"]


@pytest.fixture
def small_book(tmp_path_factory):
    """The folder of a book of three chapters, of which two fail as long as there is no file named
    mended: `hidden` in a cell that its page does not show, `loud` by what it says on stderr."""
    tmp_path = tmp_path_factory.mktemp("a book")  # with a space in its name
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["sphinx"]["local_extensions"] = {"failures": str(ROOT / "book" / "_ext")}
    chapters = [{"file": f"notebooks/{name}"} for name in ("hidden", "loud", "right")]
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config))
    toc = {"format": "jb-book", "root": "book/index", "chapters": chapters}
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc))
    for folder in ("book", "notebooks", "tools"):
        (tmp_path / folder).mkdir()
    (tmp_path / "book" / "index.md").write_text("# A book\n")
    (tmp_path / "book" / "references.bib").touch()
    (tmp_path / "book" / "_static").symlink_to(ROOT / "book" / "_static")
    for name in ("build_book.py", "xla_flags.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    (tmp_path / "book" / "_ext").symlink_to(ROOT / "book" / "_ext")
    whole = f"import os, sys\nwhole = os.path.exists({str(tmp_path / 'mended')!r})"
    fails = "# why\nassert whole, '''not <so>:\n$ ?'''"
    write_chapter(tmp_path, "hidden", whole, "print('until here')", fails)
    write_chapter(tmp_path, "loud", whole, "whole or print('a warning', file=sys.stderr)")
    write_chapter(tmp_path, "right", "print('until here')")
    for folder in (tmp_path, tmp_path / "notebooks"):  # no business of the book's
        (folder / ".hidden").mkdir()
        write_notebook(folder / ".hidden" / "copy.ipynb", "1 / 0")
    return tmp_path


def write_chapter(book, name, *sources):
    """A chapter with a title; its last cell is not shown, the one before it is."""
    path = write_notebook(book / "notebooks" / f"{name}.ipynb", *sources, "print('after')")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(f"# The {name} one"))
    notebook.cells[-2].metadata["tags"] = ["remove-cell"] if name == "hidden" else []
    nbformat.write(notebook, path)


def build_small(book):
    env = {name: value for name, value in os.environ.items() if name != "KERNELS_BUILD"}
    return python("build_book.py", cwd=book / "tools", env=env)


def small_page(book, name):
    """A page of a small book as it is now, and the words of its banner."""
    text = (book / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser").article
    banner = page.select_one(".admonition")
    return page, banner and " ".join(banner.get_text(" ").split())


@pytest.mark.slow
def test_a_failing_chapter_leaves_the_others_readable(small_book):
    done = build_small(small_book)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "hidden.ipynb, code cell 3: AssertionError: not <so>: $ ?",
        "    assert whole, '''not <so>:",
        "loud.ipynb, code cell 2: wrote to stderr: a warning",
        "    whole or print('a warning', file=sys.stderr)",
        "The book is built without the outputs after these cells; make serve shows it. "
        "Whole tracebacks: _build/failed.log",
    ]
    log = (small_book / "_build" / "failed.log").read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in log and "loud.ipynb, code cell 2" in log

    assert not [*(small_book / "_build" / "html").rglob("copy*.html")]
    page, banner = small_page(small_book, "notebooks/right")
    assert banner is None and "until here" in page.get_text() and "after" in page.get_text()
    page, banner = small_page(small_book, "notebooks/hidden")
    assert "failed at code cell 3" in banner and "AssertionError: not <so>" in banner
    assert re.search(r"Python 3\.\d+\.\d+ and JAX \d", banner) and "no outputs" in banner
    assert page.select_one("h1 + .admonition a[href='#failed-cell']")
    shown = [output.get_text().strip() for output in page.select("div.cell_output")]
    assert shown[0] == "until here" and "AssertionError" in shown[1] and len(shown) == 2
    assert TRACEBACK.search(str(page))
    assert "assert whole" in page.select_one("#failed-cell .cell_input").get_text()
    page, banner = small_page(small_book, "notebooks/loud")
    assert "failed at code cell 2" in banner and "wrote to stderr: a warning" in banner
    (output,) = page.select("div.cell_output")
    assert output.select_one(".stderr").get_text().strip() == "a warning"
    page, banner = small_page(small_book, "book/index")
    links = [link["href"] for link in page.select("h1 + .admonition li a")]
    assert links == ["../notebooks/hidden.html", "../notebooks/loud.html"]
    assert "The hidden one , code cell 3: AssertionError: not <so>" in banner

    # A failed one is as one that never ran; two who build at once wait, and a notebook runs once.
    (small_book / "mended").touch()
    with ThreadPoolExecutor(2) as pool:
        both = [*pool.map(build_small, [small_book] * 2)]
    assert [done.returncode for done in both] == [0, 0], [done.stderr for done in both]
    executed = re.findall(r"executed (\w+)", "".join(done.stdout for done in both))
    assert sorted(executed) == ["hidden", "loud"]
    for name in ("book/index", "notebooks/hidden", "notebooks/loud", "notebooks/right"):
        page, banner = small_page(small_book, name)
        assert banner is None and not page.select(".traceback, .stderr, #failed-cell"), name

    # What the book's builder finds is told too.
    write_chapter(small_book, "right", "print('until here')", "1 / 0")
    (small_book / "book" / "index.md").write_text("# A book\n\n[Nowhere](nowhere.md)\n")
    done = build_small(small_book)
    assert done.returncode == 1 and "running 1 of 3 notebooks" in done.stdout
    assert "nowhere" in done.stderr and "builder found fault" in done.stderr
    assert done.stderr.endswith(
        "right.ipynb, code cell 2: ZeroDivisionError: division by zero\n    1 / 0\n"
        "Whole tracebacks: _build/failed.log\n"
    )
    assert "ZeroDivisionError" in small_page(small_book, "book/index")[1]
