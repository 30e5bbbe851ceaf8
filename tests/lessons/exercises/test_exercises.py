"""The checker says of what is wrong why. That solutions pass, running the notebooks proves.

A file wrong_CHAPTER.py has wrong answers to the exercises of a chapter, and what is said of each.
"""

import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chapters import slug
from jax.experimental import pallas as pl
from refused import refuses
from solutions import TEXTS, planted

from kernels import ladder, optional
from kernels.lessons.exercises import chapters, check, exercises, warm_up
from kernels.machines.gpu import toolchain
from kernels.machines.neuron.gpsimd import compiler

HERE = Path(__file__).parent
TABLES = [importlib.import_module(path.stem) for path in sorted(HERE.glob("wrong_*.py"))]
WRONG = [case for table in TABLES for case in table.WRONG]
RIGHT = [case for table in TABLES for case in getattr(table, "RIGHT", ())]


def needs_its_language(name):
    tools = exercises()[name].backend.needs
    if tools and not any(map(optional.available, tools)):
        pytest.skip(f"needs {tools[0]}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "answer", "rung", "says"),
    WRONG,
    ids=[f"{name}-{place}" for place, (name, *_) in enumerate(WRONG)],
)
def test_a_wrong_answer_is_told_why(name, answer, rung, says, monkeypatch):
    """An answer is a function, or what stands in the solution for what. The rungs before the one
    that refuses it are left out: on them it does what the solution does."""
    needs_its_language(name)
    climb = ladder.climb
    monkeypatch.setattr(ladder, "climb", lambda s, r, w: climb(s, r, w) if r == rung else ())
    found = check(name, planted(name, answer) if isinstance(answer, dict) else answer)
    assert found.passed is False and "NameError" not in str(found), str(found)
    if "cannot be judged" in str(found):
        missing = not optional.available("libtpu") or not toolchain.available()
        pytest.skip("needs libtpu or the extra gpu") if missing else pytest.fail(str(found))
    assert f"refused at {rung}" in str(found) and says in str(found), str(found)
    assert "not yet right" in found._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), RIGHT)
def test_a_right_answer_may_be_written_in_another_way(name, changes):
    needs_its_language(name)
    answer = check(name, planted(name, changes))
    assert answer.passed, str(answer)


def test_what_was_wanted_stands_beside_what_came():
    def forgets_y(a_ref, x_ref, y_ref, o_ref):
        o_ref[...] = a_ref[0] * x_ref[...]

    def misspelt(a_ref, x_ref, y_ref, o_ref):
        o_ref[...] = a_reff[0] * x_ref[...]  # noqa: F821

    words = str(check("axpy", forgets_y))
    assert all(f"\n  {name:<7}[" in words for name in ("a", "x", "y", "wanted", "got"))
    words = str(check("axpy", misspelt))  # a hint says nothing of a name
    assert "NameError: name 'a_reff'" in words and "hint" not in words and "wanted" not in words


def test_each_exercise_has_a_wrong_answer():
    assert {name for name, *_ in WRONG} == set(exercises())


@pytest.mark.parametrize("name", exercises())
def test_zeros_are_no_answer(name):
    """A rung says "every element is zero" of zeros, unless the reference is zero too."""
    exercise = exercises()[name]
    # Compiled by Taichi, an access beyond an array would end the reader's own process.
    assert exercise.rungs[0] == {"Taichi": "simulate"}.get(exercise.backend.name, "interpret")
    drawn = [(exercise.workloads.arguments(w), w.options) for w in exercise.problems]
    assert any(np.any(exercise.reference(*arrays, **options)) for arrays, options in drawn)


@pytest.mark.parametrize("name", exercises())
def test_an_untouched_cell_asks_for_the_answer(name):
    def answer(*arguments, **options):
        """To be written."""
        ...

    found = check(name, answer)
    assert found.passed is None and "not written yet" in str(found)
    task = exercises()[name].task
    told, _, rest = task.partition("(")
    named = rest and told.removeprefix("Write ").isidentifier()
    # The function is called what the reader calls it, whatever the package does.
    assert (f"Write answer({rest}" if named else task) in str(found)


