"""The problems that matmul is proven on."""

import jax

from kernels.matmul.blocks import BlockSizes, candidates
from kernels.workload import Workload, Workloads, size, values


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
    options = {"transpose_rhs": bool(rng.integers(2))}
    if dtype != "int8" and rng.integers(2):
        options["activation"] = jax.nn.relu
    return Workload(
        "random", {"m": size(rng), "k": size(rng), "n": size(rng)}, dtype, "normal", options
    )


def _candidates(workload, vmem_bytes):
    sizes = (workload.sizes[name] for name in "mkn")
    return [{"block": block} for block in candidates(*sizes, workload.dtype, vmem_bytes)]


def _mkn(m, k, n):
    return {"m": m, "k": k, "n": n}


_BLOCKS = {"block": BlockSizes(128, 128, 128)}

matmul = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    named=(
        Workload("one", _mkn(1, 1, 1), why="the smallest there is"),
        Workload("tiny", _mkn(8, 128, 128), why="one register tile of float32"),
        Workload("square", _mkn(1024, 1024, 1024), why="the chapter's example"),
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
        Workload("transposed", _mkn(31, 129, 257), options={"transpose_rhs": True}),
        Workload("int8", _mkn(64, 384, 200), "int8", why="exact, where int8 sums overflow"),
        Workload("wide", _mkn(63, 101, 65), values="wide", why="magnitudes from 2⁻³⁰ to 2³⁰"),
        Workload("cancelling", _mkn(63, 128, 65), values="cancelling", why="sums that vanish"),
        Workload("nonfinite", _mkn(16, 200, 65), values="nonfinite", why="NaN stays in its row"),
    ),
)
