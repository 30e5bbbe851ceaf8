"""What explaining a program gave: as data, in a terminal, and as a page of HTML."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernels.figures.table import Page, Paragraph, Table, as_text
from kernels.machines.base import CompileError
from kernels.machines.exporting import ExportedProgram
from kernels.machines.gpu.explain import GpuFacts
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.explain import KernelFacts, TpuFacts, dtypes, kernels_of
from kernels.yours import gpu_words, tpu_words
from kernels.yours.report import see

MOST = 1_500_000  # bytes of a page
# Counts and shares that are none where a loop or a grid of unknown length was counted once.
COUNTED = {"cycles", "share", "hbm_bytes", "flops", "utilisation", "hbm_utilisation"}
PAGE, STYLE = (Path(__file__).with_suffix(kind) for kind in (".html", ".css"))


@dataclass(frozen=True)
class Refusal:
    """What is known of a program that a compiler refused."""

    title: str  # what it is called
    chip: str  # that it was meant for
    # The "kind" of the refusal, its "message", and its "source" where it is known.
    error: Mapping[str, str]
    kernels: tuple[KernelFacts, ...] = ()  # what those of a TPU ask for
    dtypes: tuple[str, ...] = ()  # what a TPU makes of the program's dtypes, a sentence each


Facts = TpuFacts | GpuFacts | Refusal


@dataclass(frozen=True, repr=False)
class Explanation(Page):
    """What `kernels.explain` found, shown as a page in a terminal and as tables in a notebook.

    Args:
        facts: all of it.
        advice: what to change first, the most promising before the others.
        pictures: the "title" and the "html" of what a page shows.
    """

    facts: Facts
    advice: tuple[str, ...] = ()
    pictures: tuple[Mapping[str, str], ...] = ()

    @property
    def refused(self) -> bool:
        """Whether it cannot be compiled."""
        return isinstance(self.facts, Refusal)

    def parts(self, whole: bool = False) -> Iterator[Table | Paragraph]:
        """What there is to read, piece by piece: for a terminal, or for a `whole` page."""
        facts = self.facts
        if not whole:
            yield Paragraph(f"{facts.title}  on {facts.chip}", style="bold")
        if isinstance(facts, Refusal):
            yield Paragraph(facts.error["message"] + see(facts.error["message"]), style="red")
            for kernel in facts.kernels[: tpu_words.KERNELS]:
                yield from tpu_words.kernel_page(kernel, whole)
        else:
            yield from _words(facts).page(facts, whole)
        yield from map(Paragraph, facts.dtypes)
        for place, words in enumerate(self.advice):
            yield Paragraph(words, lead="then: " if place else "first: ")
        if not isinstance(facts, Refusal):
            yield from _words(facts).footer(facts)

    def __str__(self) -> str:
        return as_text(self.parts())

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts(whole=True))

    def html(self, second: Explanation | None = None) -> str:
        """A page that needs nothing from elsewhere: of this, beside a second where there is one."""
        from kernels.lessons import pictures

        script, style = pictures.scripts()
        style = STYLE.read_text(encoding="utf-8") + style
        title = html.escape(self.facts.title)
        body = [f"<h1>{title} on {self.facts.chip}</h1>"]
        if second is not None:
            body.append(self.compared(second)._repr_html_())
        body.append(self._repr_html_())
        size = sum(map(len, (style, script, *body)))
        for picture in self.pictures:
            if size + len(picture["html"]) <= MOST - 10_000:
                size += len(picture["html"])
                body.append(f"<h2>{html.escape(picture['title'])}</h2>{picture['html']}")
        page = PAGE.read_text(encoding="utf-8")
        return page.format(title=title, style=style, body="".join(body), script=script)

    def compared(self, second: Explanation) -> Table:
        """This and another program, a row for each figure: its name, both, and the change."""
        sides = (self, second)
        figures = [
            tpu_words.kernel_figures(s.facts.kernels)
            if isinstance(s.facts, Refusal)
            else _words(s.facts).figures(s.facts)
            for s in sides
        ]
        rows = []
        if self.refused or second.refused:
            errors = [getattr(side.facts, "error", {"message": "compiles"}) for side in sides]
            rows.append(("compiler", *(error["message"] for error in errors), ""))
        for name in dict.fromkeys(itertools.chain(*figures)):
            (one, shown), (two, beside) = (side.get(name, (None, "")) for side in figures)
            change = f"{two / one - 1:+.1%}" if one and two is not None else ""
            rows.append((name, shown, beside, change))
        titles = [f"{side.facts.title} on {side.facts.chip}" for side in sides]
        return Table(("", *titles, "change"), rows, right=(*titles, "change"))

    def as_json(self) -> dict[str, Any]:
        """Facts and advice, as JSON can hold them; what data decide that are not given is null."""
        facts = asdict(self.facts) | {"advice": list(self.advice)}
        if facts.get("on_data"):
            for part in (facts, *facts["operations"], *facts["kernels"]):
                part |= dict.fromkeys(COUNTED & part.keys())
        return facts


def explained(
    facts: TpuFacts | GpuFacts, pictures: Sequence[Mapping[str, str]] = ()
) -> Explanation:
    """An explanation of what was compiled, with advice."""
    return Explanation(facts, tuple(_words(facts).advice(facts)), tuple(pictures))


def refused(
    error: CompileError, title: str, chip: str, program: ExportedProgram | None = None
) -> Explanation:
    """An explanation of what a compiler refused: why, and what to change first."""
    kernels = kernels_of(program, chip) if program else ()
    source = getattr(error, "source", None) or ""
    why = {"kind": error.kind, "message": str(error), "source": source}
    facts = Refusal(title, chip, why, kernels, dtypes(program, chip) if program else ())
    if isinstance(error, TpuCompileError):
        return Explanation(facts, (tpu_words.first_change(error, kernels, chip),))
    return Explanation(facts)


def _words(facts: TpuFacts | GpuFacts) -> Any:
    return gpu_words if isinstance(facts, GpuFacts) else tpu_words
