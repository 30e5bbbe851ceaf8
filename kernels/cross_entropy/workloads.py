"""The problems that linear_cross_entropy is proven on."""

import itertools

import numpy as np

from kernels.cross_entropy.blocks import LANES, CrossEntropyBlocks
from kernels.proof.workload import Workload, Workloads, cases, size, values

LARGEST = 1 << 26  # elements of w that are drawn


def _make(workload, rng):
    t, d, v = (workload.sizes[name] for name in "tdv")
    kind, dtype, name = workload.values, workload.dtype, workload.name
    x = values("nonfinite" if kind == "nonfinite" else "normal", (t, d), dtype, rng)
    # A NaN or an infinity in x spoils its token; in w it would spoil them all.
    # Of a figure's size, whose values nothing depends on, one column is drawn: gigabytes else.
    columns = v if d * v <= LARGEST else 1
    w = values("normal" if kind == "nonfinite" else kind, (d, columns), dtype, rng)
    w = w if columns == v else np.broadcast_to(w, (d, v))
    if name.startswith("equal"):
        w[:] = w[:, :1]
    if name.startswith("large"):
        x = x * x.dtype.type(32)
    if name.startswith("growing"):  # the maximum grows with every column
        x, w = abs(x), abs(w) * np.linspace(0.01, 4, v).astype(w.dtype)
    labels = rng.integers(v, size=t, dtype=np.int32)
    if name.startswith("last"):
        labels[:] = v - 1
    return x, w, labels


def _draw(rng):
    return Workload(
        "random",
        {"t": size(rng), "d": size(rng), "v": size(rng)},
        str(rng.choice(["float32", "bfloat16"])),
        **_BLOCKS if rng.integers(2) else {},
    )


def _candidates(workload, vmem_bytes):
    """Blocks of 256 to 2048 tokens by 256 to 2048 columns that leave a quarter of VMEM."""
    t, d, v = (workload.sizes[name] for name in "tdv")
    order = itertools.product((1024, 512, 2048, 256), (512, 1024, 256, 2048))
    blocks = dict.fromkeys(CrossEntropyBlocks(*sizes).fitted(t, v) for sizes in order)
    most = vmem_bytes * 3 // 4
    fit = [b for b in blocks if b.vmem_bytes(d, workload.dtype, "loss") <= most]
    return [{"block": block} for block in fit]


def _work(workload, gradient):
    """One product forward, two more backward; x, w and the loss, and the same again."""
    t, d, v = (workload.sizes[name] for name in "tdv")
    of_w = 2 if workload.options.get("w") == "bfloat16" else workload.itemsize  # as published
    moved = t * d * workload.itemsize + d * v * of_w + 8 * t
    return 2 * t * d * v * (3 if gradient else 1), moved * (1 + gradient)


_BF16 = {"dtype": "bfloat16"}
_BLOCKS = {"tuning": {"block": CrossEntropyBlocks(LANES, LANES)}}

linear_cross_entropy = Workloads(
    make=_make,
    draw=_draw,
    candidates=_candidates,
    work=_work,
    figures=cases(
        "t d v",
        dtype="bfloat16",
        llama_1k=(1024, 4096, 128256, "tokens of a decode batch: w is read once"),
        qwen_4k=(4096, 4096, 151936, "1187 blocks of 128 columns, a prime"),
        gemma_2k=(2048, 2560, 262144, "a vocabulary of 2¹⁸"),
    ),
    named=cases(
        "t d v",
        one=(1, 1, 1, "one token, one word: a loss of 0"),
        one_token=(1, 64, 509, "a row of logits"),
        one_word=(65, 16, 1, "a vocabulary of one: every loss is 0"),
        narrow=(129, 1, 200, "a feature of one number", _BF16, _BLOCKS),
        whole=(256, 128, 512, "whole blocks", _BLOCKS),
        whole_bf16=(256, 128, 512, _BF16, _BLOCKS),
        prime=(101, 31, 509, "no block divides it", _BLOCKS),
        prime_bf16=(257, 131, 1031, _BF16, _BLOCKS),
        wide_vocab=(64, 96, 5003, "several chunks, blocks by rule"),
        wide_vocab_bf16=(64, 96, 9001, _BF16),
        last=(130, 64, 300, "the label in the last, ragged block", _BLOCKS),
        equal=(128, 32, 509, "equal logits: log V", _BLOCKS),
        growing=(65, 32, 389, "the maximum grows from block to block", _BLOCKS),
        large=(129, 64, 257, "logits of hundreds, whose exp overflows", _BLOCKS),
        large_bf16=(129, 64, 384, _BF16, _BLOCKS),
        wide=(63, 65, 300, "w from 2⁻³⁰ to 2³⁰", {"values": "wide"}, _BLOCKS),
        cancelling=(64, 64, 200, "logits that cancel", {"values": "cancelling"}, _BLOCKS),
        nonfinite=(200, 64, 300, "NaN stays in its token", {"values": "nonfinite"}, _BLOCKS),
    ),
)
