"""Keep the built book readable with no network, and light: drop scripts that it has no use for.

jupyter-book 1 always loads sphinx-thebe (live code), whose script comes from elsewhere; the book
has no button for it. The theme draws its icons with 1.5 MB of script, and has a font for them too.
"""

from pathlib import Path


def _is_thebe(asset):
    text = f"{getattr(asset, 'filename', asset)} {getattr(asset, 'attributes', {}).get('body', '')}"
    return "thebe" in text.lower()


def _drop_thebe(app, pagename, templatename, context, doctree):
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]


def _drop_icons(app, exception):
    script = Path(app.outdir) / "_static" / "scripts" / "fontawesome.js"
    if script.exists():
        script.write_text("// The icons come from the font.\n")


def setup(app):
    app.connect("html-page-context", _drop_thebe, priority=900)  # after sphinx-thebe
    app.connect("build-finished", _drop_icons, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
