"""A program lowered for a machine that is not here."""

import re
import textwrap
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Lowered:
    """A program lowered for a machine that is not here.

    Args:
        machine: what it was lowered for ("v5e", "h100", …).
        seconds: that it took to trace and to lower it.
        kernels: each kernel in it, in the compiler's own language: Mosaic for a TPU, Triton for a
            GPU.
        text: the program, in StableHLO.
    """

    machine: str
    seconds: float
    kernels: tuple[str, ...] = field(repr=False)
    text: str = field(repr=False)

    def body(self, index: int = 0) -> str:
        """The operations of one kernel, without its attributes and its index maps."""
        signature, _, rest = self.kernels[index].partition("func")[2].partition("\n")
        name = signature.split("(")[0].split("@")[-1]
        operations = re.split(r"\n\s*(?:tt\.)?return", rest)[0].splitlines()
        operations = [line.rstrip(", ") for line in operations]
        return textwrap.dedent("\n".join([f"    {name}:", *operations]))
