"""The problems that softmax is proven on."""

import numpy as np

from kernels.machines.tpu.rows import RowBlocks, candidates, explained
from kernels.proof.workload import Workload, Workloads, size, values

PARTS = {"block": RowBlocks(32, 128)}


def _make(workload, rng):
    rows, n = workload.sizes["rows"], workload.sizes["n"]
    x = values(workload.values, (rows, n), workload.dtype, rng)
    if workload.name == "hidden":
        x[:, : n // 2] = -np.inf
    return (x,)


def _draw(rng):
    kind = str(rng.choice(["normal", "wide", "cancelling"]))
    dtype = str(rng.choice(["float32", "bfloat16"]))
    return Workload("random", {"rows": size(rng), "n": size(rng)}, dtype, kind)


def _sized(workload: Workload) -> tuple[int, int, str]:
    return workload.sizes["rows"], workload.sizes["n"], workload.dtype


def _candidates(workload, vmem_bytes):
    return [{"block": block} for block in candidates(*_sized(workload), vmem_bytes, 2)]


def _work(workload, gradient):
    rows, n, _ = _sized(workload)
    # The gradient reads x (or the result) and its cotangent, and writes another.
    return 0, (5 if gradient else 2) * rows * n * workload.itemsize


softmax = Workloads(
    make=_make,
    draw=_draw,
    work=_work,
    candidates=_candidates,
    choice=lambda workload: explained(*_sized(workload), 2),
    published={"m": "rows"},
    named=(
        Workload("one", {"rows": 1, "n": 1}),
        Workload("column", {"rows": 257, "n": 1}, why="rows of one element, all 1"),
        Workload("tile", {"rows": 128, "n": 512}),
        Workload("ragged", {"rows": 131, "n": 77}, why="three rows beyond a tile"),
        Workload("long", {"rows": 3, "n": 20001}, why="rows that do not stay in SBUF"),
        Workload("bfloat16", {"rows": 130, "n": 300}, "bfloat16"),
        Workload("wide", {"rows": 65, "n": 129}, values="wide", why="exp overflows"),
        Workload("cancelling", {"rows": 16, "n": 128}, values="cancelling", why="±1000"),
        Workload("nonfinite", {"rows": 31, "n": 33}, values="nonfinite"),
        Workload("hidden", {"rows": 40, "n": 509}, tuning=PARTS, why="whole parts of −∞"),
        Workload("parts", {"rows": 101, "n": 509}, values="wide", tuning=PARTS),
        Workload("parts_bf16", {"rows": 70, "n": 640}, "bfloat16", tuning=PARTS),
        Workload("longest", {"rows": 2, "n": 140_003}, why="rows longer than one pass takes"),
    ),
    figures=(
        Workload("32768_rows", {"rows": 32768, "n": 8192}, "bfloat16", why="published by others"),
        Workload("vocabulary", {"rows": 2048, "n": 128256}, "bfloat16", why="logits of a model"),
        Workload("4096_rows", {"rows": 4096, "n": 4096}),
        Workload("4096_rows_bfloat16", {"rows": 4096, "n": 4096}, "bfloat16"),
    ),
)
