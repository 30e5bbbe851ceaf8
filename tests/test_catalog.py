"""The one list is complete, and names what exists."""

from pathlib import Path

import numpy as np
import pytest

from kernels.catalog import OPERATORS, RUNGS, find

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_an_entry_names_what_exists(operator):
    assert callable(operator.function) and callable(operator.reference)
    assert operator.plain in {i.name for i in operator.implementations}
    assert (NOTEBOOKS / f"{operator.chapter}.ipynb").exists()
    for implementation in operator.implementations:
        assert set(implementation.rungs) <= set(RUNGS)
        chapter = implementation.chapter or operator.chapter
        assert (NOTEBOOKS / f"{chapter}.ipynb").exists()


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_workloads_have_their_own_names_and_repeat(operator):
    named = operator.workloads.named
    assert len({w.name for w in named}) == len(named)
    for workload in named:
        first, again = (operator.workloads.arguments(workload, seed=3) for _ in "ab")
        for a, b in zip(first, again, strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=workload.dtype != "int8")


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_another_seed_gives_other_values(operator):
    for workload in operator.workloads.named:
        one, two = (operator.workloads.arguments(workload, seed) for seed in (0, 1))
        if hasattr(one[0], "shape") and one[0].size > 1:
            assert not np.array_equal(one[0], two[0], equal_nan=False)


@pytest.mark.parametrize(
    ("path", "count"), [("matmul", 8), ("matmul/pallas", 1), ("iota/triton", 1), ("vector", 6)]
)
def test_find(path, count):
    assert len(list(find(path))) == count


@pytest.mark.parametrize("path", ["cholesky", "matmul/cuda", "/cuda", "/pallas"])
def test_find_says_what_there_is(path):
    if path == "/pallas":
        having = [o for o in OPERATORS.values() if "pallas" in {i.name for i in o.implementations}]
        assert [o for o, _ in find(path)] == having  # an implementation, whatever the operator
        return
    with pytest.raises(ValueError, match="accepted: "):
        list(find(path))
