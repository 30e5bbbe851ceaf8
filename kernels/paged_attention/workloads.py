"""The problems that attention over pages is proven on."""

from dataclasses import replace

import numpy as np

from kernels.proof.workload import Workload, Workloads, cases, values


def _lengths(sizes, rng):
    """int32 [S]: the hostile ones first (full, 0, 1, a page, one more), then any; at least
    `least`."""
    longest, page = sizes["pages"] * sizes["page"], sizes["page"]
    hostile = [longest, 0, 1, page, page + 1, longest - 1]
    lengths = rng.integers(0, longest + 1, sizes["s"])
    lengths[: len(hostile)] = hostile[: len(lengths)]
    return np.clip(lengths, sizes["least"], longest).astype(np.int32)


def _starts(sizes, lengths, rng):
    """int32 [S + 1]: of new tokens the first `prompts` sequences have `chunk`, or first hostile
    numbers and then any; the others one; nobody more than he has tokens."""
    new, chunk = np.ones(len(lengths), int), sizes["chunk"]
    if sizes["least"]:
        new[: sizes["prompts"]] = chunk
    else:
        hostile = [chunk, chunk, 1, chunk, 2, 0]
        drawn = np.append(hostile, rng.integers(0, chunk + 1, len(lengths)))
        new[: sizes["prompts"]] = drawn[: sizes["prompts"]]
    return np.append(0, np.cumsum(np.minimum(new, lengths))).astype(np.int32)


def _make(workload, rng):
    sizes, kind, dtype = workload.sizes, workload.values, workload.dtype
    s, h, hkv, d, page, width = (sizes[n] for n in ("s", "h", "hkv", "d", "page", "pages"))
    lengths = _lengths(sizes, rng)
    # Half as many pages as there are places, so that sequences share some; one more is nobody's.
    number = max(s * width // (1 if sizes["least"] else 2), 1) + 1
    if sizes["least"]:
        table = 1 + rng.permutation(s * width).reshape(s, width)
    else:
        table = rng.integers(1, number, (s, width))
    beyond = np.arange(width) * page >= lengths[:, None]
    table[beyond] = rng.choice([-1, 0, number, 2**31 - 1], beyond.sum())
    starts = (_starts(sizes, lengths, rng),) if "chunk" in sizes else ()
    q = values("normal", (_rows(sizes), h, d), dtype, rng)
    if kind == "wide":
        q = q * q.dtype.type(32)
    k = values("normal", (hkv, number, page, d), dtype, rng)
    v = values("normal" if kind == "nonfinite" else kind, k.shape, dtype, rng)
    if kind == "nonfinite":  # in what no sequence sees, and one query
        k[:, 0] = v[:, 0] = q[0] = np.nan
        unseen = np.ones((number, page), bool)
        for length, row in zip(lengths, table):
            for place, count in enumerate(range(length, 0, -page)):
                unseen[row[place], :count] = False
        k[:, unseen] = v[:, unseen] = np.nan
    return q, k, v, lengths, table.astype(np.int32), *starts


def _rows(sizes):
    """Of q, at most; a workload that is not figures' may leave some over."""
    return sizes["s"] + sizes.get("prompts", 0) * (sizes.get("chunk", 1) - 1)


def _draw(rng):
    hkv = int(rng.choice([1, 2, 3]))
    sizes = {
        "s": int(rng.integers(1, 8)),
        "h": hkv * int(rng.choice([1, 2, 5, 8, 16])),
        "hkv": hkv,
        "d": int(rng.choice([16, 64, 80, 128, 129, 256])),
        "page": int(rng.choice([1, 5, 8, 16, 16, 32])),
        "pages": int(rng.integers(1, 7)),
        "least": 0,
    }
    tuning = {"block": int(rng.integers(1, 5))} if rng.integers(2) else {}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])), tuning=tuning)


def _draw_ragged(rng):
    drawn = _draw(rng)
    longest = drawn.sizes["pages"] * drawn.sizes["page"]
    more = {
        "prompts": int(rng.integers(0, drawn.sizes["s"] + 1)),
        "chunk": int(rng.integers(1, longest + 1)),
    }
    return replace(drawn, sizes={**drawn.sizes, **more})


