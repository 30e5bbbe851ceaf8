"""The problems that matmul and block_sparse_matmul are proven on."""

import jax
import jax.numpy as jnp
import numpy as np

from kernels.machines.tpu.chips import CHIPS, here
from kernels.matmul.blocks import LANES, BlockSizes, candidates, nearest
from kernels.proof.workload import Workload, Workloads, size, values


def _make(workload, rng):
    m, k, n = (workload.sizes[name] for name in "mkn")
    y_shape = (n, k) if workload.options.get("transpose_rhs") else (k, n)
    kind = workload.values
    # A NaN or an infinity in x spoils its row; with one in y too, every element would be spoilt.
    y_kind = "normal" if kind == "nonfinite" else kind
    return (
        values(kind, (m, k), workload.dtype, rng),
        values(y_kind, y_shape, workload.dtype, rng),
    )


def _draw(rng):
    dtype = str(rng.choice(["float32", "bfloat16", "int8"]))
    options = {"transpose_rhs": True} if rng.integers(2) else {}
    if dtype != "int8" and rng.integers(2):
        options["activation"] = jax.nn.relu
    if dtype != "int8" and rng.integers(2):
        options["prologue"] = jnp.tanh
    return Workload(
        "random", {"m": size(rng), "k": size(rng), "n": size(rng)}, dtype, "normal", options
    )


def _candidates(workload, vmem_bytes):
    sizes = (workload.sizes[name] for name in "mkn")
    return [{"block": block} for block in candidates(*sizes, workload.dtype, vmem_bytes)]


def _choice(workload):
    sizes = [workload.sizes[name] for name in "mkn"]
    chip = CHIPS[here()]
    block = BlockSizes.default(*sizes, workload.dtype, chip)
    record, best = nearest(*sizes, workload.dtype, chip)
    shape = "×".join(map(str, record))
    cut = "" if block == best else f", made to fit: {block}"
    return (
        f"blocks {best}, the tuner's best for the nearest shape it has records of, {shape}{cut}; "
        f"{block.arithmetic(workload.dtype)}"
    )


def _work(workload, gradient):
    m, k, n = (workload.sizes[name] for name in "mkn")
    out = 4 if workload.itemsize == 1 else workload.itemsize
    moved = (m * k + k * n) * workload.itemsize + m * n * out
    # The gradients are two more products; they read the cotangent and write two matrices.
    return 2 * m * k * n * (3 if gradient else 1), moved * (2 if gradient else 1)


def _work_quantized(workload, gradient):
    m, k, n = (workload.sizes[name] for name in "mkn")
    out = 2 if workload.options.get("out_dtype") == "bfloat16" else 4
    return 2 * m * k * n, m * k + k * n + 4 * (m + 2 * n) + out * m * n


def _work_sparse(workload, gradient):
    """Of each block at least what a block at the edges has of x, and of y nothing: which of its
    rows are met the sizes do not say."""
    k, n, bm, bk, blocks = (workload.sizes[name] for name in ("k", "n", "bm", "bk", "blocks"))
    m = workload.options.get("m", k)
    elements = blocks * (m % bm or bm) * (k % bk or bk)
    moved = elements * workload.itemsize + m * n * (
        4 if workload.itemsize == 1 else workload.itemsize
    )
    return 2 * elements * n * (3 if gradient else 1), moved * (2 if gradient else 1)


def _mkn(m, k, n):
    return {"m": m, "k": k, "n": n}


_BLOCKS = {"block": BlockSizes(128, 128, 128)}

_FIGURES = tuple(
    Workload(f"cube_{n}_{short}", _mkn(n, n, n), dtype, why="the published table's")
    for dtype, short in (("bfloat16", "bf16"), ("int8", "int8"))
    for n in (1024, 4096, 8192)
)

