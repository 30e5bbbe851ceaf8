"""Every test runs on the CPU, draws the same examples each time, and needs no network."""

import os

import hypothesis
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=15)
hypothesis.settings.load_profile("same")


@pytest.fixture
def status():
    """Keeps what a rung found for the book's status page; each worker in a file of its own."""
    from kernels.bench import status

    part = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return lambda checks: status.note(checks, part)
