"""What judging a kernel found: a verdict for each chip, in words and as a line of JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernels.figures.table import Page, Paragraph, Table, format_seconds
from kernels.machines.base import Seconds

# The best first; a kernel's own is the worst of its chips'.
RIGHT, UNDECIDED, REFUSED, WRONG = "right", "undecided", "refused", "wrong"
VERDICTS = (RIGHT, UNDECIDED, REFUSED, WRONG)
COLOURS = {RIGHT: "green", UNDECIDED: "yellow", REFUSED: "red", WRONG: "red"}
RATIO = "XLA's time over its"
AHEAD = {"kernel": ": it is ahead", "reference": ": XLA is ahead", "tie": ": a tie", "": ""}
FORM = 1  # of the JSON; it grows where a key goes or changes its meaning
_GIB = 2**30

# Of a line of JSON: a schema, as json-schema.org has it.
SCHEMA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


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
        said = json.dumps({"form": FORM, "verdict": self.verdict, **asdict(self)})
        return json.loads(said, parse_constant=lambda name: None)  # JSON knows no infinity

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
            seconds = format_seconds(Seconds(*on.seconds)) if on.seconds else ""
            held = f"{on.hbm_bytes / _GIB:.2f} of {on.hbm_limit / _GIB:.0f}" if on.hbm_bytes else ""
            ahead = f"{ratio}{AHEAD[on.ahead]}"
            row = (verdict.title, on.chip, on.verdict, on.rung, seconds, on.band, ahead, held)
            rows.append(row)
    return Table(columns, rows, "", columns[-1:], COLOURS)
