"""Exercises of the chapter "How to trust a kernel"."""

import functools

import numpy as np

from kernels.lessons import gallery
from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, numbers
from kernels.machines import tpu
from kernels.matmul import reference
from kernels.proof import ladder
from kernels.proof.backends.python import PYTHON
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload, cases

MATMUL = OPERATORS["matmul"].workloads
MOST = 1 << 20  # numbers in an argument that the reader makes


def _race(answer, n, *, interpret):
    """The result on one core, if there is something wrong with that on two."""
    one, two = (tpu.simulate(functools.partial(answer, n), cores=cores) for cores in (1, 2))
    if np.array_equal(one.result, np.arange(n)) and not two.races:
        raise ladder.Refused("two cores give the right result too: do they share the grid?")
    return one.result


def _reveal(answer, name, *, interpret):
    """Whether the bug shows on the arguments that the answer made, and only the bug."""
    arguments = answer(name)
    if not (isinstance(arguments, tuple) and [np.ndim(a) for a in arguments] in ([1, 1], [2, 2])):
        raise ladder.Refused(f"{type(arguments).__name__} is returned, wanted: two arrays, x and y")
    if largest := [a.shape for a in arguments if a.size > MOST]:
        raise ladder.Refused(f"an array is {largest[0]}, larger than {MOST} numbers")
    bug = gallery.bugs()[name]
    operator = OPERATORS[bug.operator]
    yours = Workload("yours", {}, str(arguments[0].dtype))
    like = Exercise(  # the operator, on the reader's arguments
        bug.operator,
        operator.reference,
        lambda workload, rng: arguments,
        (yours,),
        magnitude=operator.magnitude,
    )
    shapes = " and ".join(f"{a.dtype}{list(a.shape)}" for a in arguments)
    for repaired, wanted in ((True, ladder.PASSED), (False, ladder.FAILED)):
        function = functools.partial(bug.kernel, repaired=repaired)
        subject = ladder.Subject(like, name, bug.backend, function)
        (outcome,) = ladder.climb(subject, bug.caught_by, [yours])
        if outcome.status != wanted and repaired:
            raise ladder.Refused(f"the repaired kernel fails on {shapes} too: {outcome.message}")
        if outcome.status != wanted:
            raise ladder.Refused(f"the wrong kernel passes on {shapes}")
    return np.True_


EXERCISES = (
    Exercise(
        "careful",
        reference.matmul,
        MATMUL.make,
        tuple(w for w in MATMUL.named if not w.options),
        rungs=("interpret",),
        magnitude=reference.matmul_magnitude,
        judge=judges.float32_products,
    ),
    Exercise(
        "race",
        lambda n: np.arange(n, dtype=np.int32),
        numbers,
        cases("n", dtype="int32", eight=8, prime=5),
        call=_race,
        backend=PYTHON,
    ),
    Exercise(
        "reveal",
        lambda bug: np.True_,
        lambda workload, rng: (workload.name,),
        (
            Workload("short_grid", {"block": 1024}, why="vectors; programs for n // 1024 blocks"),
            Workload("unmasked_tail", {"bk": 128}, why="matrices; blocks of 128 along k"),
            Workload(
                "narrow_accumulator", {"bk": 128}, "bfloat16", why="sums that bfloat16 carries"
            ),
        ),
        call=_reveal,
        backend=PYTHON,
    ),
)
