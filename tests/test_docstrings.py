"""What the package offers says what it is, and what each of its arguments is."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import kernels
from kernels.machines.optional import MissingPackage
from kernels.proof.catalog import OPERATORS

ROOT = Path(__file__).resolve().parent.parent


def offered():
    """Where it is offered → what packages of kernels list in __all__, and the public functions."""
    found = {f"{o.package}.{o.name}": o.function for o in OPERATORS.values()}
    names = (m.name for m in pkgutil.walk_packages(kernels.__path__, "kernels.") if m.ispkg)
    for package in ("kernels", *names):
        try:
            module = importlib.import_module(package)
        except MissingPackage:
            continue
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)  # a module is there once it is imported
            if inspect.isclass(value) or inspect.isroutine(value):
                found[f"{package}.{name}"] = value
    return found


def sources():
    """Module → its file, of the package, the tools and the book's directives."""
    files = [*ROOT.glob("kernels/**/*.py"), *ROOT.glob("tools/*.py")]
    files += ROOT.glob("book/_ext/**/*.py")
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in sorted(files)}
    return {".".join(p for p in parts[path] if p != "__init__"): path for path in parts}


OFFERED = offered()
SOURCES = sources()


def parameters(value):
    """The names of what a function, or the construction of a dataclass, takes."""
    if inspect.isclass(value) and not dataclasses.is_dataclass(value):
        return []
    return [name for name in inspect.signature(value).parameters if name != "self"]


ARGS = re.compile(r"^Args:\n((?:    .*\n|\n)*)", re.M)


def explained(documentation):
    """The names that an `Args:` section has entries for; several may share one."""
    section = ARGS.search(documentation + "\n")
    entries = re.findall(r"^    (\S.*?):", section[1], re.M) if section else []
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


def written(value):
    """A docstring as it was written; a dataclass without one gets its signature for one."""
    said = value.__doc__ or ""
    return "" if said.startswith(f"{value.__name__}(") else inspect.cleandoc(said)


def faults(value):
    """What the docstring of a function or a class lacks, in words."""
    if not written(value):
        return ["a docstring"]
    names = parameters(value)
    if len(names) < 2:
        return []
    # A dataclass need not repeat what it inherits.
    classes = inspect.getmro(value) if inspect.isclass(value) else [value]
    told = [name for each in classes for name in explained(written(each))]
    return [f"{name} under Args:" for name in names if name not in told]


def crammed(source):
    """The names in `source` that describe an argument in a sentence: "x: a number. y: another."."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        elif isinstance(node, ast.ClassDef):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            names = [each.id for each in fields if isinstance(each, ast.Name)]
        else:
            continue
        said = ARGS.sub("", (ast.get_docstring(node) or "") + "\n")
        described = re.findall(r"(?:^|[.;]\s|\n\n)[`*]*(\w+)[`*]*(?:, [`*]*\w+[`*]*)*:\s", said)
        if not node.name.startswith("_") and {*described} & {*names}:
            found.append(node.name)
    return found


def test_there_is_something_to_read():
    some = ("vector.iota", "lessons.pictures.Player", "figures.add")
    assert {f"kernels.{path}" for path in some} <= OFFERED.keys() and len(OFFERED) > 50
    assert {"kernels", "kernels.machines.tpu.export", "tools.install"} <= SOURCES.keys()


def test_what_is_offered_is_described():
    lacking = {name: lacks for name, value in OFFERED.items() if (lacks := faults(value))}
    assert not lacking, lacking


def test_arguments_are_described_in_sections():
    found = {
        module: names
        for module in SOURCES
        if (names := crammed(SOURCES[module].read_text(encoding="utf-8")))
    }
    assert not found, "what describes arguments in a sentence should have an Args: section"


def one_left_out(x, y, *more, scale=1):
    """Add.

    Args:
        more: further ones: as many as there are.
            scale: of a wrapped line, which is no entry.

    Returns:
        y: what was left out.
    """


@dataclasses.dataclass
class Fields:
    """Two.

    Args:
        x: one.
    """

    x: int
    y: int


def test_an_argument_that_is_left_out_is_found():
    assert faults(one_left_out) == [f"{name} under Args:" for name in ("x", "y", "scale")]
    assert faults(Fields) == ["y under Args:"]


@pytest.mark.parametrize(
    ("source", "crams"),
    [
        ('class Size:\n    """One.\n\n    n: rows; m: columns."""\n\n    n: int\n', 1),
        ('def add(x, y):\n    """Add.\n\n    `x`, `y`: numbers.\n    """\n', 1),
        ('def add(x, y):\n    """Add to x = 2, and to y: all of it. Note: z."""\n', 0),
        ('def _add(x):\n    """Add. x: a number."""\n', 0),
    ],
)
def test_arguments_that_are_crammed_into_a_sentence_are_found(source, crams):
    assert len(crammed(source)) == crams
