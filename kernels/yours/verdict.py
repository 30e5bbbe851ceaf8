"""What judging a kernel found: a verdict for each chip, in words and as a line of JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernels.figures.table import Page, Paragraph, Table
from kernels.figures.units import format_seconds

# The best first; a kernel's own is the worst of its chips'.
RIGHT, UNDECIDED, REFUSED, WRONG = "right", "undecided", "refused", "wrong"
VERDICTS = (RIGHT, UNDECIDED, REFUSED, WRONG)
COLOURS = {RIGHT: "green", UNDECIDED: "yellow", REFUSED: "red", WRONG: "red"}
RATIO = "XLA's time over its"
AHEAD = {"kernel": ": it is ahead", "reference": ": XLA is ahead", "tie": ": a tie", "": ""}
FORM = 1  # of the JSON; it grows where a key goes or changes its meaning
_GIB = 2**30

_TEXT, _NUMBER = {"type": "string"}, {"type": ["number", "null"]}
_RANGE = {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_ON_CHIP = {
    "chip": _TEXT | {"description": "such as v6e"},
    "verdict": {"enum": list(VERDICTS)},
    "rung": _TEXT | {"description": "that decided; of a right kernel, the last one that it passed"},
    "why": _TEXT | {"description": "in a line, with what to do; empty of a right kernel"},
    "where": _TEXT | {"description": "FILE.py:LINE, or the block and program; empty if unknown"},
    "seconds": _RANGE | {"description": "estimated, at full size: at least and at most"},
    "band": _TEXT | {"description": "how far such estimates were off"},
    "bound": _TEXT | {"description": "what binds: compute, HBM, latency or link"},
    "reference_seconds": _RANGE | {"description": "of XLA's program of the reference"},
    "ratio": _RANGE | {"description": "reference over kernel, with the error of ratios"},
    "ahead": {"enum": ["kernel", "reference", "tie", ""]},
    "hbm_bytes": _NUMBER | {"description": "of the program at full size, all at once"},
    "hbm_limit": {"type": "number"},
}
_GONE = {"name": _TEXT, "line": {"type": "integer"}, "instead": _TEXT}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "python -m kernels judge --json: one line a kernel",
    **_object(
        {
            "form": {"const": FORM},
            "name": _TEXT,
            "file": _TEXT,
            "verdict": {"enum": list(VERDICTS)},
            "chips": {"type": "array", "items": _object(_ON_CHIP)},
            "sizes": {
                "type": "object",
                "description": "those that were shrunk for the interpreters, by whole blocks",
            },
            "gone": {"type": "array", "items": _object(_GONE)},
            "notes": {"type": "array", "items": _TEXT},
            "wall_seconds": {"type": "number", "description": "that judging it took"},
        }
    ),
}


@dataclass(frozen=True)
class OnChip:
    """The verdict for one chip; the fields are those of SCHEMA."""

    chip: str
    verdict: str
    rung: str = ""
    why: str = ""
    where: str = ""
    seconds: tuple[float, float] | None = None
    band: str = ""
    bound: str = ""
    reference_seconds: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None
    ahead: str = ""
    hbm_bytes: int | None = None
    hbm_limit: int = 0

    @property
    def words(self) -> str:
        """Why, where and what to do, in a line."""
        return self.why + (f" ({self.where})" if self.where and self.where not in self.why else "")


@dataclass(frozen=True, repr=False)
class Judgement(Page):
    """What `kernels.judge` found of one kernel, shown as a table.

    Args:
        name: of the kernel.
        chips: what it is on each.
        file: that it stands in; empty of a function that was handed over.
        sizes: of the problem that was run, where it is a smaller one: name → size.
        gone: names that the installed JAX has not, each with its line and its successor.
        notes: what is worth knowing beside them.
        wall_seconds: that judging it took.
    """

    name: str
    chips: tuple[OnChip, ...]
    file: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    gone: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    wall_seconds: float = field(default=0.0, compare=False)

    @property
    def verdict(self) -> str:
        """The worst of the chips': "right", "undecided", "refused" or "wrong"."""
        return max((on.verdict for on in self.chips), key=VERDICTS.index, default=UNDECIDED)

    @property
    def title(self) -> str:
        """FILE.py:NAME; of a function that was handed over its name."""
        return f"{self.file}:{self.name}".removeprefix(":")

    @property
    def passed(self) -> bool:
        """Whether it is right on every chip, as far as the rungs reach."""
        return self.verdict == RIGHT

    def as_json(self) -> dict[str, Any]:
        """It as SCHEMA has it."""
        return {"form": FORM, "verdict": self.verdict, **asdict(self)}

    def parts(self) -> Iterator[Table | Paragraph]:
        """What there is to read, piece by piece."""
        whole = table([self])  # of many it names the kernels; above one its name is not folded
        rows = [row[1:] for row in whole.rows]
        yield replace(whole, columns=whole.columns[1:], rows=rows, caption=self.title)
        for on in self.chips:
            if on.why:
                colour = COLOURS[on.verdict]
                yield Paragraph(f" {on.chip}, {on.rung}\n  {on.words}", on.verdict, mark=colour)
        for name in self.gone:
            instead = f"; now {name['instead']}" if name["instead"] else ""
            words = f" {name['name']}, line {name['line']}: this JAX has it no more{instead}"
            yield Paragraph(words, lead="gone", mark="yellow")
        for words in self.notes:
            yield Paragraph(f" {words}", lead="note", mark="dim")


def table(verdicts: Sequence[Judgement]) -> Table:
    """A row for each kernel and chip."""
    columns = ("kernel", "chip", "verdict", "rung", "estimate", "band", RATIO, "HBM, GiB")
    rows = []
    for verdict in verdicts:
        for on in verdict.chips:
            ratio = "–".join(f"{end:.2f}" for end in on.ratio) if on.ratio else ""
            seconds = " to ".join(dict.fromkeys(map(format_seconds, on.seconds or ())))
            held = f"{on.hbm_bytes / _GIB:.2f} of {on.hbm_limit / _GIB:.0f}" if on.hbm_bytes else ""
            ahead = f"{ratio}{AHEAD[on.ahead]}"
            row = (verdict.title, on.chip, on.verdict, on.rung, seconds, on.band, ahead, held)
            rows.append(row)
    return Table(columns, rows, "", columns[-1:], COLOURS)
