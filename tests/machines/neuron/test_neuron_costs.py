"""Each instruction costs what the documents of nki.isa give for it; where they give none, N.

N is the number of elements in a partition, 512 here: more than the 64 cycles that any takes.
"""

import ml_dtypes
import numpy as np
import pytest
from nkikernels import in_psum

from kernels.machines.neuron import InterpretParams, beta1, modern
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.instructions import NAMES
from kernels.machines.neuron.machine import machine as core
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl
from kernels.machines.neuron.simulator import run_recorded

P, N = 64, 512
RNG = np.random.default_rng(0)
X = RNG.uniform(0.5, 1, (P, N)).astype(np.float32)
HALF = X.astype(ml_dtypes.bfloat16)
COLUMN = np.ones((P, 1), np.float32)
BYTES = np.ones((P, N), np.uint8)
WHOLE = np.arange(P * N, dtype=np.int32).reshape(P, N)
PLACES = np.zeros((P, N), np.uint32)
STATIONARY, MOVING = np.ones((128, 128), np.float32), np.ones((128, N), np.float32)
SIXTEENTHS = np.zeros((P, 32), np.uint16)


def new(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def like(tile):
    return new(tile.shape, tile.dtype)


def ran(body, arrays, chip="inf2", language=nl, jit=modern.jit):
    """What body(*tiles) runs, as (engine, cycles), without the copies in."""
    first = []

    def kernel(*given):
        tiles = [language.load(g) for g in given]
        first.append(len(core().instructions))
        body(*tiles)

    _, machine = run_recorded(jit(kernel), arrays, {}, InterpretParams(chip=chip))
    return [(each.engine, each.work + each.extra) for each in machine.instructions[first[0] :]]


def scaled(tile):
    """A tile of float8 in fours, and its scales."""
    fours = new((P, tile.shape[1] // 4), nl.float8_e4m3fn_x4)
    scales = new(fours.shape, nl.uint8)
    nisa.quantize_mx(fours, tile, scales)
    return fours, scales


def scaled_product(a):
    (one, its), (other, their) = scaled(a), scaled(a)
    nisa.nc_matmul_mx(new((N // 4, N // 4), buffer=nl.psum), one, other, its, their)


def product(a, b):
    nisa.nc_matmul(new((a.shape[1], b.shape[1]), buffer=nl.psum), a, b)


def turned(engine, rows):
    def body(a):
        part = a[0:rows, 0:rows]
        buffer = nl.psum if engine is nisa.engine.tensor else nl.sbuf
        nisa.nc_transpose(new((rows, rows), a.dtype, buffer), part, engine)

    return body


def summed(instruction, **options):
    def body(a):
        instruction(like(a), data=a, reduce_op=nl.add, reduce_res=new((P, 1)), **options)

    return body


VECTOR, SCALAR, GPSIMD, TENSOR = "Vector", "Scalar", "GpSimd", "Tensor"
COSTS = {
    "memset": (lambda a: nisa.memset(like(a), 1.0), (X,), [(VECTOR, N)]),
    "memset, 0 in 16 bits": (lambda a: nisa.memset(like(a), 0), (HALF,), [(VECTOR, N / 2)]),
    "tensor_copy": (lambda a: nisa.tensor_copy(like(a), a), (X,), [(VECTOR, N)]),
    "tensor_copy_predicated": (lambda a, p: nisa.tensor_copy_predicated(like(a), a, p), (X, BYTES),
        [(VECTOR, 2 * N)]),
    "tensor_copy_predicated, one in PSUM": (
        lambda a, p: nisa.tensor_copy_predicated(like(a), in_psum(a), p), (X, BYTES),
        [(VECTOR, N), (VECTOR, N)]),
    "tensor_tensor": (lambda a, b: nisa.tensor_tensor(like(a), a, b, nl.add), (X, X),
        [(VECTOR, 2 * N)]),
    "tensor_tensor, one in PSUM": (lambda a, b: nisa.tensor_tensor(like(a), in_psum(a), b, nl.add),
        (X, X), [(VECTOR, N), (VECTOR, N)]),
    "tensor_tensor, bfloat16": (lambda a, b: nisa.tensor_tensor(like(a), a, b, nl.add),
        (HALF, HALF), [(VECTOR, N)]),
    "tensor_tensor, bfloat16, maximum": (lambda a, b: nisa.tensor_tensor(like(a), a, b, nl.maximum),
        (HALF, HALF), [(VECTOR, 2 * N)]),
    "tensor_scalar": (
        lambda a: nisa.tensor_scalar(like(a), a, nl.add, 1.0, op1=nl.multiply, operand1=2.0), (X,),
        [(VECTOR, N)]),
    "tensor_scalar_reduce": (summed(nisa.tensor_scalar_reduce, op0=nl.add, operand0=1.0), (X,),
        [(VECTOR, N), (VECTOR, 64)]),
    "tensor_scalar_cumulative": (
        lambda a: nisa.tensor_scalar_cumulative(like(a), a, nl.add, nl.add, 1.0), (X,),
        [(VECTOR, N)]),
    "scalar_tensor_tensor": (
        lambda a, b: nisa.scalar_tensor_tensor(like(a), a, nl.add, 1.0, nl.multiply, b), (X, X),
        [(VECTOR, 2 * N)]),
    "scalar_tensor_tensor, bfloat16": (
        lambda a, b: nisa.scalar_tensor_tensor(like(a), a, nl.subtract, 1.0, nl.multiply, b),
        (HALF, HALF), [(VECTOR, N)]),
    "tensor_reduce": (lambda a: nisa.tensor_reduce(new((P, 1)), nl.add, a, 1), (X,), [(VECTOR, N)]),
    "tensor_reduce, bfloat16": (lambda a: nisa.tensor_reduce(new((P, 1), a.dtype), nl.add, a, 1),
        (HALF,), [(VECTOR, N / 2)]),
    "tensor_partition_reduce": (lambda a: nisa.tensor_partition_reduce(new((1, N)), nl.add, a),
        (X,), [(GPSIMD, 150 + N)]),
    "tensor_tensor_scan": (
        lambda a, b: nisa.tensor_tensor_scan(like(a), a, b, 0.0, nl.multiply, nl.add), (X, X),
        [(VECTOR, 2 * N)]),
    "reciprocal": (lambda a: nisa.reciprocal(like(a), a), (X,), [(VECTOR, 8 * N)]),
    "activation": (lambda a: nisa.activation(like(a), nl.exp, a), (X,), [(SCALAR, N)]),
    "activation_reduce": (summed(nisa.activation_reduce, op=nl.exp), (X,),
        [(SCALAR, N), (SCALAR, 64)]),
    "iota": (lambda a: nisa.iota(new((P, N), nl.int32), [[1, N]]), (X,), [(GPSIMD, 150 + N)]),
    "affine_select": (lambda a: nisa.affine_select(like(a), [[1, N]], -1, a, 0.0, nl.greater_equal),
        (X,), [(GPSIMD, 150 + N)]),
    "range_select": (
        lambda a, c: nisa.range_select(
            like(a), a, nl.greater_equal, nl.less, c, c, reduce_res=new((P, 1))
        ),
        (X, COLUMN),
        [(VECTOR, N), (VECTOR, 64)],
        "trn2",
    ),
    "select_reduce": (
        lambda a, p: nisa.select_reduce(like(a), p, a, 0.0),
        (X, BYTES),
        [(VECTOR, 2 * N)],  # as tensor_copy_predicated
        "trn2",
    ),
    "dropout": (lambda a: nisa.dropout(like(a), a, 0.5), (X,), [(VECTOR, N)]),
    "nc_matmul": (lambda a, b: product(a[:, 0:128], b), (HALF, HALF), [(TENSOR, N)]),
    "nc_matmul, float32": (product, (STATIONARY, MOVING), [(TENSOR, 4 * N)]),
    "nc_matmul, narrow": (lambda a: product(a[:, 0:128], a[:, 0:8]), (HALF,), [(TENSOR, 64)]),
    "nc_matmul, both narrow": (lambda a: product(a[:, 0:32], a[:, 0:8]), (HALF,), [(TENSOR, 32)]),
    "nc_transpose, Vector": (turned(nisa.engine.vector, 32), (X,), [(VECTOR, 64)]),
    "nc_transpose, Tensor": (turned(nisa.engine.tensor, P), (HALF,), [(TENSOR, P)]),
    "nc_transpose, Tensor, float32": (  # a product of float32 takes four passes
        turned(nisa.engine.tensor, P),
        (X,),
        [(TENSOR, 4 * P)],
    ),
    "nc_matmul_mx": (scaled_product, (HALF,), [(VECTOR, N / 4), (VECTOR, N / 4), (TENSOR, N / 4)],
        "trn3"),
    "quantize_mx": (scaled, (HALF,), [(VECTOR, N / 4)], "trn3"),
    # By the documents' formula a gather of single elements would cost an eighth of one of long
    # pieces, although a piece has a price of its own: N stands here until somebody measures.
    "local_gather": (lambda a, i: nisa.local_gather(like(a), a, i), (X, SIXTEENTHS),
        [(GPSIMD, 150 + N)]),
    "sequence_bounds": (lambda a: nisa.sequence_bounds(new((1, 2, N)), a), (X[:1],),
        [(GPSIMD, 150 + N)]),
    "nonzero_with_count": (lambda a: nisa.nonzero_with_count(new((P, N + 1), nl.int32), a),
        (WHOLE,), [(GPSIMD, 150 + N)], "trn2"),
    "max8": (lambda a: nisa.max8(new((P, 8)), a), (X,), [(VECTOR, N)]),
    "nc_find_index8": (lambda a: nisa.nc_find_index8(new((P, 8), nl.uint32), a, a[:, 0:8]), (X,),
        [(VECTOR, N)]),
    "nc_match_replace8": (lambda a: nisa.nc_match_replace8(like(a), a, a[:, 0:8], 0.0), (X,),
        [(VECTOR, N)]),
    "nc_stream_shuffle": (lambda a: nisa.nc_stream_shuffle(like(a), a, list(range(32))), (X,),
        [(VECTOR, N)]),
    "nc_n_gather": (lambda a, p: nisa.nc_n_gather(like(a), a, p), (X, PLACES), [(GPSIMD, 150 + N)]),
    "bn_stats": (lambda a: nisa.bn_stats(new((P, 6)), a), (X,), [(VECTOR, N)]),
    "bn_aggr": (lambda a: nisa.bn_aggr(new((P, 2)), a[:, 0:510]), (X,), [(VECTOR, 13 * 510 / 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_an_instruction_costs_what_the_documents_say(name):
    body, arrays, want, *chip = COSTS[name]
    assert ran(body, arrays, *chip) == [(engine, pytest.approx(c)) for engine, c in want]


OLD = {
    "tensor_copy": (lambda a: bisa.tensor_copy(a), (X,), [(VECTOR, N)]),
    "tensor_tensor": (lambda a, b: bisa.tensor_tensor(a, b, np.add), (X, X), [(VECTOR, 2 * N)]),
    "nc_matmul": (lambda a, b: bisa.nc_matmul(a[:, 0:128], b), (HALF, HALF), [(TENSOR, N)]),
    "nl.exp": (lambda a: bl.exp(a), (X,), [(SCALAR, N)]),
    "nl.multiply": (lambda a, b: bl.multiply(a, b), (X, X), [(VECTOR, 2 * N)]),
    "nl.multiply, a column": (lambda a, c: bl.multiply(a, c), (X, COLUMN), [(VECTOR, N)]),
    "nl.sum": (lambda a: bl.sum(a, axis=1), (X,), [(VECTOR, N)]),
}


@pytest.mark.parametrize("name", OLD)
def test_beta_1_costs_the_same(name):
    body, arrays, want = OLD[name]
    found = ran(body, arrays, language=bl, jit=beta1.jit)
    assert found == [(engine, pytest.approx(c)) for engine, c in want]


# Copies by DMA are timed by their bytes, registers and meetings by nothing.
UNTIMED = {"core_barrier", "dma_compute", "dma_copy", "dma_transpose", "sendrecv"}
UNTIMED |= {f"register_{what}" for what in ("alloc", "load")}


def test_every_instruction_has_a_cost_here():
    assert set(NAMES) - {name.split(",")[0] for name in COSTS} == UNTIMED
