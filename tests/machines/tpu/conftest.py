"""What the tests of kernels.tpu share."""

import os
import tempfile

import pytest

from kernels.machines.tpu import pool

if os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.setdefault("KERNELS_TPU_CHILDREN", "1")  # the test workers are side by side already


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of our own for temporary files; when the test ends, it may hold those of compilers
    that wait for the next one, and nothing else."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert set(folder.iterdir()) <= pool._spares.folders(), "temporary files were left behind"
    assert not list(folder.glob("*/dumps/*")), "a compiler that waits has files of the last program"
