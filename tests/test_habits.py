"""What a reader sees of the repository is in order: style, spelling, notebooks, help."""

import ast
import json
import pkgutil
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml
from commands import process, python

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = sorted((ROOT / "notebooks" / "text").glob("*.md"))


def run(*command, cwd=ROOT):
    done = python("-m", *command, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


# What looks at the whole project, and a fault that it finds.
LINT = {
    "ruff check": ("ruff check .", "import os\n"),
    "ruff format": ("ruff format --check .", "x = { 'a':1 }\n"),
    "codespell": ("codespell_lib", "# we re" + "cieve\n"),
    "mypy": ("mypy", "def count() -> int:\n    return 'three'\n"),
}


@pytest.mark.parametrize(
    "name", [n if n != "mypy" else pytest.param(n, marks=pytest.mark.slow) for n in LINT]
)
def test_lint(tmp_path, name):
    command, planted = LINT[name]
    status, said = run(*command.split())
    assert status == 0, said
    (tmp_path / "fault.py").write_text(planted)
    status, _ = run(*command.removesuffix(" .").split(), "fault.py", cwd=tmp_path)
    assert status


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_whole_without_outputs_and_in_step_with_its_text(path):
    nbformat.validate(json.loads(path.read_text(encoding="utf-8")))
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "parameters" in code[0].metadata.get("tags", [])
    for number, cell in enumerate(code, 1):
        assert not cell.outputs, f"code cell {number} has outputs: make format"
        assert cell.execution_count is None, f"code cell {number} has a count: make format"
    text = jupytext.read(path.parent / "text" / f"{path.stem}.md", fmt="md:myst")
    held = lambda cell: (cell.cell_type, cell.source.strip(), cell.metadata.get("tags", []))
    in_text, stored = ([*map(held, form.cells)] for form in (text, notebook))
    assert in_text == stored, "make format brings them in step"


def test_every_target_has_a_line_of_help():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split())
    for name in ("help", "venv", "book", "serve", "test", "lab", "lint", "format", "clean"):
        assert name in targets
    said = process("make", "help", cwd=ROOT).stdout
    assert set(re.findall(r"^  make ([\w-]+) +\S", said, re.M)) == targets
    assert process("make", cwd=ROOT).stdout == said


def test_make_lint_and_the_hooks_run_what_the_tests_do():
    rule = (ROOT / "Makefile").read_text().split("\nlint: ")[1].split("\n\n")[0]
    for tool in ("ruff check", "ruff format --check", "codespell_lib", "mypy", "lint-imports"):
        assert tool in rule
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = " ".join(hook["entry"] for hook in hooks["hooks"])
    for tool in ("jupytext", "nbstripout", "ruff check", "ruff format", "codespell_lib"):
        assert hooks["repo"] == "local" and tool in entries


NUMBERED = re.compile(r"\bchapters? \d+", re.I)