def test_what_cannot_run_is_not_right(monkeypatch):
    giou_loss = planted("giou_loss", {})
    monkeypatch.setattr(optional.shutil, "which", lambda name: None)
    compiler.gpp.cache_clear()
    compiler._version.cache_clear()
    try:
        found = check("giou_loss", giou_loss)
    finally:
        compiler.gpp.cache_clear()
    assert found.passed is False and "cannot be proven at interpret" in str(found)


test_what_is_refused = refuses(
    check,
    ("cholesky", print, "name is 'cholesky'; accepted: .*axpy"),
    ("axpi", print, "accepted: axpy, perhaps; all: "),
    ("axpy", 3, "answer is a int"),
)


def test_each_exercise_says_what_it_wants():
    for each in exercises().values():
        assert each.task.startswith("Write ") and each.task.endswith(".")
        assert f"{each.name}: {each.task}" in repr(each) and "lambda" not in repr(each)
        # Of one tile each place is looked at; otherwise an answer may suit a single size.
        assert len(each.workloads.named) >= 2 or each.name == "bank_places"


def checked(path):
    return re.findall(r"exercises\.check\(\"(\w+)\"", path.read_text())


def test_the_chapters_and_the_package_have_the_same_exercises():
    """Each is checked in the cell to fill, and in the solution, which has to pass."""
    for path in TEXTS:
        known = [e.name for e in chapters().get(slug(path), ())]
        assert sorted(set(checked(path))) == sorted(known), path.name
        for name in known:
            assert checked(path).count(name) >= 2, f"{path.name}: {name}"
        assert path.read_text().count("\nassert answer.passed") == len(known), path.name


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_each_exercise_of_a_chapter_is_checked_or_open(path):
    """An exercise that nothing checks says so, with :class: open-question."""
    for text in path.read_text().split("```{exercise}")[1:]:
        is_open = ":class: open-question" in text.split("```")[0]
        assert is_open != ("exercises.check(" in text), text.split("```")[0]


X = np.arange(12, dtype=np.float32).reshape(3, 4)
transposed = np.transpose


def by_columns(x_ref, o_ref):
    for column in range(4):
        o_ref[column, :] = x_ref[:, column]


def known_by_heart(x_ref, o_ref):
    o_ref[...] = jax.lax.broadcasted_iota(jnp.float32, (4, 3), 1) * 4 + jax.lax.broadcasted_iota(
        jnp.float32, (4, 3), 0
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x_ref, o_ref: None, "12 of 12 differ, first [0, 0]: wanted 0, got nan"),
        (known_by_heart, "wanted"),
        (lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), "Invalid shape"),
    ],
)
def test_a_wrong_answer_to_a_puzzle_is_refused(answer, words):
    outcome = warm_up(answer, transposed, X)
    assert outcome.passed is False and words in str(outcome)


def test_right_answers_to_a_puzzle_pass():
    assert warm_up(by_columns, transposed, X).passed
    double = lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2)
    block = pl.BlockSpec((1, 4), lambda i: (i, 0))
    for out_specs in (block, [block]):
        specs = {"grid": 3, "in_specs": [block], "out_specs": out_specs}
        assert warm_up(double, lambda x: x * 2, X, **specs).passed
    assert warm_up(lambda n: n + 1, lambda n: n + 1, 3, call=False).passed
    off_by_one = warm_up(lambda n: n, lambda n: n + 1, 3, call=False)
    assert "wanted 4, got 3" in off_by_one._repr_html_()
    of_two = warm_up(lambda x: (x, x), lambda x: x, X, call=False)
    assert "[(3, 4), (3, 4)]; accepted: [(3, 4)]" in str(of_two)


def test_a_formula_that_is_no_function_is_refused():
    with pytest.raises(ValueError, match="formula is a int; accepted: a function"):
        warm_up(by_columns, 3, X)
