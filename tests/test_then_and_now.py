"""What the book says of old lines is what old lines say: the version bridge, run row by row."""

import multiprocessing
import os
import re
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify
from jax.experimental import pallas as pl

from kernels.machines.neuron import vendor
from kernels.machines.taichi.runtime import QUIET

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "book" / "version_bridge.md").read_text(encoding="utf-8")
CHAPTERS = "\n".join(p.read_text("utf-8") for p in sorted((ROOT / "notebooks/text").glob("*.md")))
CODE = re.compile(r"(`+)(.+?)\1")
RUN = {"JAX and Pallas": 50, "NKI, beta 1 to modern": 10, "Taichi, and Quadrants": 5}  # at least


SINCE = re.compile(r"from (\d+)\.(\d+) on: ")  # what follows holds from that release of JAX on


def told(cell):
    """The messages that a cell quotes; a name alone is none."""
    return [text.strip() for _, text in CODE.findall(cell) if " " in text.strip()]


def told_of(cell, release):
    """The messages that a cell quotes for a release of JAX, (0, 12): the last part that holds."""
    before, *parts = SINCE.split(cell)
    holds = before
    for major, minor, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        holds = text if release >= (int(major), int(minor)) else holds
    return told(holds)


def warnings_of(cell, release):
    """The messages that a new line may give: what its cell quotes for such a release alone."""
    return [text for text in told_of(cell, release) if SINCE.search(cell.split(text)[0])]


def lines(row):
    """The old line and the new one: the first code of each cell; "the same" has none."""
    old, new = (CODE.search(cell) for cell in row[:2])
    return old[2].strip(), (new or old)[2].strip()


def section(title):
    """The Python that a section of the page begins with, and its rows."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text, re.M)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    return code, [row for row in rows if not row[0].startswith("Then")]


ROWS = {title: section(title)[1] for title in RUN}


def run(code, pairs):
    """What each line says after `code`: its error and its warnings; or what `code` lacks."""
    os.environ.update(QUIET)
    names = {}
    try:
        exec(code, names)
    except ImportError as error:
        return str(error)
    step = names.get("inside", lambda line: exec(line, names))
    return [[said(step, line) for line in pair] for pair in pairs]


def said(step, line):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            step(line)
            answer = ""
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
    kinds = (DeprecationWarning, FutureWarning)
    return "\n".join([answer, *(str(w.message) for w in seen if issubclass(w.category, kinds))])


RELEASE = tuple(int(part) for part in jax.__version__.split(".")[:2])


def fault(row, answers, release=RELEASE):
    """What is wrong with a row of the page, given what its two lines said; empty if nothing."""
    old, new = (answer.strip() for answer in answers)
    messages = told_of(row[2], release)
    if new and not any(message in new for message in warnings_of(row[1], release)):
        return f"the new line says: {new}"
    if messages and not any(message in old for message in messages):
        return f"the old line says: {old or 'nothing'}"
    return f"the old line says: {old}" if old and not messages else ""


@pytest.mark.parametrize("title", RUN)
def test_every_row_of_the_bridge(title):
    """In a process of its own, since two Taichis are loaded, and meshes set."""
    rows = ROWS[title]
    assert len(rows) >= RUN[title]
    if title.startswith("NKI") and vendor.find("nki"):
        pytest.skip("the vendor's nki words its own messages")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        answers = pool.submit(run, section(title)[0], [lines(row) for row in rows]).result()
    if isinstance(answers, str):
        pytest.skip(answers)
    found = [(row[0], fault(row, pair)) for row, pair in zip(rows, answers, strict=True)]
    assert not [each for each in found if each[1]]


WARNS = "`import warnings; warnings.warn('it is old', FutureWarning)`"
UNCHANGED = "unchanged; from 0.12 on: `division by zero`"


@pytest.mark.parametrize(
    ("row", "release", "wrong"),
    [
        (("`1 / 0`", "`1`", "`division by zero`"), RELEASE, ""),
        (("`1 / 0`", "`1`", "unchanged"), RELEASE, "the old line says"),
        (("`1`", "`1`", "`division by zero`"), RELEASE, "the old line says: nothing"),
        (("`1 / 0`", "`1 / 0`", "`division by zero`"), RELEASE, "the new line says"),
        ((WARNS, "`1`", "`is old`"), RELEASE, ""),
        (("`1`", "`1`", UNCHANGED), (0, 10), ""),
        (("`1`", "`1`", UNCHANGED), (0, 12), "the old line"),
        (("`1 / 0`", "`1`", UNCHANGED), (0, 10), "the old"),
        (("`1`", "`1 / 0`; from 0.11 on: `division by zero`", "unchanged"), (0, 12), ""),
        (("`1`", "`1 / 0`; from 0.11 on: `division by zero`", "unchanged"), (0, 10), "the new"),
        (("`1`", "`1 / 0`; from 0.11 on: `division by one`", "unchanged"), (0, 12), "the new"),
    ],
)
def test_a_wrong_row_is_found_and_a_row_tells_of_each_release(row, release, wrong):
    (answers,) = run("", [lines(row)])
    says = fault(row, answers, release)
    assert says.startswith(wrong) and bool(says) == bool(wrong)


def test_the_bridge_tells_of_both_releases_that_are_pinned():
    since = {part for row in ROWS["JAX and Pallas"] for part in SINCE.findall(" ".join(row))}
    assert since >= {("0", "11"), ("0", "12")}


def test_chapters_quote_only_what_the_bridge_does():
    boxes = "".join(re.findall(r":class: then-and-now\n(.*?)```", CHAPTERS, re.S))
    cells = re.findall(r"^\| .* \| .* \| (.*) \|$", boxes, re.M)
    bridge = {message for rows in ROWS.values() for row in rows for message in told(row[2])}
    assert {message for cell in cells for message in told(cell)} <= bridge


def test_randint_ends_where_int8_does():
    key = jax.random.key(0)
    drawn = jax.random.randint(key, (4096,), dtype=jnp.int8, minval=0, maxval=255)
    assert drawn.min() >= 0 and drawn.max() == 127


def test_checkify_does_not_see_into_a_kernel():
    """It reports no error, although the kernel makes a NaN."""

    def log_kernel(x_ref, o_ref):
        o_ref[...] = jnp.log(x_ref[...])

    def log(x):
        return pl.pallas_call(log_kernel, out_shape=x, interpret=True)(x)

    error, result = checkify.checkify(log, errors=checkify.nan_checks)(jnp.array([-1.0]))
    assert jnp.isnan(result).all() and error.get() is None
