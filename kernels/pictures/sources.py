"""Source text, shown as code."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """Lines of Python that a notebook shows as highlighted code.

    Args:
        text: the lines.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"


def source(*shown: Any) -> Source:
    """The source of functions or classes, one after another.

    Args:
        shown: each a function, a class, or a text of Python as it is.

    Returns:
        Something that a notebook shows as code.
    """
    texts = (each if isinstance(each, str) else inspect.getsource(each) for each in shown)
    return Source("\n\n".join(textwrap.dedent(text).strip() for text in texts))
