"""A ring that somebody brings climbs on several devices, and a wrong one is told what is wrong."""

import pytest
from jax.sharding import PartitionSpec as P

from kernels.machines.optional import available
from kernels.yours.proving import prove_file
from tests.yours import rings

needs_libtpu = pytest.mark.skipif(not available("libtpu"), reason="libtpu is not installed")
FILE = rings.__file__
X = {"mesh": {"x": 4}, "in_specs": P("x"), "out_specs": P()}


@pytest.fixture(scope="module")
def report():
    """What the simulated devices say of every kernel of the file, in one child."""
    return prove_file(FILE, rungs=("interpret", "simulate"))


@pytest.mark.parametrize("kernel", ["right", "met_by_xla", "product"])
def test_a_right_one_passes(report, kernel):
    for rung in ("interpret", "simulate"):
        assert {result.status for result in report.of(kernel, rung)} == {"passed"}
    assert f"{kernel}: on 4 devices" in str(report)


@pytest.mark.parametrize(
    ("kernel", "rung", "says"),
    [
        ("half_a_barrier", "simulate", "may arrive before device 2 has entered"),
        ("no_barrier", "simulate", "has entered the kernel: no barrier keeps it back (rings.py:"),
        ("no_wait", "simulate", "waited for"),
        ("deadlock", "interpret", "deadlock: device 0 waits at rings.py:"),
        ("wrong_neighbour", "interpret", "the first index counts the devices along x"),
        ("last_device", "interpret", "element [3, "),
    ],
)
def test_a_wrong_one_is_caught_at_its_rung(report, kernel, rung, says):
    before = [] if rung == "interpret" else report.of(kernel, "interpret")
    assert all(result.status == "passed" for result in before)
    failed = [result for result in report.of(kernel, rung) if result.status == "failed"]
    assert failed and says in failed[0].message, failed
    assert "Traceback" not in failed[0].message
