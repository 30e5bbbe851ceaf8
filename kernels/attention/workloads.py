"""The problems that attention is proven on."""

import itertools
from typing import Any

import numpy as np

from kernels.attention.blocks import AttentionBlocks
from kernels.proof.workload import Workload, Workloads, cases, size, values


def _make(workload, rng):
    b, h, n, m, d = (workload.sizes[name] for name in ("b", "h", "n", "m", "d"))
    hkv = workload.sizes.get("hkv", h)
    kind, dtype = workload.values, workload.dtype
    # A NaN or an infinity in q spoils its row; in k or v it would spoil everything.
    q = values("nonfinite" if kind == "nonfinite" else "normal", (b, h, n, d), dtype, rng)
    if kind == "wide":
        q = q * q.dtype.type(32)
    k = values("normal", (b, hkv, m, d), dtype, rng)
    v = values("normal" if kind == "nonfinite" else kind, (b, hkv, m, d), dtype, rng)
    if "segment_ids" not in workload.sizes:
        return q, k, v
    several = workload.sizes["segment_ids"]

    def ids(tokens):
        cuts = rng.integers(tokens + 1, size=(b, several - 1, 1))
        row = (np.arange(tokens) >= cuts).sum(1, dtype=np.int32)
        return rng.permuted(row, axis=1) if workload.name.endswith("shuffled") else row

    if n == m and kind != "nonfinite":
        return q, k, v, ids(n)
    mine, theirs = ids(n), ids(m) + 1  # queries with the first see no key, and no query the last
    if kind == "nonfinite":
        np.copyto(k, np.nan, where=theirs[:, None, :, None] == several)
    return q, k, v, (mine, theirs)


def _draw(rng):
    n = min(size(rng), 257)
    b, h, m = rng.integers(1, 3), rng.integers(1, 4), min(size(rng), 257) if rng.integers(2) else n
    d = rng.choice([1, 3, 16, 31, 32, 64, 65, 80, 128, 129, 256])
    dtype, causal = str(rng.choice(["float32", "bfloat16"])), bool(rng.integers(2))
    tuning, options = _BLOCKS if rng.integers(2) else {}, {"causal": causal}
    sizes = {"b": int(b), "h": int(h), "n": n, "m": m, "d": int(d)}
    if not rng.integers(3):
        options["window"] = tuple(rng.choice([0, 1, 5, 64, 127, 128, 200], 2).tolist())
    if not rng.integers(3):
        options["soft_cap"] = float(rng.choice([0.5, 5.0, 50.0]))
    if not rng.integers(3):
        sizes |= {"h": int(h) * 2, "hkv": int(h)}
    if not rng.integers(3):
        sizes["segment_ids"] = int(rng.integers(1, 5))
    return Workload("random", sizes, dtype, options=options, **tuning)


def _candidates(workload, vmem_bytes):
    """Tiles of 128 to 1024 queries by 128 to 512 keys."""
    n, m = workload.sizes["n"], workload.sizes["m"]
    heads = workload.sizes["b"] * workload.sizes["h"]
    # Tiles matter more than heads of a program, so all of them come first.
    order = itertools.product((2, 1, 4, 8), (256, 1024, 512, 128), (128, 256, 512))
    blocks = (AttentionBlocks(1024, tq, tk, h).fitted(n, m, heads) for h, tq, tk in order)
    return [{"block": block} for block in dict.fromkeys(blocks)]


def _work(workload, gradient):
    """Two products forward, four more backward; q, k, v and the result, and the same again."""
    sizes = workload.sizes
    heads, n, d = sizes["b"] * sizes["h"], sizes["n"], sizes["d"]
    m = sizes.get("m", n)
    before, after = workload.options.get("window") or (n, m)
    if workload.options.get("causal"):
        after, m = 0, min(n, m)  # the keys that any query sees
    query = np.arange(n)
    last, first = np.minimum(query + after, m - 1), np.maximum(query - before, 0)
    pairs = int(np.maximum(last - first + 1, 0).sum()) // sizes.get("segment_ids", 1)
    products, arrays = (6, 2) if gradient else (2, 1)
    tokens = heads * n + sizes["b"] * sizes.get("hkv", sizes["h"]) * m
    return 2 * products * heads * pairs * d, arrays * 2 * tokens * d * workload.itemsize


