"""python -m kernels validate: a reader's times against the estimates, and rates fitted to them."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kernels import figures, tpu
from kernels.cli import app
from kernels.figures import Record
from kernels.machines.tpu.estimate import bands, rates
from kernels.machines.tpu.estimate.rates import LIMITS, RATES
from kernels.machines.tpu.pool import libtpu_version
from kernels.proof.backends.xla import OnTpu

ONE = Record(
    operator="matmul",
    implementation="xla",
    sizes={"m": 512, "k": 512, "n": 512},
    dtype="bfloat16",
    chip="v5e",
    kind="measured",
    value=0.5,
    method="device clock",
    versions="jax 0.10.2",
    date="2026-11-25",
)


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    return result.exit_code, result.output


class Costs:
    """A program that only reads: the time is as many milliseconds at the peak as its size says."""

    def __init__(self, record):
        self.chip, self.rates = tpu.CHIPS["v5e"], rates.rates_of("v5e")
        self.milliseconds = 1e-3 * record.sizes["m"]

    def operations(self):
        seconds = 1e-3 * self.milliseconds
        cycles = seconds / self.rates.read * self.chip.clock_hz
        moved = seconds * self.chip.hbm_bytes_per_second
        return [SimpleNamespace(cycles=cycles, hbm_bytes=moved)]


def rows(reached, count=24):
    """Times of a chip that reaches such a share of its bandwidth."""
    sizes = [512 + 8 * i for i in range(count)]
    return [
        dataclasses.replace(ONE, sizes={"m": m, "k": 8, "n": 8}, value=1e-3 * m / reached)
        for m in sizes
    ]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write rows where the command reads them; their estimates are of Costs, the band 5 % wide."""

    def estimated(self, jobs, *, timeout, budget):
        [(job, chip)] = jobs
        cost = Costs(SimpleNamespace(sizes={"m": job.arguments[0].shape[0]}))
        seconds = sum(op.cycles for op in cost.operations()) / cost.chip.clock_hz
        band = bands.Band(chip, "XLA, HBM", -0.05, 0.05, 9)
        known = {"seconds": seconds, "regime": "XLA, HBM", "depends": (), "band": band}
        return [SimpleNamespace(**known, cost=cost)]

    monkeypatch.setattr(OnTpu, "estimate", estimated)

    def written(records):
        file = tmp_path / "mine.csv"
        figures.write(file, records)
        return file

    return written


@pytest.mark.parametrize(
    ("reached", "count", "says"),
    [
        (1.02, 24, "agrees with the book: 1 of 1"),
        (0.6, 24, "disagrees with the book: 0 of 1"),
        (0.6, 4, "says nothing of the book: 0 of 0"),
    ],
)
def test_a_machine_is_held_against_the_band(mine, reached, count, says):
    share = RATES["v5e"].read * reached
    code, output = run("validate", "--rows", mine(rows(share, count)))
    assert says in output and code == ("disagrees" in says)
    assert ("too few" in output) == (count < bands.FEWEST)


def test_rates_are_fitted_to_one_half_and_estimate_with_them(mine, tmp_path):
    file = tmp_path / "mine.json"
    known = rows(0.7)
    spoiled = [dataclasses.replace(r, value=2 * r.value) if r.half == "test" else r for r in known]
    for records, tested in ((known, "test, all: 12 rows, median -0.0%"), (spoiled, "median -50.")):
        _, output = run("validate", "--rows", mine(records), "--fit", file)
        assert json.loads(file.read_text())["rates"]["read"] == pytest.approx(0.7, abs=2e-3)
        assert tested in output.replace("+0.0%", "-0.0%")
    with rates.use(file, libtpu_version(), ["v5e"]):
        assert rates.rates_of("v5e").read == pytest.approx(0.7, abs=2e-3)
        assert rates.rates_of("v6e") == RATES["v6e"]
    assert rates.rates_of("v5e") == RATES["v5e"]


def test_too_few_rows_are_not_fitted_to(mine, tmp_path):
    code, output = run("validate", "--rows", mine(rows(0.8, 8)), "--fit", tmp_path / "mine.json")
    assert code == 2 and f"accepted: {bands.FEWEST} or more in each half" in output
    assert not (tmp_path / "mine.json").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"chip": "AMD EPYC"}, "the chip of matmul/xla m=512 k=512 n=512 bfloat16 is 'AMD EPYC'"),
        ({"value": -1.0}, "is -1 ms; accepted: measured, more than 0 ms"),
        ({"operator": "cholesky"}, "is 'cholesky'; accepted: attention"),
        ({"implementation": "cuda"}, "accepted: xla, pallas"),
        ({"sizes": {"m": 8}}, "accepted: a number for each of m, k, n"),
        ({"pass_": "step"}, "is 'step'; accepted: forward, gradient"),
        ({"quantity": "limit"}, "without a time; accepted: times that"),
    ],
)
def test_a_row_that_nothing_can_be_said_of_is_refused(mine, change, says):
    code, output = run("validate", "--rows", mine([dataclasses.replace(ONE, **change)]))
    assert code == 2 and says in output


def test_a_file_that_is_none_is_refused(mine, tmp_path):
    file = mine([ONE])
    file.write_text(file.read_text().replace("chip,", ""))
    for named in (file, tmp_path / "none.csv"):
        code, output = run("validate", "--rows", named)
        assert code == 2 and "accepted: times that `python -m kernels bench --record`" in output


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"chip": "v6e"}, "is 'v5e'; accepted: v6e"),
        ({"libtpu": "0.0.1"}, "accepted: 0.0.1"),
        ({"rates": {**dict.fromkeys(LIMITS, 0.9), "read": 7, "large": 0}}, "accepted: from 0.5 to"),
        ({"rates": {"read": 0.9}}, "what `kernels validate --fit` wrote"),
        ({"rates": 1}, "what `kernels validate --fit` wrote"),
    ],
)
def test_rates_of_another_chip_or_compiler_are_refused(tmp_path, change, says):
    held = {"chip": "v5e", "libtpu": libtpu_version(), "rows": 9, "date": "2026-11-25"}
    held["rates"] = {**dict.fromkeys(LIMITS, 0.9), "large": 0}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(held | change))
    with pytest.raises(ValueError, match=says), rates.use(file, libtpu_version(), ["v5e"]):
        pass
    code, output = run("estimate", "matmul/xla", "--rates", file)
    assert code == 2 and says in output


def test_an_estimate_with_own_rates_says_so(tmp_path):
    held = {"chip": "v5e", "libtpu": libtpu_version(), "rows": 9, "date": "2026-11-25"}
    held["rates"] = {**dataclasses.asdict(RATES["v5e"]), "read": 0.5, "write": 0.5}
    del held["rates"]["source"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(held))
    code, output = run("estimate", "iota/xla", "--rates", file)
    assert code == 0 and "rates fitted to 9" in output
    assert "with the rates of" in run("estimate", "iota/xla", "--rates", file, "--record")[1]
