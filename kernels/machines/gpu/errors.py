"""What the compilers for GPUs refuse, in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernels.machines.base import CompileError


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
    for rule in (_shared, _plain):
        if error := rule(whole):
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


# What a text says, its kind, and what to say instead; {} is the pattern's group. The first row that
# fits counts.
_WORDS = (
    (
        r"(?s)size is a power of (?:2|two)(?:.*?array of shape (\([\d, ]+\)))?",
        "block",
        "a kernel holds an array of shape {}: in Triton the size of each has to be a power of 2",
    ),
    (
        r"register spilling",
        "registers",
        "the kernel spills registers to memory, and was asked not to: use smaller tiles, or more "
        "warps for the same tile",
    ),
    (r"ptxas (?:fatal|error)\s*: (.*\S)", "other", "ptxas refuses it: {}"),
    *(
        (
            pattern,
            "unsupported",
            "the kernel uses {}, which {} does not have: it is written for another generation of "
            "GPUs",
        )
        for pattern in (
            r"'nvvm\.([a-z0-9]+)[\w.]*' op is not supported on (sm_\w+)",
            r"Cannot select: intrinsic %llvm\.nvvm\.([a-z0-9]+)[\w.]* for (sm_\w+)",
        )
    ),
    (
        r"((?:Unimplemented primitive|No FFI handler registered for)[^\n]*\S)",
        "unsupported",
        "nothing here compiles it: {}",
    ),
)


def _plain(text: str) -> GpuCompileError | None:
    for pattern, kind, words in _WORDS:
        if said := re.search(pattern, text):
            return GpuCompileError(kind, words.format(*said.groups("unknown")))
    return None
