"""Exercises of the chapter "The XLA pipeline"."""

import jax

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.bars import Bar
from kernels.lessons.exercises.exercise import Exercise, drawn, jitted
from kernels.machines.tpu import hlo
from kernels.proof.backends.xla import XLA
from kernels.proof.workload import cases

HEADS = 8


def _polynomial(c, x):
    return sum(factor * x**power for power, factor in enumerate(c))


def _passes(tried):
    """What the CPU's program reads and writes, its loops counted turn by turn, in arrays of x."""
    function, (c, x) = tried.program
    compiled = jax.jit(function).lower(c, x).compile()
    moved = sum(i.hbm_bytes * i.times for i in hlo.parse(compiled.as_text()).run)
    return moved / (2 * x.nbytes)


def _head_norms(x):
    return (x * x).reshape(len(x), HEADS, -1).sum(2)


EXERCISES = (
    Exercise(
        "polynomial",
        "Write polynomial(c, x), float32 [length] and [n, n] → [n, n]: c[0] + c[1] x + c[2] x² "
        "and so on for each element, so that the CPU's program moves little more than x and the "
        "result, however many coefficients there are.",
        _polynomial,
        drawn("length", "n n"),
        cases(
            "n length",
            long=(256, 40),
            short=(7, 3),
            constant=(5, 1, "the result still has the shape of x"),
        ),
        call=jitted,
        backend=XLA,
        magnitude=lambda c, x: _polynomial(abs(c), abs(x)),
        bar=Bar(
            "times the bytes of x and of the result, moved by the CPU's program",
            _passes,
            bar=1.1,
            ours=1.0,
            spec=".2f",
        ),
        hint="A loop of JAX stays a loop in XLA, and each of its turns stores a matrix. A loop of "
        "Python is gone once it is traced. Horner's rule needs no powers.",
    ),
    Exercise(
        "one_pass",
        "Write one_pass(x) for the variance of each column, [m, n] → [n], so that the program "
        "compiled for a TPU has one kernel that reads x.",
        lambda x: x.var(0),
        drawn("m n"),
        cases("m n", large=(4096, 1024), prime=(101, 3)),
        backend=XLA,
        magnitude=lambda x: (x * x).mean(0) + x.mean(0) ** 2,
        judge=judges.read_by(1),
        hint="The mean has to be known before (x - mean)², but not before x².",
    ),
    Exercise(
        "head_norms",
        "Write head_norms(x) for the sum of squares in each of 8 heads, [n, 8 d] → [n, 8], so that "
        "the program compiled for a TPU has no operation that only moves data.",
        _head_norms,
        drawn("n width"),
        cases("n width", large=(2048, 512), small=(3, 32)),
        backend=XLA,
        magnitude=_head_norms,
        judge=judges.no_relayout,
        hint="A sum over some columns is a product with a matrix of zeros and ones.",
    ),
)
