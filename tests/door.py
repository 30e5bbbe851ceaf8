"""Private names of other packages that only the tests use: of nbmake, PyTorch and torch_xla.

How the tests run a notebook, and what a failed one printed: `nbmake.pytest_items.NotebookRun`,
`.NotebookFailedException` and what that holds. Seen in nbmake 1.5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def run_through(run: Callable[[Path, Callable[[], Any]], Any]) -> None:
    """Let `run` stand around nbmake's execution of each notebook, from now on.

    Args:
        run: Takes the notebook's path and a function that executes it; what either gives has the
            fields `nb`, the executed notebook, and `error`, None where it succeeded.
    """
    from nbmake import pytest_items

    class Run(pytest_items.NotebookRun):
        def execute(self):
            return run(Path(self.filename), super().execute)

    pytest_items.NotebookRun = Run


def executed(notebook: Any) -> Any:
    """What nbmake takes for the result of a notebook that was executed elsewhere, without error."""
    from nbmake.nb_result import NotebookResult

    return NotebookResult(nb=notebook, error=None)


def failed_outputs(error: BaseException) -> list[Any]:
    """The outputs of the cell that failed; [] where the error is no word of nbmake's on a cell."""
    from nbmake.pytest_items import NotebookFailedException

    if not isinstance(error, NotebookFailedException):
        return []
    result = error.args[0]
    return list(result.nb.cells[result.error.failing_cell_index].get("outputs", []))


def torchvision_is_whole() -> bool:
    """Whether torchvision's C++ part was loaded: `torchvision.extension._has_ops`."""
    import torchvision

    return bool(torchvision.extension._has_ops())


def xla_hlo(*tensors: Any) -> str:
    """The HLO of what torch_xla 2.9 has recorded: `torch_xla._XLAC._get_xla_tensors_hlo`."""
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_hlo(list(tensors))
