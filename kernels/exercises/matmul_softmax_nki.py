"""Exercises of the chapter on matmul and softmax in NKI."""

import jax
import ml_dtypes
import numpy as np

from kernels import neuron
from kernels.backends.nki import NKI
from kernels.exercises.exercise import Exercise, prediction, problems
from kernels.ladder import Refused
from kernels.neuron.api import nisa, nki, nl
from kernels.workload import Workload, values

MOST_BYTES = 6 << 20  # that the fast product may move
MOST_SECONDS = 40e-6  # and what it may take, estimated


@nki.jit
def _product(xt, y):
    """One product of the Tensor engine, and its way out."""
    total = nl.ndarray((xt.shape[1], y.shape[1]), dtype=nl.float32, buffer=nl.psum)
    a = nl.ndarray(xt.shape, dtype=xt.dtype, buffer=nl.sbuf)
    b = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=xt)
    nisa.dma_copy(dst=b, src=y)
    nisa.nc_matmul(dst=total, stationary=a, moving=b)
    c = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=c, src=total)
    z = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=z, src=c)
    return z


def _cycles(n, itemsize):
    dtype = np.dtype(np.float32 if itemsize == 4 else ml_dtypes.bfloat16)
    shapes = jax.ShapeDtypeStruct((128, 128), dtype), jax.ShapeDtypeStruct((128, n), dtype)
    return int(neuron.estimate(_product, *shapes).engines["Tensor"].cycles)


def _banks(columns):
    chip = neuron.CHIPS["inf2"]
    each = -(-4 * columns // chip.psum_bank_bytes)
    return chip.psum_bytes // chip.psum_bank_bytes // each


def _matrices(workload, rng):
    k, m, n = (workload.sizes[name] for name in "kmn")
    return tuple(values("normal", shape, workload.dtype, rng) for shape in ((k, m), (k, n)))


def _one(workload, rng):
    shape = tuple(workload.sizes.values())
    return (values(workload.values, shape, workload.dtype, rng),)


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


def _fast(kernel, xt, y, *, interpret):
    """A product under the bar: what it moves, and what it takes."""
    result = neuron.run(kernel, xt, y, interpret=interpret)
    if isinstance(interpret, neuron.InterpretParams) and xt.shape[0] >= 1024:
        found = neuron.estimate(kernel, xt, y)
        if found.dma_bytes > MOST_BYTES:
            raise Refused(
                f"it moves {found.dma_bytes / 2**20:.1f} MiB, and may move {MOST_BYTES >> 20}"
            )
        if found.seconds > MOST_SECONDS:
            raise Refused(
                f"it takes {found.seconds * 1e6:.0f} µs, and may take {MOST_SECONDS * 1e6:.0f}"
            )
    return result


def _softmax(x):
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


EXERCISES = (
    prediction(
        "nki_product_cycles",
        "Write cycles(n, itemsize): the cycles of the Tensor engine for one product of a "
        "stationary tile [128, 128] and a moving one [128, n], of elements of 2 or 4 bytes.",
        _cycles,
        Workload("whole", {"n": 512, "itemsize": 2}),
        Workload("float32", {"n": 512, "itemsize": 4}),
        Workload("narrow", {"n": 16, "itemsize": 2}),
        Workload("narrow_float32", {"n": 16, "itemsize": 4}),
        hint="A column of the moving tile a cycle, at least 64; float32 goes through four times.",
    ),
    prediction(
        "nki_banks",
        "Write tiles(columns): how many tiles [128, columns] of float32 PSUM holds at once.",
        _banks,
        Workload("bank", {"columns": 512}),
        Workload("one_more", {"columns": 513}),
        Workload("one", {"columns": 1}),
        Workload("half", {"columns": 1500}),
        hint="Eight banks of 2 KiB a partition, and a tile takes whole ones.",
    ),
    Exercise(
        "nki_psum",
        "Write product(xt, y), [K, M], [K, N] → [M, N] float32, K a multiple of 128, N at most "
        "512, any M: the chapter's, mended. All its sums are live at once, and PSUM has eight "
        "banks.",
        lambda xt, y: xt.T @ y,
        _run,
        problems(
            _matrices,
            Workload("one_bank", {"k": 256, "m": 128, "n": 512}),
            Workload("ten_banks", {"k": 256, "m": 1280, "n": 512}),
            Workload("ragged", {"k": 128, "m": 1100, "n": 33}),
        ),
        backend=NKI,
        magnitude=lambda xt, y: abs(xt).T @ abs(y),
        hint="A sum can leave PSUM before the next one begins.",
    ),
    Exercise(
        "nki_transpose",
        "Write kernel(x), [M, N] float32 in HBM → [N, M], for any M and N: the Tensor engine turns "
        "tiles of at most 128 × 128.",
        np.transpose,
        _by_tensor,
        problems(
            _one,
            Workload("tile", {"m": 128, "n": 128}),
            Workload("small", {"m": 3, "n": 5}),
            Workload("ragged", {"m": 130, "n": 257}),
        ),
        backend=NKI,
        hint="nisa.nc_transpose reads SBUF and writes PSUM; a DMA does not reach PSUM.",
    ),
    Exercise(
        "nki_exp_sums",
        "Write kernel(x), [B, N] float32 in HBM → [B, 1]: the sums of exp(x) along N, for any B "
        "and N at most 4096, without an instruction on the Vector engine.",
        lambda x: np.exp(x).sum(1, keepdims=True),
        _by_scalar,
        problems(
            _one,
            Workload("tile", {"b": 128, "n": 64}),
            Workload("ragged", {"b": 131, "n": 77}),
            Workload("one", {"b": 1, "n": 1}),
        ),
        backend=NKI,
        magnitude=lambda x: np.exp(x).sum(1, keepdims=True),
        hint="nisa.activation_reduce adds up what it raises.",
    ),
    Exercise(
        "nki_softmax_columns",
        "Write kernel(x), [M, N] float32 in HBM → softmax along M, the first dimension; M at most "
        "512 and N at most 128.",
        lambda x: _softmax(x.T).T,
        _run,
        problems(
            _one,
            Workload("tile", {"m": 128, "n": 128}),
            Workload("tall", {"m": 500, "n": 60}),
            Workload("one", {"m": 1, "n": 3}),
        ),
        backend=NKI,
        hint="No engine reduces over partitions cheaply: turn x first, and the result back.",
    ),
    Exercise(
        "nki_fast_product",
        "Write product(xt, y), [K, M], [K, N] bfloat16 → [M, N] float32, sizes multiples of 128 "
        f"(N of 512), that for K = 1024, M = 512, N = 1024 moves at most {MOST_BYTES >> 20} MiB "
        f"and is estimated at {MOST_SECONDS * 1e6:.0f} µs or less.",
        lambda xt, y: xt.T @ y,
        _fast,
        problems(
            _matrices,
            Workload("bar", {"k": 1024, "m": 512, "n": 1024}, "bfloat16"),
            Workload("small", {"k": 128, "m": 128, "n": 512}, "bfloat16"),
        ),
        backend=NKI,
        magnitude=lambda xt, y: abs(xt).T @ abs(y),
        hint="Both matrices fit into SBUF: 4 MiB of 24. Fetch each element once.",
    ),
)
