"""Source on a page: highlighted as code, which printed text is not."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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


def source(*functions: Callable[..., Any], docstrings: bool = True) -> Code:
    """What functions are written as.

    Args:
        functions: shown one below the other; a method loses its class's indent.
        docstrings: whether to show theirs.

    Returns:
        Code, which a notebook highlights.
    """
    texts = []
    for function in functions:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        doc = function.__doc__
        if not docstrings and doc and f'"""{doc}"""' in text:
            before, after = text.split(f'"""{doc}"""')
            text = before.rstrip() + "\n" + after.lstrip("\n")
        texts.append(text)
    return Code("\n\n".join(texts))
