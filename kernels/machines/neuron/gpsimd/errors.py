"""What can be wrong with a custom operator, in plain words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpSimdFault:
    """One fault that a run found.

    Args:
        kind: "bounds" (an index beyond a buffer or a tensor), "null" (a pointer that is
            null), "unset" (a read of what nobody has written), "freed" (TCM used or freed
            after tcm_free), "leak" (TCM never freed), "twice" and "race" (two cores, or one
            twice, at the same element of the result), "unwritten" (elements of the result),
            "input" (a write to one), "dtype", "accessor" and "result" (calls that the
            documents forbid), "library" (no such kernel), "crash" or "time".
        core: which; None where it is not a matter of one core.
        words: what it is.
        source: "file.cpp:line" where known.
    """

    kind: str
    core: int | None
    words: str
    source: str | None = None

    def __str__(self) -> str:
        who = f"core {self.core}: " if self.core is not None else ""
        return f"{who}{self.words}" + (f" ({self.source})" if self.source else "")


class GpSimdError(RuntimeError):
    """A run of a custom operator that a machine would not have survived, or not got right.

    finding: what was found first.
    """

    def __init__(self, finding: GpSimdFault) -> None:
        super().__init__(finding)
        self.finding = finding


class GpSimdCompileError(RuntimeError):
    """C++ that does not compile; the message holds its first errors, and `original` all."""

    def __init__(self, message: str, original: str = "") -> None:
        super().__init__(message)
        self.original = original

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (self.args[0], self.original)
