"""Put right what a screen reader would stumble over in what Sphinx writes."""


def _mend(app, pagename, templatename, context, doctree):
    # docutils calls the bibliography a list, and its entries no list items.
    if body := context.get("body"):
        context["body"] = body.replace('<div role="list" class="citation-list">', "<div>")


def setup(app):
    app.connect("html-page-context", _mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
