"""What no version of the convolution that multiplies as it is written can be faster than."""

import time

from kernels.checks import positive_int
from kernels.depthwise_conv import flops
from kernels.optional import require


def peak(size: int = 1024, repeats: int = 8) -> float:
    """FLOP/s that this machine's units for products give: the best of `repeats` float32 matmuls.

    size: of the square operands. It is measured with torch.mm, on as many threads as torch uses: a
    library's rate, and so a little below what the units could do.
    """
    positive_int("size", size)
    positive_int("repeats", repeats)
    torch = require("torch", "measuring the peak")
    x, y = torch.randn(2, size, size)
    out = x @ y
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(x, y, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def floor(b: int, c: int, t: int, rate: float) -> float:
    """Seconds that the products and additions of the sums take at `rate` FLOP/s."""
    return flops(b, c, t) / rate
