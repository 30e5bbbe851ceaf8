"""Read a GPU's machine code: its instructions, its loops, and the schedule that ptxas gave it.

A GPU does not look for independent instructions while it runs. ptxas writes into each how many
cycles its warp waits before the next one, and on which of six scoreboards, which loads and other
slow operations set and clear. They are bits 105 to 125 of each instruction's 128, as Jia and others
found ("Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018); Mosaic GPU's own
dump reads them the same way.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["listing"]


@dataclass(frozen=True)
class SassInstruction:
    """One instruction of a warp."""

    address: int  # in bytes from the start of its function
    text: str  # as nvdisasm writes it, without the address
    stall: int = 0  # cycles until the warp's next instruction may be issued
    waits: tuple[int, ...] = ()  # scoreboards that it waits for, of 0 to 5
    # Scoreboards that it holds until it has written, or read, its operands.
    sets: tuple[int, ...] = ()
    label: str = ""  # of this place in the code; "" where nothing jumps to it
    function: str = field(default="", repr=False)  # that it belongs to

    @property
    def name(self) -> str:
        """The operation with what it is made of: LDG.E.128."""
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split(None, 1)[0].rstrip(";")

    @property
    def operation(self) -> str:
        """The operation alone: LDG."""
        return self.name.split(".")[0]


@dataclass(frozen=True)
class SassLoop:
    """A piece of code that ends in a jump back to its beginning."""

    instructions: tuple[SassInstruction, ...]

    @property
    def counts(self) -> Counter[str]:
        """Operation → how often it stands in the loop."""
        return counts(self.instructions)

    @property
    def issue_cycles(self) -> int:
        """Cycles that one warp needs for a round where it waits for no scoreboard."""
        return sum(max(1, instruction.stall) for instruction in self.instructions)


_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*/\* 0x([0-9a-f]{16}) \*/")
_SECOND = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")
_LABEL = re.compile(r"^(\.L_\w+):")
_FUNCTION = re.compile(r"^\.text\.(\S+):")


def read(text: str) -> tuple[SassInstruction, ...]:
    """The instructions of what `nvdisasm -c -hex` says."""
    lines = text.splitlines()
    instructions, label, function = [], "", ""
    for place, line in enumerate(lines):
        if named := _LABEL.match(line):
            label = named[1]
        elif named := _FUNCTION.match(line):
            function = named[1]
        elif (code := _LINE.match(line)) and place + 1 < len(lines):
            second = _SECOND.search(lines[place + 1])
            bits = int(second[1], 16) >> 41 if second else 0
            marks = {(bits >> 5) & 7, (bits >> 8) & 7} - {7}
            mask = (bits >> 11) & 63
            instructions.append(
                SassInstruction(
                    int(code[1], 16),
                    code[2].strip().rstrip(";").strip(),
                    stall=bits & 15,
                    waits=tuple(n for n in range(6) if mask >> n & 1),
                    sets=tuple(sorted(marks)),
                    label=label,
                    function=function,
                )
            )
            label = ""
    return tuple(instructions)


def counts(instructions: Sequence[SassInstruction]) -> Counter[str]:
    """Operation → how often it stands there."""
    return Counter(instruction.operation for instruction in instructions)


def loops(instructions: Sequence[SassInstruction]) -> tuple[SassLoop, ...]:
    """Every piece that ends in a jump back, the shortest first; a jump to itself is none."""
    at = {instruction.label: place for place, instruction in enumerate(instructions)}
    pieces = []
    for place, instruction in enumerate(instructions):
        target = re.search(r"(\.L_\w+)", instruction.text)
        start = at.get(target[1], place) if target and instruction.operation == "BRA" else place
        if start < place:
            pieces.append(SassLoop(tuple(instructions[start : place + 1])))
    return tuple(sorted(pieces, key=lambda loop: len(loop.instructions)))


def listing(instructions: Sequence[SassInstruction]) -> str:
    """The instructions as a table: address, stall, scoreboards waited for and set, text."""
    lines = []
    for i in instructions:
        waits = "".join(map(str, i.waits)) or "·"
        sets = "".join(map(str, i.sets)) or "·"
        lines.append(f"{i.address:5x}  {i.stall:2}  {waits:>3}  {sets:>2}  {i.text}")
    return "\n".join(lines)


# Operations of one multiplication, by the shape in its name: of a warp (HMMA), or of a warpgroup of
# four warps (HGMMA).
_TENSOR = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "16832": 16 * 8 * 32, "16864": 16 * 8 * 64}


def flops(loop: SassLoop) -> float:
    """Operations of a warp's products in one round of a loop, a multiply-add counting two.

    The tensor cores' where there are any, else those of FFMA. Four warps share an HGMMA.
    """
    total = 0.0
    for instruction in loop.instructions:
        if shape := re.match(r"(?:H|Q|I)GMMA\.(\d+)x(\d+)x(\d+)", instruction.name):
            total += 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) / 4
        elif shape := re.match(r"(?:H|I|Q|O)MMA\.(\d+)", instruction.name):
            total += 2 * _TENSOR.get(shape[1], 0)
    return total or 2 * 32 * loop.counts["FFMA"]
