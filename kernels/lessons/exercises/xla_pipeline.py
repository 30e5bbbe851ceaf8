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
    return sum(i.hbm_bytes * i.times for i in hlo.parse(compiled.as_text()).run) / (2 * x.nbytes)


def _head_norms(x):
    return (x * x).reshape(len(x), HEADS, -1).sum(2)


EXERCISES = (
    Exercise(
        "polynomial",
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
            *(_passes, 1.1, 1.0, ".2f"),
        ),
    ),
    Exercise(
        "one_pass",
        lambda x: x.var(0),
        drawn("m n"),
        cases("m n", large=(4096, 1024), prime=(101, 3)),
        backend=XLA,
        magnitude=lambda x: (x * x).mean(0) + x.mean(0) ** 2,
        judge=judges.read_by(1),
    ),
    Exercise(
        "head_norms",
        _head_norms,
        drawn("n width"),
        cases("n width", large=(2048, 512), small=(3, 32)),
        backend=XLA,
        magnitude=_head_norms,
        judge=judges.no_relayout,
    ),
)
