"""Explain a function that somebody brought: in a child, as data, and as a page of its own."""

from __future__ import annotations

import html
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail
from kernels.yours import cache
from kernels.yours.machines import machine
from kernels.yours.proving import Lost, asking

MOST = 1_500_000  # bytes of a page


@dataclass(frozen=True)
class Explanation:
    """What `kernels.explain` found, shown as a page in a terminal and as tables in a notebook.

    Args:
        facts: all of it, as JSON can hold it.
    """

    facts: Mapping[str, Any]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        yield Text.from_ansi(self._shown(console.width, console.is_terminal))

    def __str__(self) -> str:
        return self._shown(100, False)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(machine(self.facts["chip"]).tables(self.facts))

    def html(self) -> str:
        """One page of HTML that needs nothing from elsewhere."""
        return page(self.facts)

    def _shown(self, width: int, coloured: bool) -> str:
        from rich.console import Console

        console = Console(width=width, force_terminal=coloured, no_color=not coloured)
        with console.capture() as shown:
            machine(self.facts["chip"]).page(self.facts, console)
        return shown.get().rstrip()


def explain(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = 120.0,
    trips: int | Mapping[str, int] | None = None,
    pictures: bool = False,
    **named: Any,
) -> Explanation:
    """Explain a function of JAX, with kernels in it or without: where its time would go on a chip.

    Args:
        function: jitted or not; kernels inside are taken as compiled.
        args: its arguments, arrays or jax.ShapeDtypeStruct; the values of integer arrays count,
            where a grid or a loop depends on them.
        chip: one of kernels.tpu.CHIPS.
        timeout: seconds for a compilation.
        trips: where data decides that is not given, how often loops run and how many steps grids
            have; or by the name of a kernel, or FILE:LINE of a loop.
        pictures: whether to draw what a page shows.
        named: its keyword arguments.

    Returns:
        The explanation; where it cannot be compiled, of why, with the first thing to change.

    Raises:
        ValueError: for an unknown chip, and for trips of what does not depend on data.
        kernels.optional.MissingPackage: where the chip's compiler is not installed.
    """
    from kernels.yours import answers
    from kernels.yours.declared import name_of

    own = machine(chip, "chip")
    own.ready()
    name = name_of(function)
    call, arrays = answers.of_arrays(function, args, named, name)
    shapes = " ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)
    return Explanation(
        own.explain(
            call,
            arrays,
            answers.integers(arrays),
            chip=chip,
            name=name,
            title=f"{name}  {shapes}",
            timeout=timeout,
            pictures=pictures,
            trips={"": trips} if isinstance(trips, int) else dict(trips or {}),
        )
    )


def explain_file(
    path: str,
    name: str,
    args: str = "",
    *,
    chip: str = "v5e",
    timeout: float = 120.0,
    pictures: bool = False,
    trips: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Explain a function of a file: where its time would go on a chip.

    What was explained before, and depends on no file that has changed, is known at once.

    Args:
        path: of a Python file.
        name: of a function in it.
        args: its arguments, such as "bf16[4096,4096] bf16[4096,4096]"; empty for those that its
            `kernels.proves` draws.
        chip: of one of the machines of kernels.yours.machines.
        timeout: seconds for a compilation.
        pictures: whether to draw what a page shows.
        trips: FILE:LINE of a loop, the name of a kernel, or "" for all → how often the loop runs,
            or how many steps the grid has, where data decides.

    Returns:
        What the machine gives: for a TPU kernels.tpu.explain.facts, or .refusal where it cannot be
        compiled.

    Raises:
        ValueError: where the file, the name or the arguments are wrong, or the child ended.
    """
    question = dict(
        what="explain",
        path=path,
        name=name,
        args=args,
        chip=chip,
        timeout=timeout,
        pictures=pictures,
        trips=dict(trips or {}),
    )
    version = machine(chip).ready()
    key = cache.key(version, os.path.abspath(path), sorted(question.items(), key=str))
    if (known := cache.get(key)) is not None and cache.same(known["files"]):
        return {name: value for name, value in known.items() if name != "files"}
    with asking(timeout + 10 * 60) as ask:
        try:
            answer = ask(question)
        except Lost as lost:
            raise ValueError(f"{name} could not be explained: {lost}") from None
    if set(answer) == {"error"}:
        raise ValueError(answer["error"])
    if "error" not in answer:  # a compilation that was late may succeed the next time
        cache.put(key, answer)
    del answer["files"]
    return answer


def other(text: str, path: str, name: str) -> tuple[str, str, tempfile.TemporaryDirectory | None]:
    """What --compare names: FILE.py:NAME, FILE.py, or a commit of git that has the same file.

    Args:
        text: what was given.
        path, name: what it is compared with.

    Returns:
        File and name, and the folder that holds the commit, to be closed.

    Raises:
        ValueError: for what is none of them.
    """
    head, _, tail = text.rpartition(":")
    for file, function in ((text, name), (head, tail)):
        if file.endswith(".py") and Path(file).is_file():
            return file, function, None
    whole = Path(path).resolve()
    run = lambda *words: subprocess.run(
        ["git", "-C", str(whole.parent), *words], capture_output=True, check=False
    )
    top = run("rev-parse", "--show-toplevel")
    known = run("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if top.returncode or known.returncode:
        fail("--compare", repr(text), "FILE.py, FILE.py:NAME, or a commit that has the file")
    folder = tempfile.TemporaryDirectory(prefix="kernels-compare-")
    archive = run("archive", "--format=tar", text, ".")
    done = subprocess.run(["tar", "-x", "-C", folder.name], input=archive.stdout, check=False)
    same = Path(folder.name) / whole.name
    if archive.returncode or done.returncode or not same.is_file():
        folder.cleanup()
        fail("--compare", repr(text), f"a commit that has {whole.name}")
    return str(same), name, folder


def page(made: Mapping[str, Any], second: Mapping[str, Any] | None = None) -> str:
    """A page of HTML that needs nothing from elsewhere.

    Args:
        made: as explain_file gives it.
        second: the same of what it is compared with.

    Returns:
        The page: tables, and the book's players with their scripts inside.
    """

    from kernels.lessons import pictures

    players = Path(pictures.__file__).with_name("players")
    scripts = [(players / "base.js").read_text(encoding="utf-8")]
    scripts += [
        path.read_text(encoding="utf-8")
        for path in sorted(players.glob("*.js"))
        if path.name != "base.js"
    ]
    style = (players / "players.css").read_text(encoding="utf-8")
    body = [f"<h1>{html.escape(made['title'])} on {made['chip']}</h1>"]
    body += machine(made["chip"]).tables(made, second)
    size = len(style) + sum(map(len, scripts)) + sum(map(len, body))
    drawn = made.get("pictures", ())
    for picture in drawn:
        if size + len(picture["html"]) > MOST - 10_000:
            continue
        size += len(picture["html"])
        body.append(f"<h2>{html.escape(picture['title'])}</h2>{picture['html']}")
    script = "\n".join(scripts).replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(made['title'])}</title>"
        f"<style>{STYLE}{style}</style></head><body><main>{''.join(body)}</main>"
        f"<script>{script}</script></body></html>\n"
    )


STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884;"
    "vertical-align:top}code{font-size:.9em}.wrong{color:#c33}"
)
