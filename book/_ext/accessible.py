"""Put right what a screen reader, or a telephone, would stumble over in what Sphinx writes."""

import html
import re
from functools import partial
from pathlib import Path

PLOT = re.compile(r'<img alt="[^"]*" src="([^"]*_images/([^"/]+\.svg))" />')
SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)pt"')
WORDS = re.compile(r"<!-- (.*?) -->")  # matplotlib draws letters as paths, and says here what of
PIXELS = 4 / 3  # of a point
PRINTED = re.compile(
    r'(<div class="output stream[^"]*"><div class="highlight">)<pre>((?:(?!</pre>).)*?─{8})', re.S
)


def _mend(app, pagename, templatename, context, doctree):
    if body := context.get("body"):
        # docutils calls the bibliography a list, and its entries no list items.
        body = body.replace('<div role="list" class="citation-list">', "<div>")
        files = {name: Path(app.srcdir, path) for path, name in app.builder.images.items()}
        # A table that a program prints falls apart where its lines wrap.
        body = PRINTED.sub(r'\1<pre class="printed-table" tabindex="0">\2', body)
        context["body"] = PLOT.sub(partial(_plot, files), body)
    if toctree := context.get("generate_toctree_html"):
        # What unfolds a page's own pages in the sidebar has an icon and no name.
        context["generate_toctree_html"] = lambda *a, **options: str(
            toctree(*a, **options)
        ).replace("<summary>", '<summary aria-label="its pages">')


def _plot(files, image):
    """A plot with its own words as alternative, and with the width that it was drawn for."""
    link, name = image.groups()
    drawn = files[name].read_text(encoding="utf-8") if name in files else ""
    size = SIZE.search(drawn)
    if size is None:
        return image[0]
    lettering = (html.unescape(word).strip(" ,") for word in WORDS.findall(drawn))
    # Each once, and no numbers at ticks.
    words = dict.fromkeys(word for word in lettering if re.search(r"[^\W\d_]{2}", word))
    alternative = html.escape("Plot: " + "; ".join(words))
    width = round(PIXELS * float(size[1]))
    drawing = f'<img class="plot" alt="{alternative}" src="{link}" style="--drawn: {width}px" />'
    # Where it scrolls by itself, the keyboard has to reach it.
    return f'<span class="plot-frame" role="group" tabindex="0">{drawing}</span>'


def setup(app):
    app.connect("html-page-context", _mend, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