_BF16, _WIDE = {"dtype": "bfloat16"}, {"values": "wide"}
_CANCELLING, _NONFINITE = {"values": "cancelling"}, {"values": "nonfinite"}
_CAUSAL = {"options": {"causal": True}}
_BLOCKS = {"tuning": {"block": AttentionBlocks(tokens=128, tq=128, tk=128, heads=1)}}

_OVERFLOWS = "logits of hundreds, whose exp overflows; v from 2⁻³⁰ to 2³⁰"
_LENGTHS = {64: (128, 256, 512, 1024, 2048, 4096), 128: (512, 1024, 4096)}  # by head_dim
_WINS = "where flash begins to win, and by how much"
_CURVE: dict[str, Any] = {
    f"n{n}_d{d}" + "_causal" * bool(more): (4, 8, n, n, d, _WINS, more)
    for d, lengths in _LENGTHS.items()
    for n in lengths
    for more in ({}, _CAUSAL)[: 2 if n == 1024 else 1]
}


def _gemma(**more):
    return {"options": {"causal": True, "soft_cap": 50.0} | more}


def _window(left, right, **more):
    return {"options": {"window": (left, right)} | more}


attention = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    work=_work,
    figures=cases(
        "b h n m d",
        dtype="bfloat16",
        vit_b16_224px_full=(64, 12, 197, 197, 64, "XLA would lay a batch of 128 in the lanes"),
        vit_b16_256px_full=(128, 12, 256, 256, 64, "a whole ViT layer"),
        vit_b16_224px_one=(1, 12, 197, 197, 64, "one image"),
        **_CURVE,
    )
    + cases(
        "b h hkv n m d",
        dtype="bfloat16",
        llama=(1, 32, 8, 4096, 4096, 128, "a layer of Llama 3 8B", _CAUSAL),
        gemma_global=(1, 8, 4, 8192, 8192, 256, "of Gemma 2 2B", _gemma()),
        gemma_local=(1, 8, 4, 8192, 8192, 256, "its sliding window", _gemma(window=(4095, 0))),
        gemma_1024=(1, 8, 4, 8192, 8192, 256, "a shorter one", _gemma(window=(1023, 0))),
    )
    + cases(
        "b h n m d segment_ids",
        dtype="bfloat16",
        packed=(4, 8, 4096, 4096, 128, 8, "eight sequences in a row of the batch", _CAUSAL),
    ),
    named=cases(
        "b h n m d",
        one=(1, 1, 1, 1, 1, "one token attends to itself"),
        one_bf16=(1, 1, 1, 1, 1, "no matrix at all", _BF16),
        tiny=(1, 2, 8, 8, 16, "less than a tile"),
        vit_b16_256px=(1, 2, 256, 256, 64, "two of its 128 × 12 heads; others repeat them", _BF16),
        vit_b16_224px=(1, 2, 197, 197, 64, "14² patches and a class", _BF16),
        ragged=(1, 3, 197, 197, 64, "no block divides it", _CAUSAL),
        ragged_blocks=(1, 2, 300, 300, 64, "a last block cut short, of queries and keys", _BLOCKS),
        ragged_blocks_causal=(1, 3, 300, 300, 64, _CAUSAL, _BLOCKS),
        ragged_blocks_bf16=(1, 2, 389, 389, 128, _BF16, _CAUSAL, _BLOCKS),
        causal=(1, 2, 256, 256, 128, "half the scores", _CAUSAL),
        causal_bf16=(1, 2, 512, 512, 64, _BF16, _CAUSAL),
        cross=(2, 2, 65, 257, 32, "other keys than queries", _BF16),
        cross_causal=(1, 2, 257, 129, 31, "late queries", _CAUSAL, _BLOCKS),
        late_keys=(1, 2, 129, 300, 32, "that no query sees", _CAUSAL, _BLOCKS),
        primes=(1, 3, 101, 101, 31, _BF16, _CAUSAL),
        narrow=(1, 2, 127, 127, 1, "a head of one number"),
        narrow_bf16=(1, 1, 129, 257, 1, _BF16, _CAUSAL, _BLOCKS),
        broad=(1, 2, 128, 128, 256, "the largest head", _BF16),
        odd_head=(1, 2, 64, 64, 129, "head_dim one above the lanes"),
        scale=(1, 2, 64, 64, 32, "any scale", {"options": {"scale": -0.5}}),
        wide=(1, 2, 129, 129, 64, _OVERFLOWS, _WIDE),
        wide_blocks=(1, 2, 257, 257, 64, _BF16, _WIDE, _CAUSAL, _BLOCKS),
        cancelling=(1, 2, 128, 128, 64, "v near ±1000", _CANCELLING),
        nonfinite=(1, 2, 300, 300, 64, _NONFINITE, _BLOCKS),
    )
    + cases(
        "b h hkv n m d",
        grouped=(2, 6, 2, 129, 129, 32, "three heads of queries on one of keys", _CAUSAL),
        grouped_bf16=(1, 8, 2, 256, 256, 128, "programs that share a head of keys", _BF16, _CAUSAL),
        one_head_of_keys=(1, 4, 1, 65, 257, 64, "multi-query attention", _BLOCKS),
        window=(1, 2, 1, 389, 389, 64, "as wide as a block", _window(127, 0, causal=True), _BLOCKS),
        window_wider=(1, 2, 2, 389, 389, 32, "by one key", _window(128, 0, causal=True), _BLOCKS),
        window_bf16=(1, 4, 2, 300, 300, 128, _BF16, _window(5, 200), _BLOCKS),
        window_of_one=(1, 1, 1, 300, 300, 32, "itself alone", _window(0, 0), _BLOCKS),
        window_behind=(1, 2, 1, 300, 129, 32, "late queries see no key", _window(50, 3), _BLOCKS),
        gemma=(1, 4, 2, 256, 256, 256, "a layer's options", _BF16, _gemma(window=(99, 0))),
        soft_cap=(1, 2, 2, 129, 129, 64, "where tanh is flat", _WIDE, _gemma(soft_cap=2.0)),
    )
    + cases(
        "b h n m d segment_ids",
        segments=(2, 2, 389, 389, 64, 3, "packed sequences of uneven lengths", _BLOCKS),
        segment=(1, 2, 257, 257, 32, 1, "the only one", _CAUSAL, _BLOCKS),
        segments_bf16=(2, 3, 256, 256, 128, 4, "two heads of three in a program", _BF16, _CAUSAL),
        segments_shuffled=(1, 2, 300, 300, 64, 4, "ids in no order", _BF16, _BLOCKS),
        segments_window=(2, 2, 389, 389, 64, 4, _window(100, 20), _BLOCKS),
        segments_apart=(1, 2, 384, 256, 32, 1, "no block of keys is met", _BLOCKS),
        segments_cross=(2, 2, 256, 384, 64, 3, "early queries see no key", _BF16, _BLOCKS),
        segments_unseen=(1, 2, 300, 300, 64, 3, "NaN in keys of no query", _NONFINITE, _BLOCKS),
    )
    + cases(
        "b h hkv n m d segment_ids",
        segments_grouped=(2, 6, 2, 129, 300, 32, 3, _gemma(soft_cap=5.0), _BLOCKS),
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
    d = int(rng.choice([1, 5, 16, 32, 48, 64, 64, 65, 80, 128, 256]))
    b, n, h = int(rng.integers(1, 4)), min(size(rng), 257), int(rng.integers(1, 5))
    sizes = {"b": b, "n": n, "h": h, "d": d}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])))


