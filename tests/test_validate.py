"""python -m kernels validate: a reader's times against the estimates, and rates fitted to them."""

import dataclasses
import json
from types import SimpleNamespace

import commands
import pytest

from kernels import figures, tpu
from kernels.machines.tpu.estimate import bands, rates
from kernels.machines.tpu.estimate.rates import RATES
from kernels.machines.tpu.pool import libtpu_version
from kernels.proof.backends.xla import OnTpu

ONE = figures.Record(operator="matmul", implementation="xla", sizes={"m": 512, "k": 512, "n": 512},
    dtype="bfloat16", chip="v5e", kind="measured", value=0.5, method="device clock",
    versions="jax 0.10.2", date="2026-11-25")  # fmt: skip


def run(*words):
    done = commands.run(*words, columns=200)
    return done.exit_code, done.output


def reads(m):
    """What a program costs that only reads, for m microseconds at the peak."""
    cost = SimpleNamespace(chip=tpu.CHIPS["v5e"], rates=rates.rates_of("v5e"))
    cycles, moved = 1e-6 * m * cost.chip.clock_hz, 1e-6 * m * cost.chip.hbm_bytes_per_second
    op = lambda: SimpleNamespace(cycles=cycles / cost.rates.read, hbm_bytes=moved)
    cost.operations = lambda: [op()]
    return cost


def rows(reached, count=24):
    """Times of a chip that reaches such a share of its bandwidth."""
    time = lambda m: {"sizes": {"m": m, "k": 8, "n": 8}, "value": 1e-3 * m / reached}
    return [dataclasses.replace(ONE, **time(m)) for m in range(512, 512 + 8 * count, 8)]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write rows where the command reads them; each estimate is of `reads`, its band 5 % wide."""

    def estimate(self, jobs, *, timeout, budget):
        [(job, chip)] = jobs
        cost, band = reads(job.arguments[0].shape[0]), bands.Band(chip, "XLA", -0.05, 0.05, 9)
        seconds = cost.operations()[0].cycles / cost.chip.clock_hz
        known = {"depends": (), "band": band, "regime": band.regime}
        return [SimpleNamespace(seconds=seconds, cost=cost, **known)]

    def written(records):
        figures.write(tmp_path / "mine.csv", records)
        return tmp_path / "mine.csv"

    monkeypatch.setattr(OnTpu, "estimate", estimate)
    return written


@pytest.mark.parametrize(("reached", "count", "says"), [
    (1.02, 24, "agrees with the book: 1 of 1"),
    (0.6, 24, "disagrees with the book: 0 of 1"),
    (0.6, 4, "says nothing of the book: 0 of 0"),
])  # fmt: skip
def test_a_machine_is_held_against_the_band(mine, reached, count, says):
    code, output = run("validate", "--rows", mine(rows(RATES["v5e"].read * reached, count)))
    assert f"Your machine {says}" in output and code == ("disagrees" in says)
    assert ("too few" in output) == (count < bands.FEWEST)


def test_rates_are_fitted_to_one_half_and_estimates_follow(mine, tmp_path):
    file, known = tmp_path / "mine.json", rows(0.7)
    spoiled = [dataclasses.replace(r, value=2 * r.value) if r.half == "test" else r for r in known]
    for records, tested in ((known, "0.0%, of |error| 0.0%"), (spoiled, "-50.0%, of |error| 50")):
        _, output = run("validate", "--rows", mine(records), "--fit", file)
        assert json.loads(file.read_text())["rates"]["read"] == pytest.approx(0.7, abs=1e-3)
        last = output.splitlines()[-1]
        assert "test, same program" in last and tested in last
    with rates.use(file, libtpu_version(), ["v5e"]):
        assert rates.rates_of("v5e").read == pytest.approx(0.7, abs=1e-3)
        assert rates.rates_of("v6e") == RATES["v6e"]
    assert rates.rates_of("v5e") == RATES["v5e"]
    few = run("validate", "--rows", mine(known[:8]), "--fit", tmp_path / "few.json")
    assert few[0] == 2 and f"accepted: {bands.FEWEST} or more in each half" in few[1]
    assert not (tmp_path / "few.json").exists()


@pytest.mark.parametrize(("change", "says"), [
    ({"chip": "AMD EPYC"}, "the chip of matmul/xla m=512 k=512 n=512 bfloat16 is 'AMD EPYC'"),
    ({"chip": "H100", "implementation": "theirs"}, "is 'H100'; accepted: v5e"),
    ({"value": 0.0}, "is 0 ms; accepted: measured, more than 0 ms"),
    ({"operator": "cholesky"}, "is 'cholesky'; accepted: attention"),
    ({"implementation": "cuda"}, "accepted: xla, pallas"),
    ({"sizes": {"m": 8}}, "accepted: a number for each of m, k, n"),
    ({"pass_": "step"}, "is 'step'; accepted: forward, gradient"),
    ({"quantity": "limit"}, "without a time; accepted: times that"),
    (None, "times that `python -m kernels bench --record` wrote on a TPU (mine.csv, line 2"),
])  # fmt: skip
def test_rows_that_nothing_can_be_said_of_are_refused(mine, change, says):
    file = mine([dataclasses.replace(ONE, **(change or {}))])
    if change is None:
        file.write_text(file.read_text().replace("chip,", ""))
    code, output = run("validate", "--rows", file)
    assert code == 2 and says in output


@pytest.mark.parametrize(("change", "says"), [
    ({}, ""),
    ({"chip": "v6e"}, "is 'v5e'; accepted: v6e"),
    ({"libtpu": "0.0.1"}, "accepted: 0.0.1"),
    ({"rates": {"read": 7, "write": 0.9, "product": 1, "mosaic": 0.9}}, "accepted: from 0.5 to 1"),
    ({"rates": {"read": 0.9}}, "what `kernels validate --fit` wrote"),
    ({"rates": 1}, "what `kernels validate --fit` wrote"),
])  # fmt: skip
def test_a_rates_file_serves_its_own_chip_and_compiler(tmp_path, change, says):
    held = {"chip": "v5e", "libtpu": libtpu_version(), "rows": 9, "date": "2026-11-25"}
    held |= {"rates": {"read": 0.5, "write": 0.5, "product": 0.9, "mosaic": 0.9}, **change}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(held))
    code, output = run("estimate", "iota/xla", "--rates", file)
    assert code == 2 * bool(says) and (says or "rates fitted to 9 rows of 2026-11-25") in output
    assert "with the rates of" in run("estimate", "iota/xla", "--rates", file, "--record")[1]
