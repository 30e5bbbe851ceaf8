"""No figure of the book takes the compiler longer than a minute."""

import math
import time

import pytest

from kernels import tpu
from kernels.catalog import OPERATORS
from kernels.ladder import Subject

SECONDS = 60.0  # on two idle cores

LARGEST = [
    (operator, implementation, max(figures, key=lambda each: math.prod(each.sizes.values())))
    for operator in OPERATORS.values()
    for implementation in operator.implementations
    if "v5e" in implementation.backend.chips
    and (figures := [w for w in operator.workloads.figures if implementation.accepts(w)])
]


@pytest.mark.full
@pytest.mark.libtpu
@pytest.mark.parametrize(
    ("operator", "implementation", "workload"),
    LARGEST,
    ids=[f"{o.name}-{i.name}" for o, i, _ in LARGEST],
)
def test_the_largest_figure_is_estimated_within_a_minute(operator, implementation, workload):
    job = Subject.of(operator, implementation).job(workload)
    start = time.monotonic()
    [found] = implementation.backend.estimate([(job, "v5e")], timeout=120, budget=25)
    assert isinstance(found, tpu.Estimate)
    assert time.monotonic() - start < SECONDS
