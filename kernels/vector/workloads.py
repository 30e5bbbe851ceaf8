"""The problems that add_vectors and iota are proven on."""

import numpy as np

from kernels.proof.workload import Workload, Workloads, size, values

DTYPES = ["float32", "bfloat16", "int32"]

add_vectors = Workloads(
    make=lambda workload, rng: tuple(
        values(workload.values, (workload.sizes["n"],), workload.dtype, rng) for _ in "xy"
    ),
    draw=lambda rng: Workload(name="random", dtype=str(rng.choice(DTYPES)), sizes={"n": size(rng)}),
    # Both vectors and the sum; of the gradients nothing more, since they are the cotangent.
    work=lambda workload, gradient: (0, 3 * workload.sizes["n"] * workload.itemsize),
    named=(
        Workload("tiny", {"n": 8}, "int32", why="the first call in the book"),
        Workload("one", {"n": 1}, why="a vector of one element"),
        Workload("ragged", {"n": 100_003}, why="a prime: no block divides it"),
        Workload("bfloat16", {"n": 2048}, "bfloat16", why="two bytes an element"),
        Workload("wide", {"n": 1000}, values="wide", why="magnitudes 2⁻³⁰ to 2³⁰ side by side"),
        Workload("cancelling", {"n": 1000}, values="cancelling", why="large terms, small sums"),
        Workload("nonfinite", {"n": 1000}, values="nonfinite", why="NaN and infinity stay put"),
    ),
)

iota = Workloads(
    make=lambda workload, rng: (workload.sizes["n"],),
    draw=lambda rng: Workload("random", {"n": int(np.minimum(size(rng), 64))}, "int32"),
    named=(
        Workload("tiny", {"n": 8}, "int32", why="the chapter's example"),
        Workload("one", {"n": 1}, "int32", why="a grid of one program"),
        Workload("prime", {"n": 101}, "int32", why="no power of two"),
    ),
)
