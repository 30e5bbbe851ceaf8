"""No figure of the book takes the compiler longer than a minute."""

import math
import time

import pytest

from kernels import optional, tpu
from kernels.catalog import OPERATORS
from kernels.ladder import Subject
from kernels.records import store
from kernels.workload import Workload

SECONDS = 60.0  # on two idle cores


def largest():
    """Of every implementation, the largest problem on a v5e that the book has an estimate of."""
    found: dict = {}
    for row in store.read("estimated.csv"):
        if row.chip != "v5e" or row.pass_ != "forward" or row.operator not in OPERATORS:
            continue
        for implementation in OPERATORS[row.operator].implementations:
            if implementation.name == row.implementation and "v5e" in implementation.backend.chips:
                key = row.operator, row.implementation
                size = math.prod(row.sizes.values())
                if size > found.get(key, (0,))[0]:
                    found[key] = size, implementation, row
    return [each[1:] for each in found.values()]


LARGEST = largest()


@pytest.mark.full
@pytest.mark.libtpu
@pytest.mark.parametrize(
    ("implementation", "row"), LARGEST, ids=[f"{r.operator}-{r.implementation}" for _, r in LARGEST]
)
def test_the_largest_figure_is_estimated_within_a_minute(implementation, row):
    if implementation.needs and not optional.available(implementation.needs):
        pytest.skip(f"{implementation.needs} is not installed")
    workload = Workload(
        "largest",
        dict(row.sizes),
        row.dtype,
        options=row.options.typed(),
        tuning=row.tuning.typed(),
    )
    job = Subject.of(OPERATORS[row.operator], implementation).job(workload)
    start = time.monotonic()
    [found] = implementation.backend.estimate([(job, "v5e")], timeout=120, budget=25)
    assert isinstance(found, tpu.Estimate), found
    assert time.monotonic() - start < SECONDS


def test_every_implementation_with_an_estimate_on_a_v5e_is_timed():
    assert len(LARGEST) > 20
