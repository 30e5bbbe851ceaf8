"""Nothing is used before it is taught: neither in a cell, nor in an exercise, nor in a hint."""

import re
from pathlib import Path

import chapters
import nbformat
import pytest

from kernels.lessons.exercises import chapters as exercises

ROOT = Path(__file__).resolve().parent.parent
TAUGHT = {  # name → the slug of the chapter that teaches it
    "pallas_call": "hello_pallas",
    "custom_vjp": "hello_pallas",
    "BlockSpec": "grids_and_memory",
    "program_id": "grids_and_memory",
    "scratch_shapes": "grids_and_memory",
    "dimension_semantics": "grids_and_memory",
    "pl.ds": "inside_a_kernel",
    "pl.loop": "inside_a_kernel",
    "pl.when": "grids_and_memory",
    "pl.multiple_of": "inside_a_kernel",
    "fori_loop": "inside_a_kernel",
    "dot_general": "inside_a_kernel",
    "preferred_element_type": "inside_a_kernel",
    "vmem_limit_bytes": "blockspec_matmul",
    "make_async_copy": "pipelines",
    "emit_pipeline": "pipelines",
    "pl.Buffered": "pipelines",
    "run_scoped": "matmul_on_hopper",
    "PrefetchScalarGridSpec": "flash_attention",
    "PartitionSpec": "sharding",
    "shard_map": "sharding",
    "ppermute": "sharding",
    "psum": "sharding",
    "all_to_all": "sharding",
    "lax.pmax": "collective_matmul",
    "make_async_remote_copy": "rings",
    "get_barrier_semaphore": "rings",
    "semaphore_signal": "rings",
    "semaphore_wait": "rings",
}
HIDDEN = {"remove-cell", "remove-input"}


def texts(slug):
    """(what it is, text) of all that a reader of a chapter reads: its cells, tasks and hints."""
    notebook = nbformat.read(chapters.notebook(slug), as_version=4)
    for number, cell in enumerate(notebook.cells, 1):
        if not HIDDEN & set(cell.metadata.get("tags", [])):
            yield f"cell {number}", cell.source
    for exercise in exercises().get(slug, ()):
        yield f"exercise {exercise.name}", f"{exercise.task}\n{exercise.hint}"


def early(slug, text, order):
    """Names that a text of a chapter uses, and a later chapter teaches, without a link to it."""
    # What names a chapter's file, says where to look; then-and-now compares names, and uses none.
    paragraphs = [p for p in text.split("\n\n") if "then-and-now" not in p]
    for name, teacher in TAUGHT.items():
        if order.index(teacher) <= order.index(slug):
            continue
        used = re.compile(rf"(?<![\w.]){re.escape(name)}\b|(?<=\.){re.escape(name)}\b")
        if any(used.search(p) and f"_{teacher}.ipynb" not in p for p in paragraphs):
            yield name


def test_nothing_is_used_before_it_is_taught():
    order = [*chapters.by_slug()]
    wrong = [
        f"{slug}, {place}: {name}, which {TAUGHT[name]} teaches"
        for slug in order
        for place, text in texts(slug)
        for name in early(slug, text, order)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "slug"), TAUGHT.items())
def test_who_teaches_a_name_says_what_it_is(name, slug):
    notebook = nbformat.read(chapters.notebook(slug), as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.search(rf"`[^`\n]*\b{re.escape(name.split('.')[-1])}\b[^`\n]*`", prose)


def test_a_planted_use_is_seen():
    order = [*chapters.by_slug()]
    uses = "def kernel(x_ref):\n    x_ref[pl.ds(0, 8)]"
    assert [*early("hello_pallas", uses, order)] == ["pl.ds"]
    assert not [*early("flash_attention", uses, order)]
    linked = f"`pl.ds` is for [later]({chapters.notebook('inside_a_kernel').name})."
    assert not [*early("hello_pallas", linked, order)]
    assert [*early("hello_pallas", f"{linked}\n\n`pl.ds`", order)] == ["pl.ds"]
