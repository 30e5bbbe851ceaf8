"""The problems that grouped_matmul is proven on."""

import numpy as np

from kernels.grouped_matmul.blocks import GroupedBlocks, candidates
from kernels.machines.tpu.chips import CHIPS, here
from kernels.proof.workload import Workload, Workloads, cases, size, values

# Workload's name → the rows of its groups, where they are not as a router would draw them.
GROUPS = {
    "one_full": lambda m, g: [m if group == g // 2 else 0 for group in range(g)],
    "one_row_each": lambda m, g: [1] * g,
    "edges": lambda m, g: [100, 60, 0, 96, 44],
    "edges_bf16": lambda m, g: [100, 60, 0, 96, 44],
    "left_over": lambda m, g: [37, 0, 130],
    "left_over_bf16": lambda m, g: [100, 0, 92],
    "empty": lambda m, g: [0] * g,
    "huge": lambda m, g: [m - g + 1] + [1] * (g - 1),
}


def group_sizes(workload, rng):
    """int32 [g]: those of the workload's name, or each row's group drawn, all alike."""
    m, g = workload.sizes["m"], workload.sizes["g"]
    if workload.name in GROUPS:
        return np.array(GROUPS[workload.name](m, g), np.int32)
    return np.bincount(rng.integers(g, size=m), minlength=g).astype(np.int32)


def _make(workload, rng):
    m, k, n, g = (workload.sizes[name] for name in "mkng")
    kind, dtype = workload.values, workload.dtype
    x = values(kind, (m, k), dtype, rng)
    # A NaN or an infinity in x spoils its row; with one in w too, a whole group would be spoilt.
    w = values("normal" if kind == "nonfinite" else kind, (g, k, n), dtype, rng)
    return x, w, group_sizes(workload, rng)


def _draw(rng):
    sizes = {name: size(rng) for name in "mkn"} | {"g": int(rng.choice([1, 2, 3, 8, 17]))}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])))


def _candidates(workload, vmem_bytes):
    sizes = (workload.sizes[name] for name in "mkng")
    return [{"block": block} for block in candidates(*sizes, workload.dtype, vmem_bytes)]


def _choice(workload):
    m, k, n, g = (workload.sizes[name] for name in "mkng")
    block = GroupedBlocks.default(m, k, n, g, workload.dtype, CHIPS[here()])
    return f"blocks {block}: a quarter of a group's {m // g} rows, all of k and n that VMEM holds"


def _work(workload, gradient):
    m, k, n, g = (workload.sizes[name] for name in "mkng")
    # At most: which groups have rows, the sizes do not say. A gradient is two products more.
    moved = workload.itemsize * (m * k + min(g, m) * k * n + m * n) + 4 * g
    return 2 * m * k * n * (3 if gradient else 1), moved * (2 if gradient else 1)


_BF16 = {"dtype": "bfloat16"}
_BLOCKS = {"tuning": {"block": GroupedBlocks(64, 128, 128)}}

grouped_matmul = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    choice=_choice,
    work=_work,
    figures=cases(
        "m k n g",
        dtype="bfloat16",
        mixtral=(8192, 4096, 1792, 8, "4,096 tokens by 2 of 8 experts, an eighth of their width"),
        mixtral_decode=(128, 4096, 1792, 8, "64 tokens by 2 of 8 experts"),
        deepseek=(12288, 2048, 1408, 64, "2,048 tokens by 6 of 64 experts"),
    ),
    named=cases(
        "m k n g",
        one=(1, 1, 1, 1, "the smallest there is"),
        single=(200, 65, 129, 1, "one group: a matmul"),
        edges=(300, 64, 200, 5, "groups that begin and end inside a block", _BLOCKS),
        edges_bf16=(300, 129, 65, 5, _BF16, _BLOCKS),
        one_full=(150, 64, 65, 8, "all groups empty but one"),
        one_row_each=(37, 64, 128, 37, "a block of as many groups as rows"),
        left_over=(200, 40, 129, 3, "rows that are in no group", _BLOCKS),
        left_over_bf16=(256, 128, 128, 3, "the same, in whole tiles", _BF16),
        empty=(70, 33, 65, 4, "no row is in any group"),
        huge=(500, 64, 128, 9, "one long group and eight of one row"),
        ragged_k=(130, 300, 257, 4, "a last block of k cut short", _BLOCKS),
        ragged_k_bf16=(130, 300, 257, 4, _BF16, _BLOCKS),
        long_k_bf16=(64, 2048, 128, 3, "16 steps of accumulation", _BF16, _BLOCKS),
        mixtral_small=(256, 256, 384, 8, "8 groups", _BF16),
        deepseek_small=(384, 128, 256, 64, "64 groups of some 6 rows", _BF16),
        wide=(63, 101, 65, 3, "magnitudes from 2⁻³⁰ to 2³⁰", {"values": "wide"}),
        cancelling=(63, 128, 65, 3, "sums that vanish", {"values": "cancelling"}),
        nonfinite=(48, 100, 65, 5, "NaN stays in its row", {"values": "nonfinite"}),
    ),
)
