"""What a reader sees of the repository is in order: style, spelling, notebooks, help."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = sorted((ROOT / "notebooks" / "text").glob("*.md"))


def run(*command, cwd=ROOT):
    done = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ruff", "check", "."), id="ruff-check"),
        pytest.param(("ruff", "format", "--check", "."), id="ruff-format"),
        pytest.param(("codespell_lib",), id="codespell"),
        pytest.param(("mypy",), id="mypy", marks=pytest.mark.slow),
    ],
)
def test_lint(command):
    status, said = run(*command)
    assert status == 0, said


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("ruff", "check"), "import os\n"),
        (("ruff", "format", "--check"), "x = { 'a':1 }\n"),
        (("codespell_lib",), "# we re" + "cieve\n"),
        (("mypy",), "def count() -> int:\n    return 'three'\n"),
    ],
    ids=["ruff-check", "ruff-format", "codespell", "mypy"],
)
def test_lint_finds_a_planted_fault(tmp_path, command, text):
    (tmp_path / "fault.py").write_text(text)
    status, _ = run(*command, "fault.py", cwd=tmp_path)
    assert status


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    def test_is_stored_without_outputs(self, path):
        notebook = nbformat.read(path, as_version=4)
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                assert not cell.outputs, f"cell {number} has outputs: make format"
                assert cell.execution_count is None, f"cell {number} has a count: make format"

    def test_is_a_valid_notebook(self, path):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        nbformat.validate(notebook)
        assert notebook["metadata"]["kernelspec"]["name"] == "python3"

    def test_first_code_cell_holds_the_parameters(self, path):
        cells = nbformat.read(path, as_version=4).cells
        first = next(cell for cell in cells if cell.cell_type == "code")
        assert "parameters" in first.metadata.get("tags", [])

    def test_text_is_in_step(self, path):
        text = path.parent / "text" / f"{path.stem}.md"
        assert text.exists(), "make format writes it"

        def what_counts(notebook):
            return [
                (cell.cell_type, cell.source.strip(), cell.metadata.get("tags", []))
                for cell in notebook.cells
            ]

        assert what_counts(jupytext.read(text, fmt="md:myst")) == what_counts(
            nbformat.read(path, as_version=4)
        ), "make format brings them in step"


def test_every_target_has_a_line_of_help():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split())
    for name in ("help", "venv", "book", "serve", "test", "lab", "lint", "format", "clean"):
        assert name in targets
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert set(re.findall(r"^  make ([\w-]+) +\S", said, re.M)) == targets
    assert subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True).stdout == said


def test_commands_named_in_prose_exist():
    """`make x` in a page is a target, and a file it names with a slash is there."""
    targets = set(
        re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    )
    for page in [*ROOT.glob("*.md"), *(ROOT / "book").rglob("*.md")]:
        for name in re.findall(r"(?:`|^\$? ?)make ([a-z][\w-]*)", page.read_text(), re.M):
            assert name in targets, f"{page.name} names make {name}"


def test_make_lint_runs_what_the_tests_do():
    rule = (ROOT / "Makefile").read_text().split("\nlint: ")[1].split("\n\n")[0]
    for tool in ("ruff check", "ruff format --check", "codespell_lib", "mypy", "lint-imports"):
        assert tool in rule


def test_hooks_run_what_make_does():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    entries = " ".join(hook["entry"] for hook in hooks[0]["hooks"])
    for tool in ("jupytext", "nbstripout", "ruff check", "ruff format", "codespell_lib"):
        assert tool in entries


NUMBERED = re.compile(r"\bchapters? \d+", re.I)


def bare_numbers(text):
    """Chapters that prose calls by a number: a file's is not the book's, and the book's moves."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return NUMBERED.findall(re.sub(r"`[^`\n]*`", "", prose))


PROSE = [ROOT / "README.md", *sorted((ROOT / "book").glob("*.md")), *TEXTS]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.stem)
def test_no_chapter_is_called_by_a_number(path):
    assert not bare_numbers(path.read_text(encoding="utf-8")), "link it, by its title"


def test_a_number_is_found():
    assert bare_numbers("See [chapter 7](x.ipynb), or Chapters 3 and 4.") == [
        "chapter 7",
        "Chapters 3",
    ]
    assert not bare_numbers("`chapter 7` and\n```\nchapter 8\n```\nthe next chapter")
