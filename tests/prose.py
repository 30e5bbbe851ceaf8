"""Figures in the prose of the chapters, and what holds them.

A figure is a number with the unit of a result: a share, a ratio, a time, cycles, bundles, a rate or
megabytes. It is held where an assertion of the same chapter, in a cell before it or right after its
paragraph, has that number; where a substitution makes it; where its sentence cites a source; or
where it is told in FREE why nothing has to hold it. Formulas, code, tables, boxes and exercises are
left out: an exercise's bar is held by its checker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

NAMES = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "fifteen", "twenty", "thirty"),
)
WORDS = dict(zip(NAMES, (*range(2, 13), 15, 20, 30), strict=True))
NUMBER = rf"(?P<number>\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS)})"
UNIT = (
    r"(?P<unit>per cent|%|times (?:as|more|less|faster|slower|longer|the)|times\b|ms\b|µs\b"
    r"|milliseconds?|microseconds?|cycles|bundles|GB/s|TFLOP/s|GFLOP/s|MB\b)"
)
# In words, a ratio is rounded: an assertion has to hold it within a fifth, either way round.
RATIO = re.compile(
    r"\btwice as (?:fast|long|slow|many)\b|\bhalf (?:the time|as (?:fast|long))\b", re.I
)
BINDS = re.compile(r"\b(?:bandwidth|HBM|compute|latency|DMA|engine|units?|MXUs?) binds?\b", re.I)
FIGURE = re.compile(rf"(?<![\w.$]){NUMBER}(?:[  ]|(?=%)){UNIT}", re.I)
CELL = re.compile(r"^(`{3,})\{code-cell\} ipython3\n(.*?)^\1$", re.S | re.M)
TAGS = r"^(---\n.*?\n---\n|(?::[^\n]*\n)+)"  # of a cell, before its code
LEFT_OUT = (
    r"^(`{3,}|:{3,})(?:\{.*?|\w*)\n.*?^\1$",  # boxes, exercises, quoted code
    r"\$\$.*?\$\$",
    r"\$[^$\n]*\$",
    r"`[^`\n]*`",
    r"^\|.*\|$",
)


@dataclass(frozen=True)
class Figure:
    """A figure in a sentence, or a word that claims one.

    Args:
        words: the figure as it stands there.
        text: its sentence.
        is_held: whether an assertion holds it.
    """

    words: str
    text: str
    is_held: bool


def _holds(held: set[float], number: float, within: float = 0.005) -> bool:
    scales = (1, 100, 1e3, 1e6, 1e-3)  # a share, and units a thousand apart
    return any(abs(number - s * value) <= within * abs(number) for value in held for s in scales)


def asserted(code: str) -> set[float]:
    """The numbers that a cell's assertions name."""
    try:
        tree = ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M))
    except SyntaxError:
        return set()
    return {
        float(node.value)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }


def _claims(sentence: str, held: set[float], bounds: bool) -> Iterator[tuple[str, bool]]:
    for found in FIGURE.finditer(sentence):
        word = found["number"].lower()
        yield found[0], _holds(held, float(WORDS.get(word) or word.replace(",", "")))
    for found in RATIO.finditer(sentence):
        yield found[0], _holds(held, 2, 0.2) or _holds(held, 0.5, 0.2)
    for found in BINDS.finditer(sentence):
        yield found[0], bounds


def figures(text: str) -> Iterator[Figure]:
    """Each figure of a chapter's text, and whether its assertions hold it.

    Args:
        text: of a notebook, as MyST. What comes after "## Exercises" is left out.
    """
    text = text.partition("\n## Exercises")[0]
    parts = CELL.split(text)
    # Prose, fence, code; prose, fence, code; …
    prose = parts[0::3]
    code = [re.sub(TAGS, "", cell, flags=re.S) for cell in parts[2::3]] + [""]
    held: set[float] = set()
    bounds = False  # whether some assertion looks at what binds
    for piece, cell in zip(prose, code, strict=True):
        here = held | asserted(cell)
        bounds_here = bounds or bool(re.search(r"^\s*assert .*bound", cell, re.M))
        for pattern in LEFT_OUT:
            piece = re.sub(pattern, " ", piece, flags=re.S | re.M)
        for sentence in re.split(r"(?<=[.:?!])\s+|\n\n", piece):
            if "{cite" not in sentence:
                for words, is_held in _claims(sentence, here, bounds_here):
                    yield Figure(words, " ".join(sentence.split()), is_held)
        held, bounds = here, bounds_here
