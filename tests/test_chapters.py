"""A chapter's file has the number of its place in the table of contents, and nothing else has."""

import re
import shutil
import types
from itertools import pairwise
from pathlib import Path

import chapters
import pytest
import renumber
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
CODE = ("kernels/**/*.py", "validation/**/*.py", "tests/**/*.py", "tools/*.py", "book/_ext/**/*.py")


# Finds the names of chapters with a number that a text holds.
numbered = re.compile(rf"\b\d\d_(?:{'|'.join(chapters.by_slug())})\b").findall


def test_the_order_of_the_files_is_that_of_the_table_of_contents():
    assert not renumber.due(), "make renumber"
    pages = [*chapters.by_slug().values()]
    assert pages == sorted(pages) and len(pages) > 20
    for folder, suffix in renumber.FILES:
        files = sorted((ROOT / folder).glob(f"*{suffix}"))
        assert [path.stem for path in files] == [Path(page).name for page in pages]
    for page, following in pairwise(Path(page).name for page in pages):
        text = (ROOT / "notebooks/text" / f"{page}.md").read_text(encoding="utf-8")
        assert re.search(rf"^\*\*Next:\*\*[^(]*\({following}\.ipynb\)", text, re.M), page


def test_no_code_holds_a_number():
    for pattern in (*CODE, "Makefile", ".ci/run"):
        for path in ROOT.glob(pattern):
            assert not numbered(path.read_text(encoding="utf-8")), path
    assert numbered("see 07_" + "nms.ipynb")
    with pytest.raises(ValueError, match="name is 'nmss', and no chapter; accepted: hello_pallas"):
        chapters.notebook("nmss")


@pytest.fixture
def project(tmp_path):
    """A copy of what renumber reads, in which two chapters have changed places."""
    for pattern in (*renumber.LINKS, "book/_ext/moved.txt"):
        for path in ROOT.glob(pattern):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    toc = tmp_path / "_toc.yml"
    first, second = (Path(page).name for page in [*chapters.by_slug().values()][1:3])
    text = toc.read_text().replace(first, "this").replace(second, first).replace("this", second)
    toc.write_text(text)
    return tmp_path


def test_files_and_links_follow_the_table_of_contents_once(project):
    before = chapters.toc_files(project)
    due = renumber.due(project)
    assert len(due) == 2
    assert renumber.renumber(project) == due and not renumber.due(project)
    pages = chapters.by_slug(chapters.toc_files(project))
    assert [*pages] == [chapters.slug(page) for page in before if "notebooks/" in page]
    texts = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for path, text in texts.items():
        if path.name != "moved.txt":
            assert {f"notebooks/{name}" for name in numbered(text.decode())} <= {*pages.values()}
    moved = (project / "book/_ext/moved.txt").read_text()
    assert {old for old, _ in chapters.forwarding(pages.values(), moved)} >= {
        f"notebooks/{old}" for old in due
    }
    index = (project / "book/index.md").read_text()
    for place, page in enumerate(pages.values(), 1):
        assert len(re.findall(rf"^\| \[{place} [^]]+\]\(\.\./{page}\.ipynb\)", index, re.M)) == 1
    assert renumber.renumber(project) == {}
    assert texts == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_nothing_is_renamed_where_a_chapter_lacks_a_file(project):
    (text,) = (project / "notebooks/text").glob("*_nms.md")
    text.unlink()
    with pytest.raises(SystemExit, match=rf"missing: notebooks/text/{text.name}\. `make format`"):
        renumber.renumber(project)
    assert len(renumber.due(project)) == 2


def forward(folder):
    """Write the pages at old addresses into a folder, as the book's builder does."""
    pages = chapters.toc_files()
    titles = {page: types.SimpleNamespace(astext=lambda: "A & B") for page in pages}
    env = types.SimpleNamespace(found_docs=pages, titles=titles)
    builder = types.SimpleNamespace(format="html")
    (folder / "notebooks").mkdir()
    app = types.SimpleNamespace(builder=builder, env=env, outdir=folder)
    chapters._forward(app, None)


def test_a_page_at_every_old_address_leads_to_the_chapter(tmp_path):
    forward(tmp_path)
    old = chapters.MOVED.read_text().split()
    assert old and sorted(path.stem for path in (tmp_path / "notebooks").iterdir()) == sorted(
        Path(page).name for page in old
    )
    for path in (tmp_path / "notebooks").iterdir():
        page = BeautifulSoup(path.read_text(), "html.parser")
        address = page.find("link", rel="canonical")["href"]
        assert (ROOT / "notebooks" / address).with_suffix(".ipynb").exists()
        assert chapters.slug(address) == chapters.slug(path) and address != path.name
        assert page.a["href"] == address and page.title.text == "A & B"
        assert f'location.replace("{address}" + location.search + location.hash)' in str(page)
        assert page.noscript.meta["content"] == f"0; url={address}"


def test_a_chapter_with_another_name_is_led_to_and_one_that_is_gone_is_not():
    pages = ["book/index", "notebooks/01_narrow"]
    moved = "notebooks/08_int8 narrow\nnotebooks/09_gone\nnotebooks/03_narrow\n"
    assert [*chapters.forwarding(pages, moved)] == [
        ("notebooks/08_int8", "notebooks/01_narrow"),
        ("notebooks/03_narrow", "notebooks/01_narrow"),
    ]
