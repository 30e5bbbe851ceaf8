"""Source on a page: highlighted as code, which printed text is not."""

import inspect
import textwrap
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
