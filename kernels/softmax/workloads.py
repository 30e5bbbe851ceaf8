"""The problems that softmax is proven on."""

import numpy as np

from kernels.machines.tpu.rows import RowBlocks
from kernels.proof.workload import Workload, along_rows, values

PARTS = {"block": RowBlocks(32, 128)}


def _make(workload, rng):
    rows, n = workload.sizes["rows"], workload.sizes["n"]
    x = values(workload.values, (rows, n), workload.dtype, rng)
    if workload.name == "hidden":
        x[:, : n // 2] = -np.inf
    return (x,)


softmax = along_rows(
    _make,
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
