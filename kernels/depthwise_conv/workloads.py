"""The problems that depthwise convolution is proven on."""

from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.machines.optional import require
from kernels.proof.workload import Workload, Workloads, cases, size, values

LENGTHS = (96, 192, 384, 768, 1536, 3072)  # of the curve on which the FFT overtakes


def _make(workload, rng):
    b, c, t = (workload.sizes[name] for name in "bct")
    wide = workload.values == "wide"
    w = values("wide" if wide else "normal", (c, t), workload.dtype, rng)
    k = values(workload.values, (b, c, t), workload.dtype, rng)
    if workload.values == "cancelling":
        w += np.float32(1000)  # k's signs alternate, and so do those of the products
    return w, k, float(np.float32(rng.standard_normal()))


def _draw(rng):
    kind = str(rng.choice(["normal", "normal", "wide", "cancelling"]))
    b, c, t = (min(size(rng), most) for most in (9, 16, 257))
    return Workload("random", {"b": b, "c": c, "t": t}, values=kind)


def flops(b: int, c: int, t: int) -> int:
    """Operations of the sums as they are written, a product and an addition each: B·C·T·(T+1).

    Args:
        b: rows.
        c: channels.
        t: steps.

    Raises:
        ValueError: for what is no whole number of at least 1.
    """
    for name, value in (("b", b), ("c", c), ("t", t)):
        checks.positive_int(name, value)
    return b * c * t * (t + 1)


def limit(workload, device="cpu"):
    """What the sums, multiplied out as they are written, cannot beat: the rate of a matmul.

    It is that of PyTorch's product of two float32 matrices, a little below the hardware's.
    """
    torch = require("torch", "the limit of depthwise convolution")
    size = 1024 if device == "cpu" else 8192
    x, y = torch.ones(2, size, size, device=device)
    scale = flops(**workload.sizes) / (2 * size**3)
    return f"matmul {size}", lambda: x @ y, scale


_CURVE: Any = {f"crossover_t{t}": (8, 192, t, "where the FFT overtakes") for t in LENGTHS}

depthwise_conv = Workloads(
    make=_make,
    draw=_draw,
    limit=limit,
    figures=cases(
        "b c t", rwkv_b32_c768_t768=(32, 768, 768, "the size of the published benchmark"), **_CURVE
    ),
    named=cases(
        "b c t",
        tiny=(2, 3, 8, "the chapter's first call"),
        one=(1, 1, 1, "one product"),
        one_step=(5, 3, 1, "no past at all"),
        two_steps=(3, 2, 2, "shorter than any tile"),
        one_row=(1, 1, 127, "nothing to share the weights with"),
        rwkv_small=(4, 8, 192, "RWKV's layer, in miniature"),
        primes=(7, 5, 131, "no tile divides them"),
        tail=(9, 3, 65, "one row and one step beyond the tiles"),
        below=(3, 3, 63, "one row and one step short of the tiles"),
        wide=(5, 4, 96, "factors of 2⁻³⁰ to 2³⁰", {"values": "wide"}),
        cancelling=(4, 4, 101, "sums that nearly vanish", {"values": "cancelling"}),
        nonfinite=(5, 4, 66, "NaN reaches what uses it, and no more", {"values": "nonfinite"}),
    ),
)
