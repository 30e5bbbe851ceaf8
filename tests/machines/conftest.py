"""What needs a compiler that is not installed is skipped by name."""

import pytest

from kernels.machines.gpu import toolchain
from kernels.machines.optional import available

# marker → whether its compiler is here, and the command that installs it
NEEDS = {
    "libtpu": (available("libtpu"), "libtpu is not installed: pip install 'jax[tpu]'"),
    "cuda": (toolchain.available(), "the extra gpu is not installed: make venv EXTRAS=gpu"),
}


def pytest_configure(config):
    for name in NEEDS:
        config.addinivalue_line("markers", f"{name}: needs a compiler of machine code")


def pytest_itemcollected(item):
    """Mark what asks for a folder of the TPU compiler's, and leave out what cannot run here."""
    if "scratch" in item.fixturenames:
        item.add_marker(pytest.mark.libtpu)
    for name, (here, why) in NEEDS.items():
        if name in item.keywords and not here:
            item.add_marker(pytest.mark.skip(reason=why))
