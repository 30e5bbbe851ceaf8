"""Exercises of the chapter "When to write a kernel"."""

import jax
import jax.numpy as jnp
import numpy as np

from kernels.giou.reference import giou
from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.backends.pallas_gpu import PALLAS_GPU
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.xla import XLA
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import cases


def _distances(x, y):
    return ((x[:, None] - y) ** 2).sum(-1)


def _ahead(ours, theirs, band):
    low, high = band  # of the estimated ratio, relative to the measured one
    ratio = theirs / ours
    return (ratio / (1 + high) > 1).astype(np.int64) - (ratio / (1 + low) < 1)


def _estimates(workload, rng):
    n = workload.sizes["n"]
    ours, theirs = 1e-3 * rng.lognormal(0, 0.5, (2, n))
    low, high = -rng.uniform(0, 0.4, n), rng.uniform(0, 0.8, n)
    if workload.name == "measured":
        theirs[::10] = ours[::10]
        low, high = 0 * low, 0 * high
    return ours, theirs, np.stack([low, high])


def _linear(x, w):
    return jnp.tanh(x @ w).sum()


def _attend(q, k):
    return jnp.einsum("bqd,bkd->bqk", q, k)


def _repeated(x, w):
    """Five turns of a loop, of one product each."""
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=5)[0]


# Programs, the shapes of their arguments, and how many products of which size they are made of.
PROGRAMS = {
    "linear": (_linear, ((6, 8), (8, 10)), 1, 6 * 8 * 10),
    "gradients": (jax.grad(_linear, (0, 1)), ((6, 8), (8, 10)), 3, 6 * 8 * 10),
    "batched": (jax.jit(_attend), ((2, 5, 4), (2, 7, 4)), 1, 2 * 5 * 7 * 4),
    "loop": (_repeated, ((6, 8), (8, 8)), 5, 6 * 8 * 8),
}


def _program(workload, rng):
    function, shapes, *_ = PROGRAMS[workload.name]
    return function, *(np.ones(shape, np.float32) for shape in shapes)


def _product_flops(function, *arguments):
    (known,) = (entry for entry in PROGRAMS.values() if entry[0] is function)
    return np.int64(2 * known[2] * known[3])


EXERCISES = (
    Exercise(
        "distances",
        _distances,
        drawn("n d", "m d"),
        cases("n m d", square=(256, 256, 128), ragged=(5, 123, 3)),
        backend=XLA,
        # An expansion adds x², y² and -2xy, and loses digits where these cancel.
        magnitude=lambda x, y: _distances(abs(x), -abs(y)),
        judge=judges.float32_products,
        bar=bars.cycles(150_000, 83_658, workload=bars.at(n=2048, m=2048, d=128)),
    ),
    Exercise(
        "ahead",
        _ahead,
        _estimates,
        cases("n", dtype="float64", estimated=200, measured=(200, "bands of zero, and ties")),
        backend=PYTHON,
    ),
    Exercise(
        "giou_on_a_gpu",
        giou,
        OPERATORS["giou"].workloads.make,
        (*(OPERATORS["giou"].workloads[name] for name in ("one", "ragged", "degenerate")),),
        backend=PALLAS_GPU,
    ),
    Exercise(
        "product_flops",
        _product_flops,
        _program,
        cases(
            "products",
            linear=1,
            gradients=(3, "the trace of a gradient"),
            batched=(1, "a batch, and a jit around it"),
            loop=(5, "a scan of five turns"),
        ),
        backend=PYTHON,
    ),
)
