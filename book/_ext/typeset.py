"""Typeset mathematics while the book is built: a page carries drawings, and not 1.2 MB of MathJax.

MathJax itself runs, in the V8 of mini-racer. Where that is not installed, the reader's browser runs
it, as Sphinx has it.
"""

import atexit
import functools
import html
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.ext import mathjax

PARTS = ["loader", "core", "adaptors/liteDOM", "input/tex-full", "output/svg"]
PARTS += ["output/svg/fonts/tex"]
# What Sphinx writes: in delimiters, or bare where it is an environment of its own.
WRITTEN = re.compile(r"\\\((.*)\\\)|\\\[(.*)\\\]|(\\begin\{.*\\end\{\w+\*?\})", re.S)
# What MathJax notes for its own menus, and white space between elements.
SURPLUS = re.compile(r' data-(?:mml-node|c|mjx-[a-z-]+)="[^"]*"|(?<=>)\s+(?=<)')
# MathJax numbers the glyphs of each formula anew.
NUMBERED = re.compile(r"\bMJX-\d+-TEX")
GLYPH = re.compile(r'<path id="(MJX-TEX[^"]*)"[^>]*></path>')
# A drawing for the eye, and MathML for whoever has it read aloud.
RENDER = """
const {_: lib} = MathJax;
const dom = lib.adaptors.liteAdaptor.liteAdaptor();
lib.handlers.html_ts.RegisterHTMLHandler(dom);
const page = lib.mathjax.mathjax.document("", {
  InputJax: new lib.input.tex_ts.TeX({packages: ["base", "ams", "newcommand"]}),
  OutputJax: new lib.output.svg_ts.SVG({font: new lib.output.svg.fonts.tex_ts.TeXFont()}),
});
const mathml = new lib.core.MmlTree.SerializedMmlVisitor.SerializedMmlVisitor();
function render(tex, display) {
  const tree = page.convert(tex, {display, end: lib.core.MathItem.STATE.CONVERT});
  const svg = dom.firstChild(page.convert(tex, {display}));
  dom.removeAttribute(svg, "role");
  dom.setAttribute(svg, "aria-hidden", "true");
  return dom.outerHTML(svg) + mathml.visitTree(tree);
}
"""


@functools.cache
def _engine():
    from py_mini_racer import MiniRacer

    (folder,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
    engine = MiniRacer()
    atexit.register(engine.close)  # later it would wait for its thread for ever
    engine.eval("var MathJax = {loader: {load: []}}; 0")
    for part in PARTS:
        engine.eval((Path(folder) / f"static/mathjax/{part}.js").read_text() + ";0")
    engine.eval(RENDER + ";0")
    return engine


@functools.cache
def typeset(tex, display):
    """The HTML of a formula.

    Args:
        tex: the formula.
        display: whether it stands in a line of its own.

    Returns:
        HTML.

    Raises:
        ValueError: where MathJax does not understand it.
    """
    drawn = _engine().eval(f"render({json.dumps(tex)}, {json.dumps(display)})")
    if wrong := re.search(r'data-mjx-error="([^"]*)"', drawn):
        raise ValueError(f"MathJax says of {tex!r}: {wrong[1]}")
    return SURPLUS.sub("", drawn)


def sharing(drawn, glyphs):
    """A formula that takes its glyphs from those before it on the page.

    Args:
        drawn: the HTML of a formula.
        glyphs: the names of those that the page has; those of this formula are added.

    Returns:
        HTML.
    """

    def once(path):
        if path[1] in glyphs:
            return ""
        glyphs.add(path[1])
        return path[0]

    return GLYPH.sub(once, NUMBERED.sub("MJX-TEX", drawn))


def _typeset(visit):
    def visit_math(self, node):
        start = len(self.body)
        try:
            visit(self, node)
        except nodes.SkipNode:
            written = "".join(self.body[start:])
            display = isinstance(node, nodes.math_block)
            formula = WRITTEN.search(written)
            tex = html.unescape(next(filter(None, formula.groups())))
            # A translator writes one page.
            glyphs = self.__dict__.setdefault("glyphs_of_formulas", set())
            self.body[start:] = [
                written[: formula.start()],
                sharing(typeset(tex, display), glyphs),
                written[formula.end() :],
            ]
            raise

    return visit_math


def _drop_mathjax(app, exception):
    shutil.rmtree(Path(app.outdir) / "_static" / "mathjax", ignore_errors=True)


def setup(app):
    if find_spec("py_mini_racer"):
        # Beside MathJax's own; Sphinx takes the other one where there are two.
        app.add_html_math_renderer(
            "typeset",
            (_typeset(mathjax.html_visit_math), None),
            (_typeset(mathjax.html_visit_displaymath), None),
        )
        app.connect("build-finished", _drop_mathjax, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
