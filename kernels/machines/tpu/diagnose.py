"""What the TPU compiler and its front end refuse, in plain words."""

from __future__ import annotations

import errno
import re
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.machines.base import CompileError, plain_words
from kernels.machines.compat import jaxprs
from kernels.machines.tpu.plan import vmem_limit

if TYPE_CHECKING:
    from kernels.machines.exporting import ExportedProgram


@dataclass(eq=False)
class TpuCompileError(CompileError):
    """A program that could not be compiled for a TPU.

    Args:
        kind: "vmem", "hbm", "block", "unsupported", "alignment", "memory space", "constants",
            "timeout", "crashed", "disk" or "other".
        buffers: the name and bytes of each that lies in a VMEM that overflows.
        operand, accepted: of an illegal block.
        source: "file.py:line" in the kernel, where it is known.
    """

    buffers: tuple[tuple[str, int], ...] = ()
    operand: str | None = None
    accepted: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        if not self.source:
            return self.message
        # A notebook gives each cell a file of its own, named by a number.
        return f"{self.message} ({re.sub(r'^[0-9]+[.]py:', 'the cell, line ', self.source)})"


def mib(size: float) -> str:
    """Bytes as MiB, or in a smaller unit where that is too coarse."""
    if size >= 2**20:
        return f"{size / 2**20:.2f} MiB"
    return f"{size / 1024:.1f} KiB" if size >= 1024 else f"{size:.0f} B"


def translate(
    text: str, *, source: str | None = None, buffers: Iterable[tuple[str, int]] = ()
) -> TpuCompileError:
    """Turn the text of an error of JAX, Mosaic or libtpu into a TpuCompileError; `source` is the
    kernel's line where the traceback tells it, `buffers` name and bytes of what the kernel keeps in
    VMEM, for a text that does not list it."""
    source = source or _source(text)
    for rule in (_vmem, _block, _rank, _plain):
        if error := rule(text):
            error.original = text
            error.source = error.source or source
            if error.kind == "vmem" and not error.buffers:
                error.buffers = tuple(buffers)
                if error.buffers:
                    error.message += _held(error.buffers)
            return error
    return TpuCompileError("other", _first_line(text), text, source=source)


def overflow(
    asked: int, limit: int, buffers: Iterable[tuple[str, int]] = (), *, least: bool = False
) -> TpuCompileError:
    """The error of a kernel that asks for more VMEM, in bytes, than it may have."""
    buffers = tuple(buffers)
    return TpuCompileError(
        "vmem",
        f"the kernel asks for {'at least ' if least else ''}{mib(asked)} of VMEM and may have "
        f"{mib(limit)}: use smaller blocks, fewer buffers, or a larger vmem_limit_bytes in "
        "CompilerParams" + _held(buffers),
        asked_bytes=asked,
        limit_bytes=limit,
        buffers=buffers,
    )


def _held(buffers: tuple[tuple[str, int], ...]) -> str:
    if not buffers:
        return ""
    ranked = sorted(buffers, key=lambda b: -b[1])
    shown = ", ".join(f"{name} {mib(size)}" for name, size in ranked[:5])
    return f"; it holds {shown}" + (f" and {len(ranked) - 5} more" if len(ranked) > 5 else "")


_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = r"([\d.]+)([KMGB]?)"


def _bytes(number: str, unit: str) -> int:
    return round(float(number.rstrip(".")) * _UNITS[unit])


def _vmem(text: str) -> TpuCompileError | None:
    alone, said = None, re.search(rf"Scoped allocation with size {_SIZE} and limit {_SIZE}", text)
    said = said or re.search(rf"memory space vmem\. Used {_SIZE} of {_SIZE} vmem", text)
    one_buffer = r"Allocation \(size=(\d+)()\) would exceed memory \(size=(\d+)()\).*space=vmem"
    said = said or (alone := re.search(one_buffer, text))
    if not said:
        return None
    asked, limit = _bytes(said[1], said[2]), _bytes(said[3], said[4])
    blocks = re.findall(
        rf"Size: {_SIZE}\s+(?:Operator:[^\n]*\n\s*)?Shape: ([^\n]*)\n(?:(?!={{5}})[\s\S])*?"
        r"Tag: ([^\n]*)",
        text,
    )
    buffers = []
    for number, unit, shape, tag in blocks:
        window = re.match(r"(\w+) window allocation for operator (\w+ \d+)", tag)
        buffers.append((window[2] if window else shape, _bytes(number, unit)))
    return overflow(asked, limit, buffers, least=alone is not None)


_SHAPE = r"\(((?:[^()]|\([^()]*\))*)\)"


def _sizes(text: str) -> tuple[str, ...]:
    """The dimensions in JAX's text of a block shape: Blocked(block_size=8), Squeezed(), 128."""
    parts = [p.strip() for p in re.split(r",(?![^()]*\))", text) if p.strip()]
    return tuple(
        "squeezed" if "quee" in p or p == "None" else (re.findall(r"\d+", p) or [p])[-1]
        for p in parts
    )