matmul = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    choice=_choice,
    work=_work,
    figures=_FIGURES,
    named=(
        Workload("one", _mkn(1, 1, 1), why="the smallest there is"),
        Workload("tiny", _mkn(8, 128, 128), why="one register tile of float32"),
        Workload("square", _mkn(512, 512, 512), why="four blocks in every direction"),
        Workload("square_bf16", _mkn(512, 512, 512), "bfloat16", why="what the MXU is built for"),
        Workload("ragged", _mkn(257, 129, 63), why="one above, one above, one below a tile"),
        Workload("odd", _mkn(5, 123, 123), "bfloat16", why="nothing divides anything"),
        Workload("ragged_k", _mkn(64, 509, 128), tuning=_BLOCKS, why="a last block of k cut short"),
        Workload("ragged_k_bf16", _mkn(64, 509, 128), "bfloat16", tuning=_BLOCKS, why="the same"),
        Workload("ragged_k_int8", _mkn(64, 509, 128), "int8", tuning=_BLOCKS, why="the same"),
        Workload(
            "long_k_bf16",
            _mkn(16, 4096, 128),
            "bfloat16",
            tuning=_BLOCKS,
            why="32 steps of accumulation, which bfloat16 would not survive",
        ),
        Workload("relu", _mkn(96, 200, 65), options={"activation": jax.nn.relu}, why="a kink"),
        Workload("gelu", _mkn(65, 64, 200), "bfloat16", options={"activation": jax.nn.gelu}),
        Workload("prologue", _mkn(96, 257, 65), options={"prologue": jnp.tanh}, why="x is read"),
        Workload(
            "prologue_ragged_k",
            _mkn(64, 300, 128),
            "bfloat16",
            options={"prologue": jnp.exp, "transpose_rhs": True},
            tuning=_BLOCKS,
            why="a function of zero that is not zero, where k is cut short",
        ),
        Workload("float8", _mkn(65, 200, 129), "float8_e4m3fn", why="added up in float32"),
        Workload("ragged_k_float8", _mkn(64, 509, 128), "float8_e5m2", tuning=_BLOCKS),
        Workload("transposed", _mkn(31, 129, 257), options={"transpose_rhs": True}),
        Workload("int8", _mkn(64, 384, 200), "int8", why="exact, where int8 sums overflow"),
        Workload("wide", _mkn(63, 101, 65), values="wide", why="magnitudes from 2⁻³⁰ to 2³⁰"),
        Workload("cancelling", _mkn(63, 128, 65), values="cancelling", why="sums that vanish"),
        Workload("nonfinite", _mkn(16, 200, 65), values="nonfinite", why="NaN stays in its row"),
    ),
)


def _make_quantized(workload, rng):
    x, y = _make(workload, rng)
    m, n = workload.sizes["m"], workload.sizes["n"]
    x_scale, y_scale = (2.0 ** rng.uniform(-12, 0, size) for size in (m, n))
    bias = rng.standard_normal(n) * (0 if workload.name == "no_bias" else 100)
    return x, y, *[a.astype(np.float32) for a in (x_scale, y_scale, bias)]


def _draw_quantized(rng):
    options = {"activation": jax.nn.relu} if rng.integers(2) else {}
    sizes = _mkn(size(rng), size(rng), size(rng))
    return Workload("random", sizes, "int8", options=options)


_BFLOAT16 = {"out_dtype": "bfloat16"}

quantized_matmul = Workloads(
    make=_make_quantized,
    draw=_draw_quantized,
    candidates=_candidates,
    choice=_choice,
    work=_work_quantized,
    figures=_FIGURES[-2:],
    named=(
        Workload("one", _mkn(1, 1, 1), "int8", why="the smallest there is"),
        Workload("tiny", _mkn(32, 128, 128), "int8", why="one register tile"),
        Workload("odd", _mkn(5, 123, 123), "int8", why="nothing divides anything"),
        Workload("ragged_k", _mkn(64, 509, 128), "int8", tuning=_BLOCKS, why="k cut short"),
        Workload("blocks", _mkn(300, 384, 200), "int8", tuning=_BLOCKS, why="scales per block"),
        Workload("no_bias", _mkn(33, 64, 257), "int8"),
        Workload("gelu", _mkn(65, 200, 129), "int8", options={"activation": jax.nn.gelu}),
        Workload("bf16", _mkn(64, 384, 200), "int8", options=_BFLOAT16, why="rounded once"),
    ),
)


