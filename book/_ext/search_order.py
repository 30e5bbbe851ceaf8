"""Order what a search finds: scorer.js says how."""

from pathlib import Path


def _order(app, config):
    config.html_search_scorer = str(Path(__file__).with_name("scorer.js"))


def _glossary(app, env, added, changed, removed):
    """Read anew with any other page: Sphinx writes an index of terms of the pages that it reads."""
    return {"book/glossary"} & env.found_docs if added | changed | removed else ()


def setup(app):
    app.connect("config-inited", _order)
    app.connect("env-get-outdated", _glossary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
