"""The machine code that Taichi makes of a kernel for the CPU, and how wide its vectors are."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.machines.checks import brief
from kernels.machines.taichi import runtime
from kernels.machines.taichi.subprocess_runner import run_once

__all__ = ["BITS", "assembly", "hottest", "main", "products"]
# Where Taichi and its fork read the settings of a start; a cached kernel would not be compiled.
_SETTINGS = {
    f"{prefix}_{key}": value
    for prefix in ("TI", "QD")
    for key, value in (("PRINT_KERNEL_ASM", "1"), ("OFFLINE_CACHE", "0"))
}
_PRODUCT = re.compile(r"^\s+(?:v?mul|vf[n]?m(?:add|sub)\d*)[ps]s\s.*", re.M)
BITS = {"xmm": 128, "ymm": 256, "zmm": 512}


def assembly(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[str, ...]:
    """The assembly of each kernel that `function(*arguments, **options)` launches, in order.

    Args:
        function: of a module, since a child process imports and runs it there, on one thread of
            the CPU.
        *arguments: NumPy arrays or tensors on the CPU.
        **options: of the function.

    Raises:
        TaichiError: the child fails, or takes longer.
        MissingPackage: the package is not installed.
    """
    runtime.check()
    question = function, arguments, options
    with tempfile.TemporaryDirectory() as folder:  # the compiler writes where it runs
        run_once(__name__, question, Path(folder), _SETTINGS)
        return tuple(path.read_text() for path in sorted(Path(folder).glob("*_asm_*.s")))


def main(question: tuple) -> None:
    """In the child: run what the parent asked for."""
    try:
        function, arguments, options = question
        runtime.start("cpu", threads=1)
        function(*arguments, **options)
    except Exception as error:
        sys.exit(brief(error))


def products(text: str) -> Counter[str]:
    """How many multiplications of floats a text of x86 assembly holds, by what they work on.

    "scalar", or the vector register: "xmm" (128 bits), "ymm" (256) or "zmm" (512). A fused
    multiply-add counts as one.
    """
    counts: Counter[str] = Counter()
    for line in _PRODUCT.findall(text):
        scalar = line.split()[0].endswith("ss")
        counts["scalar" if scalar else re.findall(r"%([xyz]mm)", line)[0]] += 1
    return counts


def hottest(text: str) -> str:
    """The innermost loop with the most products on the widest registers: from label to jump."""
    blocks, label, lines = {}, None, []
    for line in text.splitlines():
        if match := re.match(r"(\.L\w+):", line):
            label, lines = match[1], [line]
        elif label:
            lines.append(line)
            if re.match(rf"\s+j\w+\s+{re.escape(label)}\b", line):
                blocks[label], label = "\n".join(lines), None

    def work(block: str) -> int:
        return sum(BITS.get(register, 32) * n for register, n in products(block).items())

    return max(blocks.values(), key=work, default="")
