"""Kernels that we did not write: those shipped with JAX are right, and planted faults are found."""

import re
from pathlib import Path

import pytest
from commands import needs_libtpu, weekly

from kernels.machines.optional import available
from kernels.proof.contract import RUNGS
from kernels.yours.explaining import explain_file
from kernels.yours.proving import prove_file

HERE = Path(__file__).parent
RIGHT, PLANTED = str(HERE / "jax_kernels.py"), str(HERE / "planted.py")
TOKAMAX = str(HERE / "tokamax_kernels.py")
pytestmark = pytest.mark.slow

PROVEN = re.findall(r'^    "(\w+)": \(', Path(RIGHT).read_text(), re.M)
THEIRS = re.findall(r"^@kernels\.proves.*\ndef (\w+)", Path(TOKAMAX).read_text(), re.M)
ENTRY = r'^    "(\w+)": \("(\w+)"((?:.|\n)*?)\),$'
ENTRIES = re.findall(ENTRY, Path(PLANTED).read_text(), re.M)
FAULTS = [(rung, kernel) for kernel, rung, _ in ENTRIES]
BACKWARD = [kernel for kernel, _, planted in ENTRIES if planted.endswith('"')]

# What is refused with reason.
REFUSED = {"paged_float32"}


def statuses(report, kernel):
    return {(each.rung, each.status) for each in report.findings if each.kernel == kernel}


@needs_libtpu
@pytest.mark.full
@pytest.mark.parametrize("kernel", PROVEN)
def test_a_kernel_shipped_with_jax(kernel):
    report = prove_file(RIGHT, kernel, chips=("v5e",))
    found = statuses(report, kernel)
    assert ("compile", "passed") in found
    if kernel in REFUSED:
        assert ("interpret", "failed") in found
        assert report.failures[0].message.startswith("element [")
    else:
        assert {status for _, status in found} <= {"passed", "partial"}, str(report)


@needs_libtpu
@pytest.mark.parametrize(
    ("rung", "kernel"),
    [FAULTS[2], *(weekly(*fault) for fault in FAULTS if fault != FAULTS[2])],
)
def test_a_planted_fault_is_found(rung, kernel):
    below = RUNGS[: RUNGS.index(rung)]
    report = prove_file(PLANTED, kernel, rungs=(*below, rung))
    found = statuses(report, kernel)
    assert {status for r, status in found if r in below} <= {"passed", "partial"}, str(report)
    assert (rung, "failed") in found, str(report)
    assert "Traceback" not in str(report)
    if kernel in BACKWARD:  # its results are right
        assert all(each.message.startswith("gradient of ") for each in report.failures)


@pytest.mark.full
@needs_libtpu
@pytest.mark.parametrize("kernel", PROVEN)
def test_it_is_explained(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path))
    facts = explain_file(RIGHT, kernel).facts
    assert facts.seconds > 0 and not facts.depends, facts


@pytest.mark.full
@needs_libtpu
@pytest.mark.skipif(not available("tokamax"), reason="tokamax is not installed")
@pytest.mark.parametrize("kernel", THEIRS)
def test_a_kernel_of_tokamax(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path))
    report = prove_file(TOKAMAX, kernel, chips=("v5e",))
    assert {each.status for each in report.findings} <= {"passed", "partial"}, str(report)
    assert explain_file(TOKAMAX, kernel).facts.seconds > 0


def test_the_list_names_them_all():
    first, second = (HERE / "foreign.md").read_text().split("Faults planted")
    named = [re.findall(r"^\| `(\w+)` \|", part, re.M) for part in (first, second)]
    assert named[0] == [*PROVEN, *THEIRS] and len(PROVEN) >= 20
    assert named[1] == [kernel for _, kernel in FAULTS] and len(FAULTS) >= 10
    assert re.findall(r"\| (\w+) \|$", second, re.M) == [rung for rung, _ in FAULTS]
    assert len(BACKWARD) == 6
