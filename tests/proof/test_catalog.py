"""The one list is complete, and names what exists; values are drawn as they are named."""

import importlib
import itertools

import chapters
import jax
import numpy as np
import pytest

from kernels.proof.backends.xla import XLA
from kernels.proof.catalog import OPERATORS, RUNGS, find
from kernels.proof.contract import Implementation, Operator, positions
from kernels.proof.workload import VALUES, Workload, cases, values


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_an_entry_names_what_exists(operator):
    assert callable(operator.function) and callable(operator.reference)
    assert operator.plain in {i.name for i in operator.implementations}
    assert operator.workloads.named and len(positions(operator, operator.differentiable)) == len(
        operator.differentiable
    )
    for each in (operator.magnitude, operator.rounding, operator.gradient_magnitude):
        assert each is None or callable(each)
    for implementation in operator.implementations:
        assert set(implementation.rungs) <= set(RUNGS)
        if not (package := implementation.backend.missing()):
            assert callable(implementation.function), package
        if chapter := implementation.chapter or operator.chapter:  # no operator needs one
            assert chapters.notebook(chapter).exists()


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_workloads_have_their_own_names_and_repeat_with_their_seed(operator):
    named = operator.workloads.named
    assert len({w.name for w in named}) == len(named)
    for workload in named:
        first, again = (operator.workloads.arguments(workload, seed=3) for _ in "ab")
        for a, b in zip(*map(jax.tree.leaves, (first, again)), strict=True):
            nan = hasattr(a, "shape") and workload.dtype != "int8"
            assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=nan)
        if hasattr(first[0], "shape") and first[0].size > 1:
            other = operator.workloads.arguments(workload, seed=4)
            assert not np.array_equal(first[0], other[0], equal_nan=False)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("matmul", lambda o, i: o.name == "matmul"),
        ("iota/triton", lambda o, i: (o.name, i.name) == ("iota", "triton")),
        ("vector", lambda o, i: o.package == "kernels.vector"),
        ("/triton", lambda o, i: i.name == "triton"),
        ("/pallas", lambda o, i: i.name == "pallas"),  # an implementation, whatever the operator
        (None, lambda o, i: True),
    ],
)
def test_find(path, wanted):
    every = [(o, i) for o in OPERATORS.values() for i in o.implementations]
    assert list(find(path)) == [pair for pair in every if wanted(*pair)] != []


@pytest.mark.parametrize("path", ["cholesky", "matmul/cuda", "/cudnn"])
def test_find_says_what_there_is(path):
    with pytest.raises(ValueError, match="accepted: "):
        list(find(path))


def function(x, *, implementation="xla"):
    """For the declarations below."""


function.__module__ = "kernels.vector.operator"  # the folder that sources are looked up in


def declared(**more):
    implementations = (Implementation("xla", XLA, "xla:f"), Implementation("odd", XLA, "odd"))
    return Operator(function, **{"summary": "", "implementations": implementations} | more)


def test_what_contradicts_itself_or_names_nothing_is_refused():
    with pytest.raises(ValueError, match="plain of function is 'numpy'; accepted: xla, odd"):
        declared(plain="numpy")
    with pytest.raises(ValueError, match="accepted: each name once"):
        declared(implementations=declared().implementations * 2)
    with pytest.raises(ValueError, match=r"is 'z'; accepted: x, y \(of add_vectors\)"):
        positions(OPERATORS["add_vectors"], ("z",))
    with pytest.raises(ValueError, match="source is 'odd'; accepted: \"MODULE:NAME\""):
        _ = declared()["odd"].function
    with pytest.raises(AttributeError, match="'f'"):
        _ = declared()["xla"].function
    with pytest.raises(AttributeError, match="'function'"):
        _ = declared().reference
    assert declared().magnitude is None and OPERATORS["matmul"].magnitude is not None


def test_every_magnitude_is_one_that_an_operator_has():
    rooms = [importlib.import_module(f"{o.package}.reference") for o in OPERATORS.values()]
    kinds = ("_magnitude", "_rounding")
    named = {n for room in rooms for n in vars(room) if n.endswith(kinds) and n[0] != "_"}
    ends = ("_magnitude", "_rounding", "_gradient_magnitude")
    assert named and named <= {name + end for name in OPERATORS for end in ends}


def test_kernels_of_libraries_are_not_ours():
    own = {(o.name, i.name) for o in OPERATORS.values() for i in o.implementations if i.is_own}
    assert {("attention", "pallas"), ("brick_pad", "taichi"), ("giou", "nki")} <= own
    theirs = {("attention", "jax_flash"), ("attention", "tokamax"), ("nms", "xla_blocks")}
    assert not own & {*theirs, ("brick_pad", "torch_rows"), ("giou", "numpy")}


@pytest.mark.parametrize("kind", VALUES)
def test_shape_and_dtype(kind):
    dtypes = ["float32", "bfloat16", "float64", "int8", "int32"]
    for shape, dtype in itertools.product([(1,), (1, 1), (7, 13)], dtypes):
        x = values(kind, shape, dtype, np.random.default_rng(0))
        assert (x.shape, str(x.dtype)) == (shape, dtype)


def test_values_are_what_their_kind_says():
    drawn = lambda *asked: values(*asked, np.random.default_rng(0))
    x = drawn("nonfinite", (20, 20), "float32")
    assert np.isnan(x).sum() == 1 and np.isposinf(x).sum() == 1 and np.isneginf(x).sum() == 1
    x = drawn("normal", (4096,), "int8")  # its whole range
    assert x.min() == -128 and x.max() == 127
    x = drawn("cancelling", (1000,), "float64")
    assert abs(x.sum()) < 1e-3 * np.abs(x).sum()
    with pytest.raises(ValueError, match="accepted: normal"):
        drawn("odd", (2,), "float32")


def test_sizes_of_ones_own_come_with_what_cannot_be_done_without():
    bricks = OPERATORS["brick_pad"].workloads
    found = bricks.find("h=5 w=8 c=3 uint8")
    assert found.options == bricks.named[0].options and found.dtype == "uint8"


@pytest.mark.parametrize(
    "text",
    [
        *(f"n=4 {dtype}" for dtype in ("str", "finfo", "int8 int8", "n=5")),
        *(f"n={size}" for size in ("²", "-1", "n=", 1 << 70, 1 << 55)),
    ],
)
def test_a_size_that_cannot_be_and_a_dtype_that_nobody_draws_are_refused(text):
    workloads = OPERATORS["add_vectors"].workloads
    with pytest.raises(ValueError, match=r"workload is .*; accepted: (a whole|sizes (and|whose))"):
        workloads.arguments(workloads.find(text))


def test_a_table_of_cases_says_what_is_special_of_one():
    plain, special = cases("m k", plain=(1, 2), special=(3, 4, "why", {"dtype": "int8"}))
    assert plain == Workload("plain", {"m": 1, "k": 2})
    assert special == Workload("special", {"m": 3, "k": 4}, "int8", why="why")
