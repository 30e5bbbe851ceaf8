"""What the tests of kernels.tpu share."""

import os

import pytest

from kernels.machines.optional import available

if os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.setdefault("KERNELS_TPU_CHILDREN", "1")  # the test workers are side by side already


def pytest_configure(config):
    """Say what the marker means."""
    config.addinivalue_line("markers", "libtpu: needs the TPU compiler (the wheel libtpu)")


def pytest_itemcollected(item):
    """Mark what asks for a folder of the compiler's."""
    if "scratch" in item.fixturenames:
        item.add_marker(pytest.mark.libtpu)


def pytest_collection_modifyitems(items):
    """Skip by name what needs the compiler where it is not installed."""
    if not available("libtpu"):
        skip = pytest.mark.skip(reason="libtpu is not installed: pip install 'jax[tpu]'")
        for item in items:
            if "libtpu" in item.keywords:
                item.add_marker(skip)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of our own for temporary files; when the test ends, it may hold those of compilers
    that wait for the next one, and nothing else."""
    import tempfile

    from kernels.machines.tpu import pool

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert set(folder.iterdir()) <= pool._spares.folders(), "temporary files were left behind"
    assert not list(folder.glob("*/dumps/*")), "a compiler that waits has files of the last program"
