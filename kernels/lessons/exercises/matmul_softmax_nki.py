"""Exercises of the chapter on matmul and softmax in NKI."""

import numpy as np

from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, cases, drawn
from kernels.machines import neuron
from kernels.proof.backends.nki import NKI
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload

FEW = 16  # columns of a narrow matrix
MOST_CYCLES = 64  # of the Tensor engine, for each 128 × 128 of a matrix
COLUMNS, TOGETHER = 64, 8  # of a small product; how many of them a bank of PSUM holds
PRODUCT_MICROSECONDS = 24.0  # that the fast product may take, estimated


def _run(kernel, *arrays, interpret):
    return neuron.run(kernel, *arrays, interpret=interpret)


def _by_tensor(kernel, x, *, interpret):
    """A transpose that the Tensor engine makes."""
    result = neuron.run(kernel, x, interpret=interpret)
    if isinstance(interpret, neuron.InterpretParams):
        engines = neuron.estimate(kernel, x).engines
        if not engines["Tensor"].instructions:
            raise Refused("the Tensor engine has nothing to do")
    return result


def _by_scalar(kernel, x, *, interpret):
    """Sums of exponentials, without an instruction of the Vector engine."""
    result = neuron.run(kernel, x, interpret=interpret)
    if isinstance(interpret, neuron.InterpretParams):
        busy = neuron.estimate(kernel, x).engines["Vector"].instructions
        if busy:
            raise Refused(f"the Vector engine has {busy} instructions, and should have none")
    return result


def _stays(kernel, xt, y, *, interpret):
    """A product of a matrix with a few columns, in few cycles of the Tensor engine."""
    result = neuron.run(kernel, xt, y, interpret=interpret)
    if isinstance(interpret, neuron.InterpretParams):
        most = MOST_CYCLES * (xt.shape[0] // 128) * (xt.shape[1] // 128)
        cycles = neuron.estimate(kernel, xt, y).engines["Tensor"].cycles
        if cycles > most:
            raise Refused(f"the Tensor engine works for {cycles:,.0f} cycles, and may for {most:,}")
    return result


def _shared(kernel, xt, y, *, interpret):
    """Products that leave PSUM eight at a time."""
    result = neuron.run(kernel, xt, y, interpret=interpret)
    if isinstance(interpret, neuron.InterpretParams):
        engines = neuron.estimate(kernel, xt, y).engines
        found = sum(engines[name].instructions for name in ("Vector", "Scalar", "GpSimd"))
        most = -(-xt.shape[0] // TOGETHER)
        if found > most:
            raise Refused(
                f"{found} instructions bring {xt.shape[0]} products out of PSUM; {most} can"
            )
    return result


def _softmax(x):
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


EXERCISES = (
    Exercise(
        "nki_matrix_stays",
        "Write product(xt, y), [K, M], [K, N] bfloat16 → [M, N] float32, K and M multiples of 128, "
        f"N at most {FEW}: for each 128 × 128 of the matrix the Tensor engine works for at most "
        f"{MOST_CYCLES} cycles.",
        lambda xt, y: xt.T @ y,
        drawn("k m", "k n"),
        cases(
            "k m n", dtype="bfloat16", few=(512, 512, 4), vector=(256, 128, 1), most=(128, 256, FEW)
        ),
        call=_stays,
        backend=NKI,
        magnitude=lambda xt, y: abs(xt).T @ abs(y),
        hint="A column of the moving tile takes a cycle. Which of the two has few columns?",
    ),
    Exercise(
        "nki_shared_bank",
        f"Write products(xt, y), [B, K, M], [B, K, {COLUMNS}] bfloat16 → [B, M, {COLUMNS}] "
        f"float32, K and M at most 128: at most one instruction for {TOGETHER} products brings "
        "them out of PSUM.",
        lambda xt, y: np.swapaxes(xt, 1, 2) @ y,
        drawn("b k m", f"b k {COLUMNS}"),
        cases(
            "b k m",
            dtype="bfloat16",
            two_banks=(16, 128, 128),
            part=(11, 64, 32),
            one=(1, 128, 128),
        ),
        call=_shared,
        backend=NKI,
        magnitude=lambda xt, y: np.swapaxes(abs(xt), 1, 2) @ abs(y),
        hint="A product may go into a slice of a tile in PSUM: total[:, 64:128].",
    ),
    Exercise(
        "nki_psum",
        "Write product(xt, y), [K, M], [K, N] → [M, N] float32, K a multiple of 128, N at most "
        "512, any M: the chapter's, mended. All its sums are live at once, and PSUM has eight "
        "banks.",
        lambda xt, y: xt.T @ y,
        drawn("k m", "k n"),
        cases(
            "k m n", one_bank=(256, 128, 512), ten_banks=(256, 1280, 512), ragged=(128, 1100, 33)
        ),
        call=_run,
        backend=NKI,
        magnitude=lambda xt, y: abs(xt).T @ abs(y),
        hint="A sum can leave PSUM before the next one begins.",
    ),
    Exercise(
        "nki_transpose",
        "Write kernel(x), [M, N] float32 in HBM → [N, M], for any M and N: the Tensor engine turns "
        "tiles of at most 128 × 128.",
        np.transpose,
        drawn("m n"),
        cases("m n", tile=(128, 128), small=(3, 5), ragged=(130, 257)),
        call=_by_tensor,
        backend=NKI,
        hint="nisa.nc_transpose reads SBUF and writes PSUM; a DMA does not reach PSUM.",
    ),
    Exercise(
        "nki_exp_sums",
        "Write kernel(x), [B, N] float32 in HBM → [B, 1]: the sums of exp(x) along N, for any B "
        "and N at most 4096, without an instruction on the Vector engine.",
        lambda x: np.exp(x).sum(1, keepdims=True),
        drawn("b n"),
        cases("b n", tile=(128, 64), ragged=(131, 77), one=(1, 1)),
        call=_by_scalar,
        backend=NKI,
        magnitude=lambda x: np.exp(x).sum(1, keepdims=True),
        hint="nisa.activation_reduce adds up what it raises.",
    ),
    Exercise(
        "nki_softmax_columns",
        "Write kernel(x), [M, N] float32 in HBM → softmax along M, the first dimension; M at most "
        "512 and N at most 128.",
        lambda x: _softmax(x.T).T,
        drawn("m n"),
        cases("m n", tile=(128, 128), tall=(500, 60), one=(1, 3)),
        call=_run,
        backend=NKI,
        hint="No engine reduces over partitions cheaply: turn x first, and the result back.",
    ),
    Exercise(
        "nki_fast_product",
        "Write product(xt, y), [K, M], [K, N] bfloat16 → [M, N] float32, sizes multiples of 128 "
        "(N of 512), that for K = 1024, M = 512, N = 1024 is estimated at "
        f"{PRODUCT_MICROSECONDS:.0f} µs or less on an Inf2.",
        lambda xt, y: xt.T @ y,
        drawn("k m", "k n"),
        cases("k m n", dtype="bfloat16", two=(256, 256, 512), small=(128, 128, 512)),
        call=lambda kernel, *matrices, interpret: neuron.run(
            kernel, *matrices, interpret=interpret
        ),
        backend=NKI,
        bar=bars.nki_microseconds(
            PRODUCT_MICROSECONDS,
            22.6,
            workload=Workload("bar", {"k": 1024, "m": 512, "n": 1024}, "bfloat16"),
        ),
        magnitude=lambda xt, y: abs(xt).T @ abs(y),
        hint="The sums are eight tiles, and PSUM has eight banks: what can start at once?",
    ),
)
