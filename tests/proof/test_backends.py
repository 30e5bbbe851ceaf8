"""Backends: each answers what it can be asked, and nobody else compares a language by its name."""

import ast
import functools
import importlib
import json
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import kernels.proof.backends
from kernels.proof.backends.base import Backend, Job, Skipped
from kernels.proof.backends.numpy import NUMPY
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.backends.xla import XLA
from kernels.proof.catalog import OPERATORS
from kernels.proof.contract import RUNGS
from kernels.proof.ladder import Subject

ROOT = Path(__file__).resolve().parents[2]
EVERY = {
    name: each
    for module in pkgutil.iter_modules(kernels.proof.backends.__path__)
    for name, each in vars(importlib.import_module(f"kernels.proof.backends.{module.name}")).items()
    if isinstance(each, Backend)
}
NAMES = {backend.name for backend in EVERY.values()}


def test_there_is_one_for_each_way_of_writing():
    assert {"Pallas TPU", "Pallas GPU", "XLA", "NumPy", "PyTorch", "Taichi", "NKI"} < NAMES
    backends = kernels.proof.backends
    offered = {name: getattr(backends, name) for name in backends.__all__}
    assert offered == {
        name: EVERY[name] for name in {*EVERY} - {"NKI_BETA1", "IN_LESSONS", "IN_LESSONS_MESH"}
    }


@pytest.mark.parametrize("backend", EVERY.values(), ids=EVERY)
def test_it_says_what_it_claims_and_why_it_cannot_do_more(backend):
    assert backend.name and set(backend.claims) <= set(RUNGS)
    for rung in ("simulate", "compile"):
        reason = backend.why_not(rung)
        assert bool(reason) == (rung not in backend.claims), (rung, reason)
        assert not reason or backend.name in reason
    assert isinstance(backend.why_not("measure"), str)
    if not backend.chips:
        with pytest.raises(NotImplementedError, match="nothing is estimated of"):
            backend.estimate([], timeout=1, budget=1)


def test_a_rung_that_there_is_not_is_refused_in_words():
    job = Job(np.sin, [np.ones(3)])
    with pytest.raises(Skipped, match="there is no simulator for NumPy"):
        NUMPY.simulate(job, 0)
    [found] = XLA.compile([lambda: job])
    assert isinstance(found.error, Skipped) and "nothing to look at" in str(found.error)


def test_of_several_chips_the_first_ones_refusal_is_told(monkeypatch):
    """Whichever compiler answers first: the same words each time."""
    pytest.importorskip("libtpu")
    from kernels.machines.tpu import pool
    from kernels.machines.tpu.diagnose import TpuCompileError

    def last_first(programs, **_):
        for index, program in reversed([*enumerate(programs)]):
            yield index, TpuCompileError("vmem", f"refused for {program.chip}")

    monkeypatch.setattr(pool, "compile_each", last_first)
    operator = OPERATORS["add_vectors"]
    subject = Subject.of(operator, operator["pallas"])
    jobs = [functools.partial(subject.job, each) for each in operator.workloads.named[:2]]
    monkeypatch.setattr(PALLAS_TPU, "compiled_for", ("v5e", "v6e"))
    found = [str(each.error) for each in PALLAS_TPU.compile(jobs)]
    assert len(found) == 2 and all("refused for v5e" in each for each in found), found


def test_what_needs_a_package_names_it(monkeypatch):
    monkeypatch.setattr(kernels.optional, "available", lambda name: False)
    assert TAICHI.missing() == "taichi" and "taichi is not installed" in TAICHI.why_not("measure")
    assert NUMPY.missing() == ""


def comparisons(text):
    """Lines on which something is compared with, or looked up by, the name of a language."""
    for node in ast.walk(ast.parse(text)):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.value, ast.Dict):
            parts = [key for key in node.value.keys if key is not None]  # looked up where it stands
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        inner = [leaf for part in parts for leaf in getattr(part, "elts", [part])]
        if any(isinstance(leaf, ast.Constant) and leaf.value in NAMES for leaf in inner):
            yield node.lineno if hasattr(node, "lineno") else parts[0].lineno


def cells(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    texts = ("".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code")
    lines = "\n".join(texts).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


SOURCES = [
    *(p for p in (ROOT / "kernels").rglob("*.py") if p.parent.name != "backends"),
    *(ROOT / "book" / "_ext").rglob("*.py"),
    *(ROOT / "tools").glob("*.py"),
]


@pytest.mark.slow
def test_no_language_is_compared_by_its_name():
    found = [f"{p.relative_to(ROOT)}:{n}" for p in SOURCES for n in comparisons(p.read_text())]
    found += [p.name for p in (ROOT / "notebooks").glob("*.ipynb") if [*comparisons(cells(p))]]
    assert not found


def test_a_comparison_would_be_found():
    in_match = 'match name:\n    case "PyTorch": pass'
    in_table = 'module = {"Taichi": 1, "NumPy": 2}[name]'
    for planted in ('i.backend.name in ("XLA", "Pallas TPU")', in_table, in_match):
        assert [*comparisons(planted)]
