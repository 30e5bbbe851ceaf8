"""Bring the players of kernels/lessons/pictures into the book: one script and one style sheet. And
{tuned-matmul}, the one that the landing page opens with, which plays by itself."""

import dataclasses
import functools
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from kernels.lessons import pictures


def _write(app):
    """Before the pages, so that their links carry a checksum."""
    if app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        for name, text in zip(("players.js", "players.css"), pictures.scripts()):
            (static / name).write_text(text, encoding="utf-8")


class TunedMatmul(SphinxDirective):
    """The grid of the tuned matmul, program by program."""

    def run(self):
        import jax

        from kernels.machines.pallas import calls
        from kernels.matmul import BlockSizes, matmul

        side, block = 4096, BlockSizes(512, 512, 512)
        like = jax.ShapeDtypeStruct((side, side), "bfloat16")
        (call,) = calls(functools.partial(matmul, block=block, interpret=False), like, like)
        played = pictures.play(call)
        control = {"sizes": [128 << n for n in range(6)], "work": 2 * side**3}
        played = dataclasses.replace(played, data={**played.data, **control})
        moving = played.element.replace("<kernel-player ", "<kernel-player autoplay ", 1)
        return [nodes.raw("", moving, format="html")]


def setup(app):
    app.add_directive("tuned-matmul", TunedMatmul)
    app.add_js_file("players.js", loading_method="defer")
    app.add_css_file("players.css")
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
