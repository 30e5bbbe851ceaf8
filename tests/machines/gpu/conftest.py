"""What the tests of kernels.gpu share."""

import pytest

from kernels.machines.gpu import toolchain


def pytest_configure(config):
    """Say what the marker means."""
    config.addinivalue_line("markers", "cuda: needs the compilers of the extra gpu")


def pytest_collection_modifyitems(items):
    """Skip by name what needs the compilers where they are not installed."""
    if not toolchain.available():
        skip = pytest.mark.skip(reason="the extra gpu is not installed: make venv EXTRAS=gpu")
        for item in items:
            if "cuda" in item.keywords:
                item.add_marker(skip)