def unfenced(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def bare_numbers(text):
    """Chapters that prose calls by a number: a file's is not the book's, and the book's moves."""
    return NUMBERED.findall(re.sub(r"`[^`\n]*`", "", unfenced(text)))


BOOK = [ROOT / "CHANGELOG.md", ROOT / "README.md", *sorted((ROOT / "book").glob("*.md"))]
PROSE = [*BOOK, *TEXTS, ROOT / ".ci/run"]


def test_no_chapter_is_called_by_a_number():
    texts = {path.name: path.read_text(encoding="utf-8") for path in PROSE}
    numbered = {name: bare for name, text in texts.items() if (bare := bare_numbers(text))}
    assert not numbered, "link it, by its title"
    planted = bare_numbers("See [chapter 7](x.ipynb), or Chapters 3 and 4.")
    assert planted == ["chapter 7", "Chapters 3"]
    assert not bare_numbers("`chapter 7` and\n```\nchapter 8\n```\nthe next chapter")


NAMED = re.compile(
    r"(?<![\w./-])((?:kernels|validation|tests|tools|book|notebooks|results)/[\w./*-]*[\w*/]"
    r"|(?:kernels|validation)(?:\.[A-Za-z]\w*)+(?![\w/]))"
)


def missing(text):
    """The paths, and the names of the package, that a text holds and that do not exist.

    Capitals stand for anything, and in "`a.b` is `c.d`" the first name is the one of before.
    """
    for name in NAMED.findall(re.sub(r"`[\w.]+`(?=\s+is\s+`)", "", unfenced(text))):
        try:
            if "/" in name:
                next(ROOT.glob(re.sub(r"NN_name|[A-Z]{3,}", "*", name)))
            else:
                pkgutil.resolve_name(name)
        except (ImportError, AttributeError, StopIteration):
            yield name


def test_what_a_page_names_exists():
    for path in (*BOOK, ROOT / "CONTRIBUTING.md", ROOT / "Makefile"):
        assert not [*missing(path.read_text(encoding="utf-8"))], path
    stale = ["tests/exercises/wrong_CHAPTER.py", "kernels.exercises.nobody", "kernels.bench"]
    assert [*missing("`{}`, `{}`, `{}`".format(*stale))] == stale
    assert not [*missing("`kernels.bench` is `kernels.stopwatch`")]


PACKAGE = ("kernels", "validation")
CODE = (*PACKAGE, "tools", "book/_ext")
SAY_NOTHING = {"found", "told", "given", "each", "there", "of", "took", "made"}
LONG = 600  # lines of a file, from which on it says why
MOST = {"kernels": 54_665, "tests": 26_647}  # lines of Python


def sources(*folders):
    """Path from the root → text, of the Python files of these folders."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def names_that_say_nothing(text):
    """line: name, of each variable and parameter of a program that could be called anything."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.MatchMapping):
            name = node.rest
        else:
            name = getattr(node, {ast.arg: "arg", ast.alias: "asname"}.get(type(node), "name"), "")
        defines = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if name in SAY_NOTHING and not defines:
            yield f"{getattr(node, 'lineno', 0)}: {name}"


@pytest.mark.parametrize("folder", CODE)
def test_a_variable_is_called_by_what_it_holds(folder):
    programs = sources(folder).items()
    faults = [f"{path}:{n}" for path, text in programs for n in names_that_say_nothing(text)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "planted",
    [
        "found = 1",
        "a, (b, *told) = 1, (2, 3)",
        "[of for of in x]",
        "try: pass\nexcept ValueError as told: pass",
        "def f(x, /, y, *there, given=1, **found): pass",
        "match x:\n    case {1: 2, **there}: pass",
    ],
)
def test_a_name_that_says_nothing_is_found(planted):
    assert [*names_that_say_nothing(planted)]
    assert not [*names_that_say_nothing("def found(): return told.given + f(each)")]


def classes(programs):
    """name → the files that define a public class of that name at their top level."""
    places = {}
    for path, text in programs.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path)
    return places


def test_a_public_class_name_means_one_thing():
    twice = {name: paths for name, paths in classes(sources(*PACKAGE)).items() if len(paths) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(paths)}" for name, paths in twice.items())
    planted = classes({"a.py": "class One: pass\nclass _Own: pass", "b.py": "class One: pass"})
    assert planted == {"One": ["a.py", "b.py"]}


def silent(text):
    """Whether a long file does not say why it is, or another says that it were long."""
    said = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    return (text.count("\n") > LONG) != (f"Over {LONG} lines because" in said)


def test_a_long_file_says_why():
    long = [path for path, text in sources(*CODE, "tests").items() if silent(text)]
    assert not long, "split it, or say why in its docstring, if it is long: " + ", ".join(long)
    lines = "x = 1\n" * LONG
    assert silent(f'"""What it is."""\n{lines}') and not silent(lines)
    why = '"""What it is. Over 600 lines\nbecause it is a table."""\n'
    assert silent(why) and not silent(why + lines)


@pytest.mark.parametrize("folder", MOST)
def test_the_weight_that_two_people_carry(folder):
    lines = sum(text.count("\n") for text in sources(folder).values())
    assert lines <= MOST[folder], f"{lines} lines: tidy before adding"


def test_the_readme_names_every_room():
    paths = [Path(line) for line in process("git", "ls-files", cwd=ROOT).stdout.splitlines()]
    top = {path.parts[0] for path in paths if len(path.parts) > 1}
    rooms = {Path(*path.parts[:2]) for path in paths if len(path.parts) > 2}
    rooms = {str(r) for r in rooms if r.parts[0] == "kernels" and (r / "operator.py") not in paths}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in sorted(rooms | {name for name in top if name[0] != "."} - {"kernels"}):
        assert f"`{folder}/`" in readme, folder
