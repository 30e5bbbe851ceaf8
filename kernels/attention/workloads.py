"""The problems that attention is proven on."""

import itertools
from typing import Any

import numpy as np

from kernels.attention.blocks import AttentionBlocks
from kernels.proof.workload import Workload, Workloads, size, values


def _make(workload, rng):
    b, h, n, m, d = (workload.sizes[name] for name in ("b", "h", "n", "m", "d"))
    kind, dtype = workload.values, workload.dtype
    # A NaN or an infinity in q spoils its row; in k or v it would spoil everything.
    q = values("nonfinite" if kind == "nonfinite" else "normal", (b, h, n, d), dtype, rng)
    if kind == "wide":
        q = q * q.dtype.type(32)
    k = values("normal", (b, h, m, d), dtype, rng)
    return q, k, values("normal" if kind == "nonfinite" else kind, (b, h, m, d), dtype, rng)


def _draw(rng):
    n = min(size(rng), 257)
    b, h, m = rng.integers(1, 3), rng.integers(1, 4), min(size(rng), 257) if rng.integers(2) else n
    head_dim = int(rng.choice([1, 3, 16, 31, 32, 64, 65, 80, 128, 129, 256]))
    return Workload(
        "random",
        _sizes(int(b), int(h), n, m, head_dim),
        str(rng.choice(["float32", "bfloat16"])),
        "normal",
        {"causal": bool(rng.integers(2))},
        _BLOCKS if rng.integers(2) else {},
    )


def _candidates(workload, vmem_bytes):
    """Tiles of 128 to 1024 queries by 128 to 512 keys."""
    n, m = workload.sizes["n"], workload.sizes["m"]
    heads = workload.sizes["b"] * workload.sizes["h"]
    # Tiles matter more than heads of a program, so all of them come first.
    order = itertools.product((2, 1, 4, 8), (256, 1024, 512, 128), (128, 256, 512))
    blocks = (AttentionBlocks(1024, tq, tk, h).fitted(n, m, heads) for h, tq, tk in order)
    return [{"block": block} for block in dict.fromkeys(blocks)]


def _least(workload, heads, n, m, gradient):
    """Two products forward, four more backward; q, k, v and the result, and the same again."""
    pairs = n * m
    if workload.options.get("causal"):
        m = min(n, m)  # the keys that any query sees
        pairs = m * (m + 1) // 2 + (n - m) * m
    d = workload.sizes["d"]
    products, arrays = (6, 2) if gradient else (2, 1)
    return 2 * products * heads * pairs * d, arrays * heads * 2 * (n + m) * d * workload.itemsize


def _work(workload, gradient):
    sizes = workload.sizes
    heads, n = sizes["b"] * sizes["h"], sizes["n"]
    return _least(workload, heads, n, sizes.get("m", n), gradient)


def _sizes(b, h, n, m, d):
    return {"b": b, "h": h, "n": n, "m": m, "d": d}


_CAUSAL = {"causal": True}
_BLOCKS = {"block": AttentionBlocks(tokens=128, tq=128, tk=128, heads=1)}
_CAUSAL_BLOCKS: dict[str, Any] = {"options": _CAUSAL, "tuning": _BLOCKS}

_FIGURES = (
    Workload(
        "vit_b16_224px_full",
        _sizes(64, 12, 197, 197, 64),
        "bfloat16",
        why="XLA would lay a batch of 128 in the lanes",
    ),
    Workload(
        "vit_b16_256px_full", _sizes(128, 12, 256, 256, 64), "bfloat16", why="a whole ViT layer"
    ),
    Workload("vit_b16_224px_one", _sizes(1, 12, 197, 197, 64), "bfloat16", why="one image"),
    *(
        Workload(
            f"n{n}_d{d}" + "_causal" * bool(options),
            _sizes(4, 8, n, n, d),
            "bfloat16",
            options=options,
            why="where flash begins to win, and by how much",
        )
        for d, lengths in ((64, (128, 256, 512, 1024, 2048, 4096)), (128, (512, 1024, 4096)))
        for n in lengths
        for options in ({}, _CAUSAL)[: 2 if n == 1024 else 1]
    ),
)