def _block(text: str) -> TpuCompileError | None:
    said = re.search(
        r"last two dimensions of your block shape are divisible by (\d+) and (\d+)", text
    ) or re.search(r"block shape.*?(?:divisible|multiple) (?:by|of) (\d+)()", text)
    if not said:
        return None
    place = re.search(
        rf"Block spec for (\S+) in pallas_call (.+?) at (\S+?:\d+) has block shape {_SHAPE}, "
        rf"array shape {_SHAPE}",
        text,
    )
    if not place:
        return TpuCompileError("block", _first_line(text))
    operand, kernel, where, block, array = place.groups()
    sizes, whole = _sizes(block), _sizes(array)
    rows, lanes = said[1], said[2] or said[1]
    wanted = []
    for name, at, step in (("second-to-last", -2, rows), ("last", -1, lanes)):
        known = len(sizes) >= -at and sizes[at].isdigit() and int(step)
        if known and sizes[at] != whole[at] and int(sizes[at]) % int(step):
            right = f"must be a multiple of {step} or all {whole[at]}"
            wanted.append(f"its {name} dimension, {sizes[at]}, {right}")
    accepted = " and ".join(wanted) or f"multiples of {rows} and {lanes}, or the whole"
    return TpuCompileError(
        "block",
        f"the block ({', '.join(sizes)}) of {operand}, an array ({', '.join(whole)}), in "
        f"{kernel} is no whole number of tiles: {accepted} "
        f"(the last two dimensions must be divisible by {rows} and {lanes}, or be the array's)",
        operand=operand,
        accepted=accepted,
        source=_basename(where),
    )


def _rank(text: str) -> TpuCompileError | None:
    said = re.search(
        rf"Block shape for (\S+) \(= {_SHAPE}\) must have the same number of dimensions as the "
        rf"array shape {_SHAPE}",
        text,
    )
    if not said:
        return None
    sizes, whole = _sizes(said[2]), _sizes(said[3])
    return TpuCompileError(
        "block",
        f"the block ({', '.join(sizes)}) of {said[1]} has {len(sizes)} dimensions, and its array "
        f"({', '.join(whole)}) has {len(whole)}: give one size, or None, for each",
        operand=said[1],
        accepted=f"{len(whole)} dimensions",
    )


def _plain(text: str) -> TpuCompileError | None:
    said = plain_words(__file__, text, "this dtype")
    return TpuCompileError(*said) if said else None


def _source(text: str) -> str | None:
    """The kernel's line in an MLIR location or in JAX's words: "file.py":42, at file.py:42."""
    place = re.search(r'"([^"\s]*\.py)":(\d+)', text) or re.search(r"at (\S*\.py):(\d+)", text)
    return _basename(f"{place[1]}:{place[2]}") if place else None


def _basename(place: str) -> str:
    return place.rpartition("/")[2].strip("\"'")


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    return re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", line)[:400]


def disk(error: OSError, text: str = "") -> TpuCompileError:
    """The error of a folder that cannot be written, most often for want of space."""
    folder = tempfile.gettempdir()
    if error.errno == errno.ENOSPC:
        message = f"no space left in {folder} for the compiler's files: free some, or set TMPDIR"
    else:
        message = f"the compiler's files in {folder} cannot be written: {error.strerror or error}"
    return TpuCompileError("disk", message, text or str(error))


def _calls(program: ExportedProgram) -> tuple[Any, ...]:
    """Its kernels; () where a grid is too long to look at."""
    try:
        return program.calls
    except ValueError:
        return ()


def buffers_of(program: ExportedProgram, text: str) -> tuple[tuple[str, int], ...]:
    """What the failing kernel keeps in VMEM; () where it is not clear which kernel fails."""
    calls = _calls(program)
    named = [c for c in calls if f"%{c.name}" in text]
    failing = named or (calls if len(calls) == 1 else ())
    return failing[0].buffers() if failing else ()


def overflowing(program: ExportedProgram) -> TpuCompileError | None:
    """The error of a program with a kernel whose blocks alone exceed its VMEM; None without one."""
    for call in _calls(program):
        limit = vmem_limit(call, program.chip)
        buffers = call.buffers()
        asked = sum(size for _, size in buffers)
        if asked > limit:
            return overflow(asked, limit, buffers, least=True)
    return None


def flat_text(error: BaseException) -> str:
    """An exception's words, with those of the exceptions it came from."""
    words, seen = [], set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        words.append(f"{cause}")
        cause = cause.__cause__
    return "\n".join(words)


def _outside(file: str) -> bool:
    """Whether a line of code is the caller's, and neither a library's nor this package's own."""
    own = Path(__file__).parents[1] in Path(file).parents
    return "site-packages" not in file and not file.startswith("<") and not own


def user_line(error: BaseException) -> str | None:
    """The innermost line of a traceback that is not a library's, as file.py:line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _outside(f.filename)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def primitive_line(jaxpr: Any, text: str) -> str | None:
    """Where the kernel uses what the text complains of; None where that is not one place."""
    said = re.search(r"Unimplemented primitive in Pallas TPU lowering(?: for \w+)?: (\w+)", text)
    name = said[1] if said else ""
    if not said and re.search("scalars to VMEM|Stores are only", text):
        name = "swap"
    elif not said and re.search("scalars from SMEM|Loads are only", text):
        name = "get"
    places = [line for primitive, line in _lines(jaxpr) if primitive == name and line]
    return places[0] if places and (said or len(set(places)) == 1) else None


def _lines(jaxpr: Any, outer: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Each primitive of a jaxpr with the line of the caller's code that asked for it."""
    for equation in jaxprs.own_equations(jaxpr):
        own = [f"{Path(f).name}:{line}" for f, line in jaxprs.frames(equation) if _outside(f)]
        line = own[0] if own else outer
        yield jaxprs.operation(equation), line
        for inner in jaxprs.inner_jaxprs(equation):
            yield from _lines(inner, line)