def _make_sparse(workload, rng):
    k, n, bm, bk = (workload.sizes[name] for name in ("k", "n", "bm", "bk"))
    rows, columns = -(-workload.options.get("m", k) // bm), -(-k // bk)
    places = rng.choice(rows * columns, min(workload.sizes["blocks"], rows * columns), False)
    row, column = np.divmod(np.sort(places).astype(np.int32), np.int32(columns))
    kind = workload.values
    # What the blocks hold beyond x is drawn too: nothing of it may reach the result.
    blocks = values(kind, (len(row), bm, bk), workload.dtype, rng)
    y = values("normal" if kind == "nonfinite" else kind, (k, n), workload.dtype, rng)
    return blocks, y, row, column


def _draw_sparse(rng):
    dtype = str(rng.choice(["float32", "bfloat16", "int8"]))
    bm, bk = (int(rng.choice([32, 64, 96, 128])) for _ in "mk")  # whole register tiles of any dtype
    m, k = size(rng), size(rng)
    blocks = int(rng.integers(1, 1 + min(12, -(-m // bm) * -(-k // bk))))
    return Workload("random", _sparse(k, size(rng), bm, bk, blocks), dtype, options={"m": m})


def _candidates_sparse(workload, vmem_bytes):
    n, bm, bk = (workload.sizes[name] for name in ("n", "bm", "bk"))
    widths = [n, *(LANES << i for i in reversed(range(6)) if LANES << i < n)]
    fitting = (bn for bn in widths if BlockSizes(bm, bk, bn).fits(workload.dtype, vmem_bytes))
    return [{"bn": bn} for bn in fitting]


def _sparse(k, n, bm, bk, blocks):
    return {"k": k, "n": n, "bm": bm, "bk": bk, "blocks": blocks}


block_sparse_matmul = Workloads(
    make=_make_sparse,
    draw=_draw_sparse,
    candidates=_candidates_sparse,
    work=_work_sparse,
    named=(
        Workload("one", _sparse(1, 1, 8, 8, 1), why="the smallest there is"),
        Workload("tenth", _sparse(1280, 256, 128, 128, 10), why="the chapter's example"),
        Workload("none", _sparse(256, 128, 64, 128, 0), "int8", why="no block: all zeros"),
        Workload("all", _sparse(300, 65, 64, 128, 15), options={"m": 257}, why="nothing sparse"),
        Workload("empty_rows", _sparse(256, 128, 8, 128, 5), why="rows that no step writes"),
        Workload("ragged", _sparse(509, 63, 32, 128, 9), options={"m": 101}, why="cut everywhere"),
        Workload("ragged_int8", _sparse(129, 200, 32, 64, 9), "int8", options={"m": 123}),
        Workload("wider", _sparse(5, 7, 32, 128, 1), options={"m": 3}, why="a block beyond it all"),
        Workload(
            "strips",
            _sparse(300, 300, 64, 128, 6),
            "bfloat16",
            tuning={"bn": 128},
            why="columns of y in three strips, the last one cut short",
        ),
        Workload(
            "long_row",
            _sparse(4096, 128, 16, 128, 32),
            "bfloat16",
            options={"m": 16},
            why="32 steps of accumulation, which bfloat16 would not survive",
        ),
        Workload("cancelling", _sparse(256, 64, 32, 128, 9), values="cancelling"),
        Workload("nonfinite", _sparse(200, 65, 32, 64, 12), values="nonfinite"),
    ),
)