vit_attention = Workloads(
    make=_make_vit,
    draw=_draw_vit,
    work=_work,
    figures=cases(
        "b n h d",
        dtype="bfloat16",
        vit_b16_224px_full=(128, 197, 12, 64, "a whole layer"),
        vit_b16_256px_full=(128, 256, 12, 64, "the same"),
        vit_b16_512px_full=(32, 1024, 12, 64, "longer than wide"),
    ),
    named=cases(
        "b n h d",
        one=(1, 1, 1, 1, "one token attends to itself"),
        one_bf16=(2, 1, 2, 64, "no matrix at all", _BF16),
        tiny=(2, 8, 2, 16, "less than a tile"),
        vit_b16_256px=(1, 256, 12, 64, "the chapter's model; a batch of 128 repeats it", _BF16),
        vit_b16_224px=(1, 197, 12, 64, "14² patches and a class", _BF16),
        vit_384px=(1, 577, 2, 64, "queries in blocks, and a rest", _BF16),
        blocks=(1, 768, 1, 64, "queries in blocks, without a rest"),
        windows=(3, 49, 4, 32, "several images in one program", _BF16),
        odd_heads=(2, 101, 3, 64, "a pair without a partner", _BF16),
        odd_heads_f32=(2, 101, 3, 64, "the same"),
        one_head=(3, 65, 1, 64, "k starts in the middle of a tile"),
        vit_h=(1, 64, 4, 80, "a head that no tile divides", _BF16),
        narrow=(2, 31, 2, 5, "a head of a few numbers", _BF16),
        narrowest=(1, 129, 2, 1, "a head of one number", _BF16),
        quads=(1, 63, 4, 32, "four heads in a tile"),
        broad=(1, 128, 2, 128, "a head that fills a tile", _BF16),
        widest=(1, 33, 1, 256, "the largest head"),
        scale=(1, 64, 2, 64, "any scale", {"options": {"scale": -0.5}}),
        wide=(1, 129, 2, 64, _OVERFLOWS, _WIDE),
        wide_bf16=(1, 129, 2, 64, "the same", _BF16, _WIDE),
        cancelling=(1, 128, 2, 64, "v near ±1000", _CANCELLING),
        nonfinite=(2, 100, 4, 64, "NaN stays in its head", _NONFINITE),
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
    return *_make(workload, rng)[:3], mask


def _draw_sparse(rng):
    drawn = _draw(rng)
    return Workload("random", drawn.sizes, drawn.dtype, **_sparse(int(rng.choice([128, 256]))))


def _sparse(tokens):
    return {"options": {"block": AttentionBlocks(tokens=tokens, tq=128, tk=128, heads=2)}}


_OF_128 = _sparse(128)

block_sparse_attention = Workloads(
    make=_make_sparse,
    draw=_draw_sparse,
    named=cases(
        "b h n m d",
        one=(1, 1, 1, 1, 1, "one block, one token", _OF_128),
        diagonal=(1, 2, 512, 512, 64, "local blocks", _OF_128),
        all=(1, 2, 300, 300, 64, "nothing sparse", _OF_128),
        ragged=(2, 3, 300, 330, 40, "cut short", _OF_128),
        ragged_bf16=(2, 3, 300, 330, 40, _BF16, _OF_128),
        large_blocks=(1, 2, 600, 513, 128, _BF16, _sparse(256)),
        late_keys=(1, 1, 129, 389, 32, "more keys", _OF_128),
        wide=(1, 2, 257, 257, 64, _WIDE, _OF_128),
        cancelling=(1, 2, 256, 256, 64, _CANCELLING, _OF_128),
        nonfinite=(1, 2, 300, 300, 64, _NONFINITE, _OF_128),
    ),
)