def _candidates(workload, vmem_bytes):
    """Blocks of 256 to 2048 tokens."""
    return [
        {"block": tokens // workload.sizes["page"]}
        for tokens in (512, 1024, 256, 2048)
        if workload.sizes["page"] <= tokens
    ]


def _work(workload, gradient):
    """Two products of each new token with those that it sees; of k and v the tokens that some new
    token sees, q and the result."""
    sizes, rng = workload.sizes, np.random.default_rng(0)
    lengths = _lengths(sizes, rng).astype(int)
    new = np.diff(_starts(sizes, lengths, rng)) if "chunk" in sizes else np.minimum(lengths, 1)
    pairs = int((new * lengths - new * (new - 1) // 2).sum())
    moved = 2 * lengths[new > 0].sum() * sizes["hkv"] + 2 * _rows(sizes) * sizes["h"]
    return 4 * pairs * sizes["h"] * sizes["d"], int(moved) * sizes["d"] * workload.itemsize


_BF16, _TWO = {"dtype": "bfloat16"}, {"tuning": {"block": 2}}
_NONFINITE = {"values": "nonfinite"}

paged_attention = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    work=_work,
    figures=cases(
        "s h hkv d page pages least",
        dtype="bfloat16",
        gqa_64x4096=(64, 64, 8, 128, 16, 256, 4096, "70B-class decode, pages of 16"),
        gqa_64x4096_page64=(64, 64, 8, 128, 64, 64, 4096, "the same, larger pages"),
        mha_64x1024=(64, 32, 32, 128, 16, 64, 1024, "a head of keys for each query"),
    ),
    named=cases(
        "s h hkv d page pages least",
        one=(1, 1, 1, 1, 1, 1, 1, "one token"),
        empty=(2, 2, 1, 64, 8, 1, 0, "a sequence of no tokens beside a full one"),
        grouped=(7, 16, 2, 128, 8, 4, 0, "lengths of 0, 1, a page, one more, and full", _TWO),
        grouped_bf16=(7, 16, 2, 128, 16, 4, 0, _BF16, _TWO),
        own_heads=(6, 3, 3, 128, 16, 3, 0, "H == Hkv", _TWO),
        odd_group=(6, 10, 2, 64, 16, 3, 0, "5 queries of a head, half of the lanes", _BF16, _TWO),
        odd_page=(6, 4, 2, 64, 5, 5, 0, "pages that no tile divides", _TWO),
        odd_page_bf16=(6, 4, 2, 64, 13, 5, 0, _BF16, _TWO),
        page_of_one=(6, 4, 2, 32, 1, 9, 0, "a page a token", {"tuning": {"block": 4}}),
        blocks=(3, 8, 1, 128, 16, 70, 0, "several blocks of the kernel's own choice", _BF16),
        odd_head=(4, 4, 2, 129, 8, 3, 0, "head_dim one above the lanes"),
        scale=(3, 8, 1, 128, 8, 2, 0, "any scale", {"options": {"scale": -0.5}}),
        wide=(6, 8, 2, 128, 8, 5, 0, "logits of hundreds", {"values": "wide"}, _TWO),
        cancelling=(6, 8, 2, 128, 8, 5, 0, "v near ±1000", {"values": "cancelling"}, _TWO),
        nonfinite=(7, 8, 1, 256, 16, 5, 0, "NaN in what nobody sees", _BF16, _NONFINITE, _TWO),
    ),
)

ragged_paged_attention = Workloads(
    make=_make,
    draw=_draw_ragged,
    candidates=_candidates,
    work=_work,
    figures=cases(
        "s h hkv d page pages least prompts chunk",
        dtype="bfloat16",
        mixed_64x4096=(64, 64, 8, 128, 16, 256, 4096, 8, 512, "8 chunks beside 56 decodes"),
        prompts_8x4096=(8, 64, 8, 128, 16, 256, 4096, 8, 512, "the chunks alone"),
        decodes_64x4096=(64, 64, 8, 128, 16, 256, 4096, 0, 1, "gqa_64x4096 of paged_attention"),
    ),
    named=cases(
        "s h hkv d page pages least prompts chunk",
        one=(1, 1, 1, 1, 1, 1, 1, 1, 1, "one token"),
        prompt=(1, 8, 1, 128, 16, 4, 64, 1, 64, "one whole prompt, all pages", _TWO),
        decodes=(7, 16, 2, 128, 8, 4, 0, 0, 1, "one row each, or no token", _TWO),
        prompts=(6, 4, 2, 64, 8, 3, 0, 6, 24, "0, 1, 2 and more new rows", _TWO),
        mixed=(9, 16, 2, 128, 16, 4, 0, 6, 33, "prompts and decodes", _BF16, _TWO),
        chunk=(3, 8, 1, 128, 16, 4, 60, 2, 21, "chunks that begin in the middle of a page", _TWO),
        own_heads=(6, 3, 3, 128, 16, 3, 0, 4, 40, "H == Hkv", _TWO),
        odd_group=(6, 10, 2, 64, 16, 3, 0, 6, 30, "5 queries of a head", _BF16, _TWO),
        odd_page=(6, 4, 2, 64, 5, 5, 0, 6, 20, "pages that no tile divides", _TWO),
        odd_page_bf16=(6, 4, 2, 64, 13, 5, 0, 6, 60, _BF16, _TWO),
        one_page=(2, 8, 1, 128, 16, 1, 16, 2, 16, "no page but one", _BF16),
        scale=(3, 8, 1, 128, 8, 2, 0, 2, 12, "any scale", {"options": {"scale": -0.5}}),
        wide=(6, 8, 2, 128, 8, 5, 0, 6, 40, "logits of hundreds", {"values": "wide"}, _TWO),
        cancelling=(6, 8, 2, 128, 8, 5, 0, 6, 40, {"values": "cancelling"}, _TWO),
        nonfinite=(9, 8, 1, 256, 16, 5, 0, 6, 40, "in what nobody sees", _BF16, _NONFINITE, _TWO),
    ),
)
