"""How nbmake runs the chapters: each once, for the tests and for the book.

A notebook that the book's cache holds was executed with the same cells, the same package and the
same records, so it is not executed again; one that nbmake executes is put there. A notebook that
lacks an optional package is skipped, by name and with the reason.
"""

import sys
import time
from pathlib import Path

import pytest
from nbmake import pytest_items
from nbmake.nb_result import NotebookResult

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import build_book


class OnceRun(pytest_items.NotebookRun):
    """nbmake's run of one notebook, before which the book's cache is asked."""

    def execute(self):
        path = Path(self.filename)
        with build_book.locked(path.name):
            if found := build_book.kept(path):
                return NotebookResult(nb=found[0], error=None)
            started = time.monotonic()
            result = super().execute()
            seconds = time.monotonic() - started
            if not result.error and not build_book.said_on_stderr(result.nb, path):
                for cell in result.nb.cells:
                    cell.metadata.pop("execution", None)  # the cache is searched by metadata too
                build_book.keep(path, result.nb, execution_seconds=seconds)
            return result


def pytest_configure():
    pytest_items.NotebookRun = OnceRun


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except pytest_items.NotebookFailedException as failure:
        result = failure.args[0]
        cell = result.nb.cells[result.error.failing_cell_index]
        for output in cell.get("outputs", []):
            if output.output_type == "error" and output.ename == "MissingPackage":
                pytest.skip(f"not run: {item.path.name}: {output.evalue}")
        raise
