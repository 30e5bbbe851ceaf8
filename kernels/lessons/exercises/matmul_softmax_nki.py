"""Exercises of the chapter on matmul and softmax in NKI."""

import functools

import numpy as np

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.backends.nki import NKI
from kernels.proof.workload import cases

FEW = 16  # columns of a narrow matrix
MOST_CYCLES = 64  # of the Tensor engine, for each 128 × 128 of a matrix
COLUMNS, TOGETHER = 64, 8  # of a small product; how many of them a bank of PSUM holds
PRODUCT_MICROSECONDS = 24.0  # that the fast product may take, estimated


def _by_vector(cost, x):
    busy = cost.engines["Vector"].instructions
    return busy and f"the Vector engine has {busy} instructions, and should have none"


def _moves(cost, xt, y):
    """A product of a matrix with a few columns may take few cycles of the Tensor engine."""
    most = MOST_CYCLES * (xt.shape[0] // 128) * (xt.shape[1] // 128)
    cycles = cost.engines["Tensor"].cycles
    return cycles > most and (
        f"the Tensor engine works for {cycles:,.0f} cycles, and may for {most:,}"
    )


def _one_by_one(cost, xt, y):
    """Products have to leave PSUM eight at a time."""
    count = sum(cost.engines[name].instructions for name in ("Vector", "Scalar", "GpSimd"))
    most = -(-len(xt) // TOGETHER)
    return count > most and f"{count} instructions bring {len(xt)} products out of PSUM; {most} can"


_nki = functools.partial(Exercise, backend=NKI, call=judges.on_neuron())
_product = functools.partial(
    _nki,
    reference=lambda xt, y: xt.T @ y,
    make=drawn("k m", "k n"),
    magnitude=lambda xt, y: abs(xt).T @ abs(y),
)

EXERCISES = (
    _product(
        "nki_matrix_stays",
        problems=cases(
            "k m n", dtype="bfloat16", few=(512, 512, 4), vector=(256, 128, 1), most=(128, 256, FEW)
        ),
        call=judges.on_neuron(_moves),
    ),
    _nki(
        "nki_shared_bank",
        lambda xt, y: np.swapaxes(xt, 1, 2) @ y,
        drawn("b k m", f"b k {COLUMNS}"),
        cases(
            "b k m",
            dtype="bfloat16",
            two_banks=(16, 128, 128),
            part=(11, 64, 32),
            one=(1, 128, 128),
        ),
        call=judges.on_neuron(_one_by_one),
        magnitude=lambda xt, y: np.swapaxes(abs(xt), 1, 2) @ abs(y),
    ),
    _product(
        "nki_psum",
        problems=cases(
            "k m n", one_bank=(256, 128, 512), ten_banks=(256, 1280, 512), ragged=(128, 1100, 33)
        ),
    ),
    _nki(
        "nki_exp_sums",
        lambda x: np.exp(x).sum(1, keepdims=True),
        drawn("b n"),
        cases("b n", tile=(128, 64), ragged=(131, 77), one=(1, 1)),
        call=judges.on_neuron(_by_vector),
        magnitude=lambda x: np.exp(x).sum(1, keepdims=True),
    ),
    _product(
        "nki_fast_product",
        problems=cases("k m n", dtype="bfloat16", two=(256, 256, 512), small=(128, 128, 512)),
        bar=bars.nki_microseconds(
            PRODUCT_MICROSECONDS, 22.6, bars.at("bfloat16", k=1024, m=512, n=1024)
        ),
    ),
)
