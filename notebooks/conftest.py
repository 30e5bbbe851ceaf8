"""How nbmake runs the chapters: each once, for the tests and for the book.

A notebook that the book's cache holds was executed with the same cells, the same package and the
same records, so it is not executed again; one that nbmake executes is put there. A notebook that
lacks an optional package is skipped, by name and with the reason.
"""

import sys
import time
from pathlib import Path

import door
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import build_book


def run_once(path, execute):
    """Execute a notebook, unless the book's cache has it; keep there what was executed."""
    with build_book.locked(path.name):
        if found := build_book.kept(path):
            return door.executed(found[0])
        started = time.monotonic()
        result = execute()
        seconds = time.monotonic() - started
        if not result.error and not build_book.said_on_stderr(result.nb, path):
            for cell in result.nb.cells:
                cell.metadata.pop("execution", None)  # the cache is searched by metadata too
            build_book.keep(path, result.nb, execution_seconds=seconds)
        return result


def pytest_configure():
    door.run_through(run_once)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except Exception as failure:
        for output in door.failed_outputs(failure):
            if output.output_type == "error" and output.ename == "MissingPackage":
                pytest.skip(f"not run: {item.path.name}: {output.evalue}")
        raise
