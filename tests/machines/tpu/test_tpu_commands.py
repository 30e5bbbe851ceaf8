"""explain, estimate and tune on the command line, and rung 3."""

import os
import re
import time
from types import SimpleNamespace

import pytest
from commands import run, weekly
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import blockwise

from kernels import optional
from kernels.figures import read, store
from kernels.machines.tpu import TpuCompileError, tuner
from kernels.machines.tpu.estimate import estimate_program
from kernels.machines.tpu.explain import facts
from kernels.machines.tpu.export import export
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.catalog import OPERATORS, find
from kernels.yours.explanation import explained

pytestmark = pytest.mark.slow

# Of a chapter's earlier versions, XLA's forms but one and what JAX ships, what explain reads is of
# the same kind.
VARIANT = re.compile(r"/(v\d|sdpa|xla_\w+|jax_\w+)$|(?<!^matmul)/xla$")
TPU = [
    weekly(entry) if VARIANT.search(entry) else entry
    for o in OPERATORS.values()
    for i in o.implementations
    if i.backend in (PALLAS_TPU, XLA) and (entry := f"{o.name}/{i.name}")
]


@pytest.mark.parametrize("entry", TPU)
def test_explain_answers_for_each_entry(entry, scratch):
    # Two kernels at their full size; of the others a small one says as much.
    ((operator, implementation),) = find(entry)
    if implementation.needs:
        pytest.importorskip(implementation.needs)
    small = [w.name for w in operator.workloads.named if implementation.accepts(w)]
    full = entry in ("matmul/pallas", "attention/pallas")
    size = ("-w", "tiny") if "tiny" in small and not full else ()
    start = time.perf_counter()
    result = run("explain", entry, *size)
    assert result.exit_code == 0, result.output
    # Two to twelve seconds on a quiet machine; a crowded one may take its time.
    assert time.perf_counter() - start < 30 * max(1, os.getloadavg()[0] / os.cpu_count())
    for words in ("estimated", "cycles", "Operations", "HBM", "relayouts", "nothing here was"):
        assert words.lower() in result.output.lower()
    if entry.endswith("pallas"):
        assert "bundles" in result.output and "index maps" in result.output


def test_explain_shows_the_vmem_that_the_kernel_may_take(scratch):
    params = pltpu.CompilerParams(vmem_limit_bytes=48 << 20)
    call, array = blockwise((8192, 1024), (2048, 1024), compiler_params=params)
    program = export(call, array, chip="v5e")
    page = str(explained(facts(program, estimate_program(program), "a title")))
    assert "of 48.00 MiB VMEM" in " ".join(page.split())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_explain_says_what_a_custom_workload_costs(dtype, scratch):
    result = run("explain", "matmul/pallas", "-w", f"m=1024 k=512 n=512 {dtype}", "-c", "v6e")
    for words in ("1024", "v6e", "918 TFLOP/s", "spills", "MXU"):
        assert words in result.output
    assert ("as many bfloat16 passes as" in result.output) == (dtype == "float32")


def test_estimate_shows_a_line_for_each_chip(scratch):
    result = run("estimate", "matmul/pallas", "-w", "square_bf16", "-c", "v5e", "-c", "v6e")
    assert result.exit_code == 0, result.output
    assert result.output.count("matmul/pallas") == 2 and "not measured" in result.output


def test_figures_are_estimated_of_what_the_implementation_accepts(monkeypatch):
    asked = []

    def note(jobs, **options):
        asked.extend((job, chip) for job, chip in jobs)
        return [ValueError("noted") for _ in jobs]

    monkeypatch.setattr(PALLAS_TPU, "estimate", note)
    problems = OPERATORS["attention"].workloads
    tiny = problems.arguments(problems["tiny"])  # those of the figures take seconds to draw
    monkeypatch.setattr(type(problems), "arguments", lambda *_: tiny)
    chips = ("-c", "v5e", "-c", "v6e")
    result = run("estimate", "attention/jax_flash", "--figures", "--gradient", *chips)
    assert result.exit_code == 0, result.output
    figures = problems.figures
    more = {"hkv", "window", "soft_cap"}  # which it does not take
    taken = [w for w in figures if not w.sizes["n"] % 128 and not more & {*w.sizes, *w.options}]
    assert 3 < len(taken) < len(figures)
    assert [chip for _, chip in asked] == ["v5e", "v6e"] * len(taken)
    assert all(len(job.wanted) == 3 for job, _ in asked) and "noted" in result.output


def test_what_lost_its_profile_for_want_of_time_is_not_kept(tmp_path, monkeypatch):
    def late(jobs, **options):
        found = {name: 1e-3 for name in ("seconds", "hbm_utilisation", "utilisation", "flops")}
        method = "schedule; no static profile: the compiler had not finished k for v5e after 20 s"
        return [
            SimpleNamespace(**found, chip=chip, bound="compute", method=method, band_text="")
            for _, chip in jobs
        ]

    monkeypatch.setattr(PALLAS_TPU, "estimate", late)
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    words = ("estimate", "matmul/pallas", "-w", "square_bf16", "--record")
    refused = run(*words)
    assert refused.exit_code == 1 and not read("estimated.csv", missing_ok=True)
    assert "static profile ran out of time" in " ".join(refused.output.split())
    assert run(*words, "--late").exit_code == 0 and len(read("estimated.csv")) == 1


def test_tune(scratch, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    result = run("tune", "matmul/pallas", "-w", "m=256 k=256 n=256 bfloat16", "--most", "2")
    assert result.exit_code == 0, result.output
    assert "block=256×256×256" in result.output and "the operator's own choice" in result.output
    assert (tmp_path / "results" / "tuned.csv").exists()


@pytest.mark.libtpu
def test_tune_where_the_default_is_refused(tmp_path, monkeypatch):
    def refuse(programs, **options):
        return [TpuCompileError("vmem", "the kernel asks for too much") for _ in programs]

    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tuner, "estimate_all", refuse)
    result = run("tune", "matmul/pallas", "-w", "m=256 k=256 n=256 bfloat16", "--most", "1")
    assert result.exit_code == 0, result.output
    assert "the operator's own choice: refused" in result.output
    assert "inf" not in result.output.lower() and "%" not in result.output


@pytest.mark.parametrize("command", ["explain", "estimate", "tune"])
def test_without_libtpu(command, monkeypatch):
    available = optional.available
    monkeypatch.setattr(optional, "available", lambda m: m != "libtpu" and available(m))
    result = run(command, "matmul/pallas")
    assert result.exit_code == 2
    assert "pip install" in result.stderr and "libtpu" in result.stderr
