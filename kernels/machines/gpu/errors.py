"""What the compilers for GPUs refuse, in plain words."""

import re
from dataclasses import dataclass

from kernels.machines.base import CompileError, plain_words


@dataclass(eq=False)
class GpuCompileError(CompileError):
    """A program that could not be compiled for a GPU.

    Args:
        kind: "shared memory", "registers", "block", "unsupported", "timeout", "crashed" or "other".
    """


def translate(text: str, printed: str = "") -> GpuCompileError:
    """Turn the text of an error of JAX, Triton, Mosaic, XLA or ptxas into a GpuCompileError;
    `printed` is what the compiler said besides, of which Mosaic GPU's error says nothing."""
    whole = f"{text}\n{printed}" if printed.strip() else text
    plain = plain_words(__file__, whole, "unknown")
    if error := _shared(whole) or (GpuCompileError(*plain) if plain else None):
        error.original = whole
        return error
    said = re.search(r"error: ([^\n]*)", printed) if "Pass pipeline failed" in text else None
    return GpuCompileError("other", said[1] if said else first_line(text), whole)


def overflow(asked: int, limit: int) -> GpuCompileError:
    """The error of a block that asks for more bytes of shared memory than it may have."""
    return GpuCompileError(
        "shared memory",
        f"a block asks for {asked:,} bytes of shared memory and may have {limit:,}: use smaller "
        "tiles or fewer stages",
        asked_bytes=asked,
        limit_bytes=limit,
    )


def first_line(text: str) -> str:
    """The first line that says anything."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:400]


def _shared(text: str) -> GpuCompileError | None:
    for known, base in (
        (r"Shared memory size limit exceeded: requested (\d+), available: (\d+)", 10),
        (r"smem_bytes=(\d+) > max_smem_bytes=(\d+)", 10),
        (r"uses too much shared data \(0x(\w+) bytes, 0x(\w+) max\)", 16),
    ):
        if said := re.search(known, text):
            return overflow(int(said[1], base), int(said[2], base))
    return None
