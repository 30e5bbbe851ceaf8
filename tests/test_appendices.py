"""What the appendices name is there: commands, options, extras, notes, words and their chapters."""

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import jupytext
import pytest
from typer.main import get_command

from kernels.cli import app
from kernels.machines.neuron import vendor
from kernels.proof.catalog import RUNGS, find

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("colab", "docker", "gpu", "neuron", "tpu_vm", "version_bridge")
TEXTS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks" / "text").glob("*.md"))
}
WORD = r"(?<!\w){}(?:s|es)?(?!\w)"


@cache
def page(name):
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def commands(text):
    """What a reader would type: after $ in a block, after ! in a cell, and in a sentence."""
    blocks = "\n".join(re.findall(r"^```(?:console|text)\n(.*?)^```", text, re.M | re.S))
    joined = blocks.replace("\\\n", " ")
    inline = re.findall(r"(?<!`)`((?:[A-Z_]+=\S+ )*(?:make |\S*python -m kernels)[^`\n]+)`", text)
    return re.findall(r"^(?:\$ |[!%])(.+)$", joined, re.M) + inline


def fault(line):
    """What is wrong with the parts of a command that are this project's; empty if nothing."""
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    for part in re.split(r"\n(?:&&|;)\n", "\n".join(shlex.split(line, comments=True))):
        words = part.split("\n")
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words[:1] == ["make"] and (name := words[1]) not in targets:
            return f"make {name} is no target"
        after = words[words.index("-m") + 1 :] if "-m" in words else [""]
        if after[0] == "kernels" and (said := _cli_fault(after[1:])):
            return said
        module = ROOT / f"{after[0].replace('.', '/')}.py"
        if after[0].startswith("kernels.") and not module.exists():
            return f"{after[0]} is no module"
        for path in re.findall(r"notebooks/[\w/]+\.\w+", part):
            if not (ROOT / path).exists():
                return f"{path} is no file"
    return ""


def _cli_fault(words):
    command = get_command(app).commands.get(words[0])
    if command is None:
        return f"{words[0]} is no command"
    try:
        context = command.make_context(words[0], words[1:])
        for entry in context.params.get("entries") or [context.params.get("entry")]:
            if entry:
                list(find(entry))
    except Exception as error:
        return f"{' '.join(words)}: {error}"
    for rung in context.params.get("rung") or ():
        if rung not in RUNGS:
            return f"{rung} is no rung"
    return ""


@pytest.mark.parametrize("name", (*PAGES, "install", "index", "../README", "../CONTRIBUTING"))
def test_commands_exist(name):
    # CONTRIBUTING.md verifies an operator that only its readers have.
    lines = [line for line in commands(page(name)) if "CONTR" not in name or "make" in line]
    for line in lines:
        assert not fault(line), line
    assert name in ("version_bridge", "../CONTRIBUTING") or any("kernels" in line for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "cd book && make vevn EXTRAS=tpu",
        "python -m kernels proof matmul",
        "python -m kernels verify matmul/palas",
        "python -m kernels bench padding --device tpus --recording",
        "python -m kernels.giou.gpsimd.built",
        ".venv/bin/papermill notebooks/03_blockspec.ipynb out.ipynb",
    ],
)
def test_a_wrong_command_is_found(line):
    assert fault(line)


def test_extras_exist_and_pages_say_what_was_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for name in PAGES:
        named = re.findall(r"EXTRAS=([\w,]+)|-e [\"']?\.\[([\w,]+)\]", page(name))
        for listed in named:
            assert set("".join(listed).split(",")) <= extras, name
        is_checked = re.search(r"^## What was checked", page(name), re.M)
        assert is_checked or name == "version_bridge", name


def test_the_page_of_neuron_says_what_its_compile_rung_notes_and_its_machine_imports():
    source = (ROOT / "kernels" / "machines" / "neuron" / "launch.py").read_text()
    notes = re.findall(r"^\| `(.+?)` \| linted", page("neuron"), re.M)
    assert len(notes) == 3
    for note in notes:
        assert note in source
    for module in vendor.MODULES.values():
        assert f"| `{module}`, `{module}.language` |" in page("neuron")
    assert 'Path("/dev/neuron0")' in (ROOT / "kernels/machines/neuron/vendor.py").read_text()


def glossary():
    return re.findall(r"^(\S.*)\n  (\S.*)$", page("glossary").split("```{glossary}\n")[1], re.M)


def occurs(word, text):
    return re.search(WORD.format(re.escape(word)), text, re.I) is not None


@cache
def prose(stem):
    """A chapter's Markdown, without its code, whose comments look like headings."""
    cells = jupytext.reads(TEXTS[stem], fmt="md:myst").cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def headings(stem):
    """The anchors of a chapter's headings, as MyST makes them."""
    found = re.findall(r"^#{1,3} (.+)$", prose(stem), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


def test_glossary_is_long_and_in_order():
    terms = [term for term, _ in glossary()]
    assert len(terms) >= 50 and terms == sorted(terms, key=str.lower)
    assert len(set(terms)) == len(terms)


def test_a_term_is_used_where_its_link_leads():
    link = re.compile(r"\[([^]]+)\]\(\.\./notebooks/(\w+)\.ipynb#([\w-]+)\)\.$")
    for term, definition in glossary():
        title, stem, anchor = link.search(definition).groups()
        assert prose(stem).startswith(f"# {title}\n"), term
        assert anchor in headings(stem), term
        ours = re.match(r"Elsewhere for .*?\*(.+?)\*", definition)
        assert occurs(ours[1] if ours else term, TEXTS[stem]), term
