"""Which file a chapter is, and a page at each address that it had.

Code, tests and declarations name a chapter by its slug, as in flash_attention. The number before it
is the chapter's place in _toc.yml: `make renumber` keeps files and links so, and writes the name
that a file had into moved.txt. Nothing else holds a number.
"""

import html
import os
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LEDGERS = "book/ledger"
MOVED = Path(__file__).with_name("moved.txt")
# Before the reader sees it, and with the anchor; without scripts, without it.
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{address}">
<script>location.replace("{address}" + location.search + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
</head>
<body><p>This chapter has moved: <a href="{address}">{title}</a>.</p></body>
</html>
"""


def ledgers(root=ROOT):
    """The folders of operators: each has a ledger."""
    return sorted(path.parent.name for path in root.glob("kernels/*/operator.py"))


def write_ledgers(root=ROOT):
    """Write book/ledger/: for each folder of operators a page of its figures, and of what its
    ledger.md says beside them; one whose folder is gone goes too."""
    folder = root / LEDGERS
    pages = {folder / f"{name}.md": _ledger(root, name) for name in ledgers(root)}
    for path in set(folder.glob("*.md")) - pages.keys():
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # else Sphinx reads it
            path.write_text(text, encoding="utf-8")


def _ledger(root, name):
    notes = root / "kernels" / name / "ledger.md"
    beside = notes.read_text(encoding="utf-8").strip() if notes.exists() else ""
    return f"# {name}: the ledger\n\n```{{results}} {name}\n```\n\n{beside}\n"


def toc_files(root=ROOT):
    """The pages that _toc.yml names, in order, without suffix."""

    def walk(node):
        if isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            if "glob" in node:  # what the build writes, whether it has yet or not
                yield from (f"{LEDGERS}/{name}" for name in ledgers(root))
            node = [node[key] for key in ("parts", "chapters", "sections") if key in node]
        if isinstance(node, list):
            for child in node:
                yield from walk(child)

    return list(walk(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))))


def slug(page):
    """The name of a chapter without its number: notebooks/NN_flash_attention → flash_attention."""
    return re.sub(r"^\d+_", "", Path(page).stem)


def by_slug(pages=None):
    """slug → page without suffix, of these pages, or else of those in _toc.yml and in its order."""
    pages = toc_files() if pages is None else pages
    return {slug(page): page for page in pages if page.startswith("notebooks/")}


def notebook(name):
    """The file of a chapter.

    Args:
        name: its slug.

    Returns:
        A Path.

    Raises:
        ValueError: where there is no such chapter.
    """
    pages = by_slug()
    if name not in pages:
        raise ValueError(f"name is {name!r}, and no chapter; accepted: {', '.join(pages)}")
    return ROOT / f"{pages[name]}.ipynb"


def forwarding(pages, moved):
    """Where a chapter was, and where it is.

    Args:
        pages: those of the book, without suffix.
        moved: those that were, a line each; after a space the chapter's slug, where it has another
            now.

    Yields:
        (old page, new page).
    """
    current = by_slug(pages)
    for line in filter(None, moved.split("\n")):
        old, _, renamed = line.partition(" ")
        new = current.get(renamed or slug(old))
        if new and old not in pages:
            yield old, new


def _forward(app, exception):
    if exception or app.builder.format != "html":
        return
    for old, new in forwarding(app.env.found_docs, MOVED.read_text(encoding="utf-8")):
        path = Path(app.outdir, f"{old}.html")
        address = os.path.relpath(Path(app.outdir, f"{new}.html"), path.parent)
        title = html.escape(app.env.titles[new].astext())
        path.write_text(PAGE.format(title=title, address=address), encoding="utf-8")


def setup(app):
    app.connect("build-finished", _forward)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
