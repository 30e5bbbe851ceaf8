"""Bring the players of kernels/pictures into the book: one script and one style sheet."""

from pathlib import Path

import kernels.pictures

PLAYERS = Path(kernels.pictures.__file__).with_name("players")


def _write(app):
    """Before the pages, so that their links carry a checksum."""
    if app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        # The base first: the others add themselves to it.
        scripts = sorted(PLAYERS.glob("*.js"), key=lambda path: (path.stem != "base", path.stem))
        (static / "players.js").write_text("\n".join(path.read_text() for path in scripts))
        (static / "players.css").write_text((PLAYERS / "players.css").read_text())


def setup(app):
    app.add_js_file("players.js", loading_method="defer")
    app.add_css_file("players.css")
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
