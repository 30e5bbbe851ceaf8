"""A notebook that lacks an optional package is skipped, by name and with the reason."""

import pytest
from nbmake.pytest_items import NotebookFailedException


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except NotebookFailedException as failure:
        result = failure.args[0]
        cell = result.nb.cells[result.error.failing_cell_index]
        for output in cell.get("outputs", []):
            if output.output_type == "error" and output.ename == "MissingPackage":
                pytest.skip(f"not run: {item.path.name}: {output.evalue}")
        raise
