"""Chapters that a cell stopped: the page of each shows what was answered until then, under a banner
that says so, and the landing page lists them. They are what tools/build_book.py leaves in
_build/.failed."""

import functools
import json
import platform
from importlib import metadata
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

ANCHOR = "failed-cell"


@functools.cache
def _read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def failures(app):
    """By document: which code cell failed, with which error, and the notebook up to there."""
    return _read(Path(app.outdir).parent / ".failed")


def _show(app, docname, source):
    """The notebook that was executed, instead of the one on disk."""
    if failure := failures(app).get(docname):
        source[0] = json.dumps(failure["notebook"])


def _warn(app, doctree):
    failed, page = failures(app), app.env.docname
    if page in failed:
        _put(doctree, *_of_chapter(doctree, failed[page]))
    elif failed and page == app.config.root_doc:
        _put(doctree, *_of_book(page, failed))


def _of_chapter(doctree, failure):
    cell = next(n for n in doctree.findall(nodes.container) if "tag_failed" in n["classes"])
    cell["ids"].append(ANCHOR)
    for block in cell.findall(nodes.literal_block):
        block["force"] = True  # colour it also where it is no Python
    link = nodes.reference("", "this cell", internal=True, refid=ANCHOR)
    error = nodes.literal("", failure["error"])
    yield f"This chapter failed at code cell {failure['cell']}"
    yield _text(f"{_here()}, ", link, " failed: ", error)
    yield _text("What follows it has no outputs.")


def _of_book(page, failed):
    listed = nodes.bullet_list()
    for name, failure in failed.items():
        link = addnodes.pending_xref(
            "",
            nodes.inline("", name),
            refdoc=page,
            refdomain="std",
            reftype="doc",
            reftarget=f"/{name}",
            refexplicit=False,
            refwarn=True,
        )
        error = nodes.literal("", failure["error"])
        listed += nodes.list_item("", _text(link, f", code cell {failure['cell']}: ", error))
    yield "Not every chapter ran to its end"
    yield _text(f"{_here()}, these failed at a cell; what follows it there has no outputs.")
    yield listed


def _here():
    python, jax = platform.python_version(), metadata.version("jax")
    return f"On this machine, with Python {python} and JAX {jax}"


def _text(*parts):
    return nodes.paragraph("", "", *(nodes.Text(p) if isinstance(p, str) else p for p in parts))


def _put(doctree, title, *content):
    """A banner below the title of the page."""
    heading = next(doctree.findall(nodes.title))
    banner = nodes.admonition("", nodes.title("", title), *content, classes=["error"])
    heading.parent.insert(heading.parent.index(heading) + 1, banner)


def setup(app):
    app.connect("source-read", _show)
    app.connect("doctree-read", _warn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
