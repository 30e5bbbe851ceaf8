"""Times of matrix products that XLA's plugin for GPUs carries inside it, as text.

Measured by XLA's authors with cuBLAS, on an H100 and a B200 (openxla/xla, service/gpu/model, under
the Apache licence). Private: that they are there, and how they are written. Seen in jax-cuda12-pjrt
0.10.2 and 0.12.0.1, which differ: the newer one has another measurement of the H100.
"""

import mmap
import re
from pathlib import Path

# XLA's names of the chips whose tables there are.
CHIPS = {"h100": "sm_90", "b200": "sm_100_B200"}


def products(plugin: Path, dtype: str = "bf16") -> dict[tuple[str, int, int, int, int], float]:
    """Seconds of each measured product of two arrays of one dtype.

    Args:
        plugin: the library.
        dtype: XLA's name, of the operands and of the result.

    Returns:
        (chip, batch, m, n, k) → seconds; empty where there is no such table.
    """
    key = f"{dtype}x{dtype}->{dtype}"
    with open(plugin, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        place = whole.find(key.encode())
        if place < 0:
            return {}
        text = whole[whole.rfind(b"\0", 0, place) + 1 : whole.find(b"\0", place)].decode()
    names = {name: chip for chip, name in CHIPS.items()}
    seconds = {}
    for part in re.split(r'(?m)^\s{2,4}key: "(?=sm_)', text)[1:]:
        if (chip := names.get(part[: part.index('"')])) is None:
            continue
        entries = r"b: (\d+)\s+m: (\d+)\s+n: (\d+)\s+k: (\d+)((?:\s+flops \{[^}]*\})+)"
        for b, m, n, k, rates in re.findall(entries, part):
            rate = re.search(rf'key: "{re.escape(key)}" value: (\d+)', rates)
            if rate:
                sizes = int(b), int(m), int(n), int(k)
                flops = 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
                seconds[(chip, *sizes)] = flops / int(rate[1])
    return seconds
