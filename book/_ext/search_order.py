"""Order what a search finds: scorer.js says how."""

from pathlib import Path


def _order(app, config):
    config.html_search_scorer = str(Path(__file__).with_name("scorer.js"))


def setup(app):
    app.connect("config-inited", _order)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