attention = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    work=_work,
    figures=_FIGURES,
    named=(
        Workload("one", _sizes(1, 1, 1, 1, 1), why="one token attends to itself"),
        Workload("one_bf16", _sizes(1, 1, 1, 1, 1), "bfloat16", why="no matrix at all"),
        Workload("tiny", _sizes(1, 2, 8, 8, 16), why="less than a tile"),
        Workload(
            "vit_b16_256px",
            _sizes(1, 2, 256, 256, 64),
            "bfloat16",
            why="two of its 128 × 12 heads; the others repeat them",
        ),
        Workload(
            "vit_b16_224px", _sizes(1, 2, 197, 197, 64), "bfloat16", why="14² patches and a class"
        ),
        Workload("ragged", _sizes(1, 3, 197, 197, 64), options=_CAUSAL, why="no block divides it"),
        Workload(
            "ragged_blocks",
            _sizes(1, 2, 300, 300, 64),
            tuning=_BLOCKS,
            why="a last block cut short, of queries and of keys",
        ),
        Workload("ragged_blocks_causal", _sizes(1, 3, 300, 300, 64), **_CAUSAL_BLOCKS),
        Workload("ragged_blocks_bf16", _sizes(1, 2, 389, 389, 128), "bfloat16", **_CAUSAL_BLOCKS),
        Workload("causal", _sizes(1, 2, 256, 256, 128), options=_CAUSAL, why="half the scores"),
        Workload("causal_bf16", _sizes(1, 2, 512, 512, 64), "bfloat16", options=_CAUSAL),
        Workload("cross", _sizes(2, 2, 65, 257, 32), "bfloat16", why="other keys than queries"),
        Workload("cross_causal", _sizes(1, 2, 257, 129, 31), why="late queries", **_CAUSAL_BLOCKS),
        Workload(
            "late_keys", _sizes(1, 2, 129, 300, 32), why="that no query sees", **_CAUSAL_BLOCKS
        ),
        Workload("primes", _sizes(1, 3, 101, 101, 31), "bfloat16", options=_CAUSAL),
        Workload("narrow", _sizes(1, 2, 127, 127, 1), why="a head of one number"),
        Workload("narrow_bf16", _sizes(1, 1, 129, 257, 1), "bfloat16", **_CAUSAL_BLOCKS),
        Workload("broad", _sizes(1, 2, 128, 128, 256), "bfloat16", why="the largest head"),
        Workload("odd_head", _sizes(1, 2, 64, 64, 129), why="head_dim one above the lanes"),
        Workload("scale", _sizes(1, 2, 64, 64, 32), options={"scale": -0.5}, why="any scale"),
        Workload(
            "wide",
            _sizes(1, 2, 129, 129, 64),
            values="wide",
            why="logits of hundreds, whose exp overflows; v from 2⁻³⁰ to 2³⁰",
        ),
        Workload("wide_blocks", _sizes(1, 2, 257, 257, 64), "bfloat16", "wide", **_CAUSAL_BLOCKS),
        Workload("cancelling", _sizes(1, 2, 128, 128, 64), values="cancelling", why="v near ±1000"),
        Workload("nonfinite", _sizes(1, 2, 300, 300, 64), values="nonfinite", tuning=_BLOCKS),
    ),
)


def _make_vit(workload, rng):
    b, n, h, d = (workload.sizes[name] for name in ("b", "n", "h", "d"))
    kind, dtype = workload.values, workload.dtype
    q, k = values("normal", (2, b, n, h, d), dtype, rng)
    if kind == "wide":
        q = q * q.dtype.type(32)
    if kind == "nonfinite":
        q[0, 0, 0] = k[0, 0, -1] = np.inf  # one row of the first head, and all of the last one
    v = values("normal" if kind == "nonfinite" else kind, (b, n, h, d), dtype, rng)
    return np.stack([q, k, v], 2).reshape(b, n, 3 * h * d), h


def _draw_vit(rng):
    head_dim = int(rng.choice([1, 5, 16, 32, 48, 64, 64, 65, 80, 128, 256]))
    sizes = _vit(int(rng.integers(1, 4)), min(size(rng), 257), int(rng.integers(1, 5)), head_dim)
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])))


def _vit(b, n, h, d):
    return {"b": b, "n": n, "h": h, "d": d}


