"""What every picture is drawn with, an SVG that takes its text colour from the page; and source on
a page, highlighted as code."""

import functools
import html
import inspect
import json
import os
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Mid tones that hold on white and on black; in greyscale the labels and hatching still tell.
COLOURS = ("#3b78c2", "#d07b1f", "#2a9168", "#a2508f", "#7a6cc4", "#8a7a2d")
PAGE = "KERNELS_PLAYERS"  # environment variable: "page" where pages bring the scripts themselves
FONT = "ui-sans-serif, system-ui, sans-serif"


@dataclass(frozen=True)
class Picture:
    """An SVG, with what it shows.

    Args:
        svg: the picture.
        says: what it shows in words, for those who cannot see it.
    """

    svg: str = field(repr=False)
    says: str

    @property
    def element(self) -> str:
        """The HTML of it, for a page."""
        return f'<div class="kernel-picture" tabindex="0">{self.svg}</div>'

    def _repr_html_(self) -> str:
        return self.element


@dataclass(frozen=True)
class Player(Picture):
    """A picture that a reader can play with.

    Where no script runs, as in print, the picture itself stands there. In a notebook it brings its
    scripts along: each output may stand alone, as in Colab, and the first one to run serves all.

    Args:
        svg, says: as Picture has them.
        kind: which script of players/ plays it.
        data: what the script draws, computed from the kernel; anything that JSON can hold.
    """

    kind: str
    data: Mapping[str, Any] = field(repr=False)

    @property
    def element(self) -> str:
        """The HTML of it, for a page that has the `scripts`."""
        data = json.dumps(self.data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        colours = ";".join(f"--colour-{i}:{colour}" for i, colour in enumerate(COLOURS))
        return (
            f'<kernel-player kind="{self.kind}" says="{html.escape(self.says)}" style="{colours}">'
            f'<script type="application/json">{data}</script>'
            f"{super().element}</kernel-player>"
        )

    def _repr_html_(self) -> str:
        if os.environ.get(PAGE) == "page":
            return self.element
        script, style = scripts()
        once = f'if (!customElements.get("kernel-player")) {{{script}}}'
        return f"{self.element}<style>{style}</style><script>{once}</script>"


@functools.cache
def scripts() -> tuple[str, str]:
    """The script and the style sheet that play the players of a page."""
    folder = Path(__file__).with_name("players")
    # The base first: the others add themselves to it.
    paths = sorted(folder.glob("*.js"), key=lambda path: (path.stem != "base", path.stem))
    script = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    style = (folder / "players.css").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script"), style


class Canvas:
    """Collects SVG elements."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.hatches: dict[str, str] = {}

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        opacity: float = 1,
        stroke: str = "currentColor",
        stroke_opacity: float = 1,
        radius: float = 0,
    ) -> None:
        """Draw a rectangle from its upper left corner, in pixels."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{radius}" fill="{fill}" fill-opacity="{opacity}" '
            f'stroke="{stroke}" stroke-opacity="{stroke_opacity}"/>'
        )

    def path(self, d: str, stroke: str = "currentColor", **look: object) -> None:
        """Draw lines along `d`, as SVG writes it; other attributes have _ for -."""
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
        self.parts.append(f'<path d="{d}" fill="none" stroke="{stroke}"{more}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        weight: int = 400,
        anchor: str = "start",
    ) -> None:
        """Write a line whose start, middle or end, as `anchor` says, is at x, y, in pixels."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'
        )

    def arrow(
        self, start: float, end: float, y: float, forward: bool, label: str, sub: str
    ) -> None:
        """A horizontal arrow, in pixels, with a label above and a remark below."""
        a, b = (start + 6, end - 6) if forward else (end - 6, start + 6)
        tip = -7 if forward else 7
        self.path(f"M{a:.1f} {y:.1f}H{b:.1f}m{tip} -4l{-tip} 4l{tip} 4", stroke_width=1.4)
        middle = (start + end) / 2
        self.text(middle, y - 7, label, size=12, weight=600, anchor="middle")
        self.text(middle, y + 16, sub, size=11, anchor="middle")

    def hatch(self, colour: str, angle: int = 45) -> str:
        """A fill of diagonal lines, at an angle in degrees, in one of COLOURS or "#rrggbb"."""
        name = f"hatch-{colour[1:]}" + ("" if angle == 45 else f"-{angle % 180}")
        self.hatches[name] = (
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate({angle})"><rect width="6" height="6" fill="{colour}" '
            f'fill-opacity="0.12"/><path d="M0 0V6" stroke="{colour}" stroke-width="2.4"/>'
            "</pattern>"
        )
        return f"url(#{name})"

    def picture(self, says: str) -> Picture:
        """All that was drawn, as a Picture that says `says`."""
        width, height = self.width + 4, self.height + 4
        title = html.escape(says)
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {width:.0f} {height:.0f}" '
            f'role="img" aria-label="{title}" font-family="{FONT}" '
            f'style="max-width:100%;width:{width:.0f}px;height:auto"><title>{title}</title>'
            f"<defs>{''.join(self.hatches.values())}</defs>{''.join(self.parts)}</svg>"
        )
        # A name of its own: a picture that is not shown would take the hatching from the others.
        own = f"hatch-{zlib.crc32(svg.encode()):08x}-"
        svg = svg.replace('id="hatch-', f'id="{own}').replace("url(#hatch-", f"url(#{own}")
        return Picture(svg, says)

    def player(self, says: str, kind: str, data: Mapping[str, Any]) -> Player:
        """The same as the still form of a Player, with its `kind` and `data`."""
        return Player(self.picture(says).svg, says, kind, data)


def colour_of(index: int) -> str:
    """The colour of the operand, or of whatever is counted, at `index`; they repeat."""
    return COLOURS[index % len(COLOURS)]


def in_dims(shape: Sequence[int]) -> str:
    """A shape as the book writes it: [512, 128]."""
    return "[" + ", ".join(map(str, shape)) + "]"


def in_bytes(count: float) -> str:
    """Bytes in the unit that suits their number: "4.0 KiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


@dataclass(frozen=True)
class Code:
    """Source text that a notebook shows highlighted.

    Args:
        text: the source.
        language: as a fenced block of Markdown names it.
    """

    text: str
    language: str = "python"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        fence = "`" * 3
        return f"{fence}{self.language}\n{self.text.rstrip()}\n{fence}"


def source(*shown: Any) -> Code:
    """What functions and classes are written as.

    Args:
        shown: each a function, a class, or a text of Python as it is; a method loses its class's
            indent.

    Returns:
        Code, which a notebook highlights.
    """
    texts = (
        part if isinstance(part, str) else inspect.getsource(inspect.unwrap(part)) for part in shown
    )
    return Code("\n\n".join(textwrap.dedent(text).strip() for text in texts))
