"""No test asserts only what stands in a committed file of results/: it would pass with no code.

By reading: a test that uses a reader of results/ and names nothing else of the package but what
finds a row, itself or through what its file defines, has nothing of ours to hold to account.
"""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# What reads results/, by the last two parts of its dotted name.
READERS = {
    *("figures.read", "store.read", "store.RESULTS", "comparisons.read", "gpu_times.read"),
    *("trn1_times.estimated", "trn1_times.error", "trn1_times.errors"),
    *("vit_step.recorded", "decoder_layer.recorded"),
    *("status.results", "status._read"),
}
KEYS = {"Key", "Named", "Workload", "OPERATORS", "workloads"}  # what finds a row
# Who starts a program, or reads a page, holds that against the rows; what a reader refuses, and
# what a test has written itself, is no committed file.
FILE = "a path in results/"  # what `used` calls it
DOES = {"invoke", "run", "read_text", "raises", "tmp_path"}


def only_read(text):
    """The tests of a file that assert only what they read in results/."""
    tree = ast.parse(text)
    ours = {
        "kernels": "kernels",
        "validation": "validation",
    }  # name in the file → dotted name in the package
    for node in ast.walk(tree):
        for a in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if f"{parent}{a.name}.".startswith(("kernels.", "validation.")):
                ours[a.asname or a.name] = parent + a.name
    defined = {}  # name → what the file itself defines under it
    for node in tree.body:
        stored = isinstance(node, ast.Assign) and {n.id for n in ast.walk(node) if is_target(n)}
        for name in stored or {getattr(node, "name", "")}:
            defined.setdefault(name, []).append(node)
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            names = set(used(test, defined, {test.name}))
            firsts = {name: name.partition(".")[0] for name in names}
            dotted = {ours[o] + name.removeprefix(o) for name, o in firsts.items() if o in ours}
            ends = {d for d in dotted if not any(other.startswith(f"{d}.") for other in dotted)}
            reads = {d for d in ends if ".".join(d.split(".")[-2:]) in READERS}
            lasts = {name.split(".")[-1] for name in names}
            keys = {d for d in ends if KEYS & {*d.split(".")}}
            does = DOES - {"read_text"} if FILE in names else DOES
            if (reads or FILE in names) and ends == reads | keys and not lasts & does:
                yield test.name


def used(node, defined, seen):
    """The names in a piece of a program, dotted where they are; and those in what the file itself
    defines under one of them. A path of results/ in a string is FILE."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and re.search(r"(^|/)results(/|$)", str(inner.value)):
            yield FILE
        if isinstance(inner, ast.Attribute):
            yield ast.unparse(inner)
        elif isinstance(inner, ast.Name | ast.arg):
            name = inner.id if isinstance(inner, ast.Name) else inner.arg
            yield name
            if name not in seen:
                seen.add(name)
                for definition in defined.get(name, ()):
                    yield from used(definition, defined, seen)


def is_target(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def test_every_test_has_something_of_the_package_in_it():
    files = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    offences = {path.name: [*only_read(text)] for path, text in files.items()}
    assert not {name: tests for name, tests in offences.items() if tests}


HEAD = """
from kernels import figures
from kernels.figures import Key, report
from kernels.figures.store import read
from kernels.proof.catalog import OPERATORS
from validation import comparisons

ROWS = comparisons.read()

def kept(name):
    key = Key.of("giou", name, OPERATORS["giou"].workloads["published"], "v5e", "gradient")
    return next(r.value for r in figures.read("estimated.csv") if r.key == key)
"""


ALONE, COMPUTES = Path(__file__).with_name("tests_of_results.txt").read_text().split("\n\n")


@pytest.mark.parametrize("body", ALONE.splitlines())
def test_a_test_of_a_file_alone_is_found(body):
    assert [*only_read(f"{HEAD}\ndef test_it():\n    {body}")] == ["test_it"]


@pytest.mark.parametrize("body", COMPUTES.splitlines())
def test_a_test_that_computes_is_not(body):
    assert not [*only_read(f"{HEAD}\ndef test_it():\n    {body}")]