vit_attention = Workloads(
    make=_make_vit,
    draw=_draw_vit,
    work=_work,
    figures=(
        Workload("vit_b16_224px_full", _vit(128, 197, 12, 64), "bfloat16", why="a whole layer"),
        Workload("vit_b16_256px_full", _vit(128, 256, 12, 64), "bfloat16", why="the same"),
        Workload("vit_b16_512px_full", _vit(32, 1024, 12, 64), "bfloat16", why="longer than wide"),
    ),
    named=(
        Workload("one", _vit(1, 1, 1, 1), why="one token attends to itself"),
        Workload("one_bf16", _vit(2, 1, 2, 64), "bfloat16", why="no matrix at all"),
        Workload("tiny", _vit(2, 8, 2, 16), why="less than a tile"),
        Workload(
            "vit_b16_256px",
            _vit(1, 256, 12, 64),
            "bfloat16",
            why="the chapter's model; a batch of 128 only repeats it",
        ),
        Workload("vit_b16_224px", _vit(1, 197, 12, 64), "bfloat16", why="14² patches and a class"),
        Workload("vit_384px", _vit(1, 577, 2, 64), "bfloat16", why="queries in blocks, and a rest"),
        Workload("blocks", _vit(1, 768, 1, 64), why="queries in blocks, without a rest"),
        Workload("windows", _vit(3, 49, 4, 32), "bfloat16", why="several images in one program"),
        Workload("odd_heads", _vit(2, 101, 3, 64), "bfloat16", why="a pair without a partner"),
        Workload("odd_heads_f32", _vit(2, 101, 3, 64), why="the same"),
        Workload("one_head", _vit(3, 65, 1, 64), why="k starts in the middle of a tile"),
        Workload("vit_h", _vit(1, 64, 4, 80), "bfloat16", why="a head that no tile divides"),
        Workload("narrow", _vit(2, 31, 2, 5), "bfloat16", why="a head of a few numbers"),
        Workload("narrowest", _vit(1, 129, 2, 1), "bfloat16", why="a head of one number"),
        Workload("quads", _vit(1, 63, 4, 32), why="four heads in a tile"),
        Workload("broad", _vit(1, 128, 2, 128), "bfloat16", why="a head that fills a tile"),
        Workload("widest", _vit(1, 33, 1, 256), why="the largest head"),
        Workload("scale", _vit(1, 64, 2, 64), options={"scale": -0.5}, why="any scale"),
        Workload(
            "wide",
            _vit(1, 129, 2, 64),
            values="wide",
            why="logits of hundreds, whose exp overflows; v from 2⁻³⁰ to 2³⁰",
        ),
        Workload("wide_bf16", _vit(1, 129, 2, 64), "bfloat16", "wide", why="the same"),
        Workload("cancelling", _vit(1, 128, 2, 64), values="cancelling", why="v near ±1000"),
        Workload("nonfinite", _vit(2, 100, 4, 64), values="nonfinite", why="NaN stays in its head"),
    ),
)


def _make_sparse(workload, rng):
    n, m = workload.sizes["n"], workload.sizes["m"]
    tokens = min(workload.options["block"].tokens, max(n, m))
    rows, columns = (-(-size // min(tokens, size)) for size in (n, m))
    mask = rng.random((rows, columns)) < (1.0 if workload.name == "all" else 0.4)
    if workload.name == "diagonal":
        mask = np.eye(rows, columns, dtype=bool)
    mask[np.arange(rows), rng.integers(columns, size=rows)] = True  # no row of blocks is empty
    return *_make(workload, rng), mask


def _draw_sparse(rng):
    drawn = _draw(rng)
    dtype = drawn.dtype
    return Workload("random", drawn.sizes, dtype, options=_sparse(int(rng.choice([128, 256]))))


def _sparse(tokens):
    return {"block": AttentionBlocks(tokens=tokens, tq=128, tk=128, heads=2)}


block_sparse_attention = Workloads(
    make=_make_sparse,
    draw=_draw_sparse,
    named=(
        Workload("one", _sizes(1, 1, 1, 1, 1), options=_sparse(128), why="one block, one token"),
        Workload("diagonal", _sizes(1, 2, 512, 512, 64), options=_sparse(128), why="local blocks"),
        Workload("all", _sizes(1, 2, 300, 300, 64), options=_sparse(128), why="nothing sparse"),
        Workload("ragged", _sizes(2, 3, 300, 330, 40), options=_sparse(128), why="cut short"),
        Workload("ragged_bf16", _sizes(2, 3, 300, 330, 40), "bfloat16", options=_sparse(128)),
        Workload("large_blocks", _sizes(1, 2, 600, 513, 128), "bfloat16", options=_sparse(256)),
        Workload("late_keys", _sizes(1, 1, 129, 389, 32), options=_sparse(128), why="more keys"),
        Workload("wide", _sizes(1, 2, 257, 257, 64), values="wide", options=_sparse(128)),
        Workload(
            "cancelling", _sizes(1, 2, 256, 256, 64), values="cancelling", options=_sparse(128)
        ),
        Workload("nonfinite", _sizes(1, 2, 300, 300, 64), values="nonfinite", options=_sparse(128)),
    ),
)
