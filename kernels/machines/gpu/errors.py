"""What the compilers for GPUs refuse, in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields


@dataclass(eq=False)  # an exception equals itself only, and can be put into a set
class GpuCompileError(RuntimeError):
    """A program that could not be compiled for a GPU.

    Args:
        kind: "shared memory", "registers", "block", "unsupported", "timeout", "crashed" or "other".
        message: what is wrong, and what would be right, in a line.
        original: the compiler's or JAX's own text, whole.
        asked_bytes, limit_bytes: of shared memory, where it was exceeded.
        seconds: that the compiler ran.
    """

    kind: str
    message: str
    original: str = ""
    asked_bytes: int | None = None
    limit_bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        return self.message


def translate(text: str, printed: str = "") -> GpuCompileError:
    """Turn the text of an error of JAX, Triton, Mosaic, XLA or ptxas into a GpuCompileError.

    Args:
        text: whole.
        printed: what the compiler printed besides, of which Mosaic GPU's error says nothing.
    """
    whole = f"{text}\n{printed}" if printed.strip() else text
    for rule in (_shared, _power, _spilling, _assembler, _architecture, _unsupported):
        if error := rule(whole):
            error.original = whole
            return error
    said = re.search(r"error: ([^\n]*)", printed) if "Pass pipeline failed" in text else None
    return GpuCompileError("other", said[1] if said else first_line(text), whole)


def overflow(asked: int, limit: int) -> GpuCompileError:
    """The error of a block that asks for more shared memory than it may have.

    Args:
        asked: bytes.
        limit: bytes.
    """
    return GpuCompileError(
        "shared memory",
        f"a block asks for {asked:,} bytes of shared memory and may have {limit:,}: use smaller "
        "tiles or fewer stages",
        asked_bytes=asked,
        limit_bytes=limit,
    )


def first_line(text: str) -> str:
    """The first line that says anything.

    Args:
        text: any.
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:400]


def _shared(text: str) -> GpuCompileError | None:
    for known, base in (
        (r"Shared memory size limit exceeded: requested (\d+), available: (\d+)", 10),
        (r"smem_bytes=(\d+) > max_smem_bytes=(\d+)", 10),
        (r"uses too much shared data \(0x(\w+) bytes, 0x(\w+) max\)", 16),
    ):
        if found := re.search(known, text):
            return overflow(int(found[1], base), int(found[2], base))
    return None


def _power(text: str) -> GpuCompileError | None:
    if not re.search(r"size is a power of (?:2|two)", text):
        return None
    found = re.search(r"array of shape (\([\d, ]+\))", text)
    return GpuCompileError(
        "block",
        f"a kernel holds an array of shape {found[1] if found else 'unknown'}: in Triton the size "
        "of each has to be a power of 2",
    )


def _spilling(text: str) -> GpuCompileError | None:
    if "register spilling" not in text:
        return None
    return GpuCompileError(
        "registers",
        "the kernel spills registers to memory, and was asked not to: use smaller tiles, or more "
        "warps for the same tile",
    )


def _assembler(text: str) -> GpuCompileError | None:
    found = re.search(r"ptxas (?:fatal|error)\s*: (.*)", text)
    return GpuCompileError("other", f"ptxas refuses it: {found[1].strip()}") if found else None


def _architecture(text: str) -> GpuCompileError | None:
    for known in (
        r"'nvvm\.([a-z0-9]+)[\w.]*' op is not supported on (sm_\w+)",
        r"Cannot select: intrinsic %llvm\.nvvm\.([a-z0-9]+)[\w.]* for (sm_\w+)",
    ):
        if found := re.search(known, text):
            break
    else:
        return None
    return GpuCompileError(
        "unsupported",
        f"the kernel uses {found[1]}, which {found[2]} does not have: it is written for another "
        "generation of GPUs",
    )


def _unsupported(text: str) -> GpuCompileError | None:
    found = re.search(r"(?:Unimplemented primitive|No FFI handler registered for)[^\n]*", text)
    if not found:
        return None
    return GpuCompileError("unsupported", f"nothing here compiles it: {found[0].strip()}")
