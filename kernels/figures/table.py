"""A table of text and the words between tables, as a page, a terminal and Markdown show them; and
figures in them, in the unit that reads best."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.machines.tpu.diagnose import mib


@dataclass(frozen=True)
class Table:
    """A table of text that takes its look from where it is shown.

    Args:
        columns: the title of each; none where the rows speak for themselves.
        rows: each a cell for each column.
        caption: what stands above it; "" for nothing.
        right: the columns of numbers, flush right in a terminal and in Markdown.
        colours: cell → its colour in a terminal; a red one is bold in Markdown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    right: Sequence[str] = ()
    colours: Mapping[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        above = head = ""
        if self.caption:
            above = f'<caption style="caption-side: top">{html.escape(self.caption)}</caption>'
        if self.columns:
            head = f"<thead>{row(self.columns, 'th')}</thead>"
        body = "".join(row(cells, "td") for cells in self.rows)
        return f'<table class="kernel-table table">{above}{head}<tbody>{body}</tbody></table>'

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 2))
        if self.columns:
            gap, widths = self._widths(options.max_width)
            grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, gap - 2))
            for title, width in zip(self.columns, widths):
                side: Any = "right" if title in self.right else "left"
                grid.add_column(Text(title), justify=side, overflow="fold", width=width)
        for row in self.rows:
            grid.add_row(*(Text(cell, style=self.colours.get(cell, "")) for cell in row))
        if self.caption:  # a title of its own is not folded to the table's width
            yield Text(self.caption, style="bold")
        yield grid

    def _widths(self, room: int) -> tuple[int, Sequence[int | None]]:
        """The gap between columns, and the width of each, so that they fit into `room` characters:
        the widest are folded between words; None each where words have to be cut."""
        columns = list(zip(self.columns, *self.rows))
        widths = [max(map(len, cells)) for cells in columns]
        words = [max(map(len, " ".join(cells).split()), default=0) for cells in columns]
        gap = 3 if sum(widths) + 3 * len(columns) - 1 <= room else 2
        room -= 2 + gap * (len(columns) - 1)
        while sum(widths) > room >= sum(words):
            widths[max((w, i) for i, w in enumerate(widths) if w > words[i])[1]] -= 1
        return gap, widths if sum(widths) <= room else [None] * len(columns)

    def markdown(self) -> str:
        """The table for a pull request."""

        def row(cells: Iterable[str]) -> str:
            return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

        def marked(cell: str) -> str:
            return f"**{cell}**" if self.colours.get(cell) == "red" else cell

        lines = [row(self.columns)]
        lines.append(row("---:" if title in self.right else "---" for title in self.columns))
        return "\n".join([*lines, *(row(map(marked, cells)) for cells in self.rows)])


@dataclass(frozen=True)
class Paragraph:
    """Words between tables."""

    words: str  # all but the lead
    lead: str = ""  # what stands before them
    style: str = ""  # of the words: "", "bold", "dim", or "red" for what is wrong
    mark: str = "bold"  # of the lead: "bold", "dim" or a colour

    def _repr_html_(self) -> str:
        lead = f"<b>{html.escape(self.lead)}</b>" if self.lead else ""
        words = html.escape(self.words).replace("\n", "<br>")
        if self.style == "dim":
            words = f"<small>{words}</small>"
        return f"<p{' class=wrong' * (self.style == 'red')}>{lead}{words}</p>"

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text.assemble((self.lead, self.mark), (self.words, self.style))


def show(parts: Iterable[Any], console: Any) -> None:
    """Print tables and paragraphs; a paragraph is not folded where its reader might search it."""
    for part in parts:
        console.print(part, highlight=False, soft_wrap=isinstance(part, Paragraph))


def as_text(parts: Iterable[Any], width: int = 100) -> str:
    """What a terminal of `width` characters would show of tables and paragraphs."""
    from rich.console import Console

    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as captured:
        show(parts, console)
    return captured.get().rstrip()


class Page:
    """What is shown as its `parts` are: in a notebook, in a terminal, and as text."""

    def parts(self) -> Iterator[Table | Paragraph]:
        """What there is to read, piece by piece."""
        raise NotImplementedError

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield from self.parts()

    def __str__(self) -> str:
        return as_text([self])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts())


def format_seconds(seconds: Any) -> str:
    """Seconds in the unit that reads best; of a range both ends, or the least alone."""
    if getattr(seconds, "is_range", False):
        low, high = map(format_seconds, seconds)
        return f"at least {low}" if math.isinf(seconds.high) else f"{low} to {high}"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def format_bytes(count: float) -> str:
    """Bytes in the unit that reads best."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else mib(count)


def format_dims(sizes: Iterable[int]) -> str:
    """Sizes with a cross between them: 8×128."""
    return "×".join(map(str, sizes)) or "1"
