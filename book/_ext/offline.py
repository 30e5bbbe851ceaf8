"""Keep the built book readable with no network: drop what only works with a remote script.

jupyter-book 1 always loads sphinx-thebe (live code), whose script comes from elsewhere; the book
has no button for it.
"""


def _is_thebe(asset):
    text = f"{getattr(asset, 'filename', asset)} {getattr(asset, 'attributes', {}).get('body', '')}"
    return "thebe" in text.lower()


def _drop_thebe(app, pagename, templatename, context, doctree):
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]


def setup(app):
    app.connect("html-page-context", _drop_thebe, priority=900)  # after sphinx-thebe
    return {"parallel_read_safe": True, "parallel_write_safe": True}
