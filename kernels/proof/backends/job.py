"""What a backend is asked to do, and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """A rung refuses the implementation; the message says why.

    Args:
        message: why.
        output: the name of the result that is wrong; empty where it is none of them.
        place: the index of its worst element, where it is one.
    """

    def __init__(
        self, message: str = "", output: str = "", place: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.output, self.place = output, place


class Skipped(Exception):
    """A rung cannot be climbed here; the message says what is missing."""


@dataclass(frozen=True)
class Job:
    """One call to prove, to compile or to time: `function(*arguments, **options)`."""

    function: Callable[..., Any]  # takes `interpret=` besides, where the backend's functions do
    arguments: Sequence[Any]  # NumPy arrays and numbers
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments
    # Positions of the arguments whose gradients are wanted; none for no gradients.
    wanted: tuple[int, ...] = ()
    static: tuple[int, ...] = ()  # positions of the arrays whose values decide what is compiled
    name: str = ""  # in words, for messages
    flops: float | None = None  # of its matrix products, where the operator says them

    def __call__(self, **more: Any) -> Any:
        """The call, with further keyword arguments."""
        return self.function(*self.arguments, **self.options, **more)


@dataclass(frozen=True)
class Simulated:
    """What a simulated machine made of a job; `alone` where there is no other order to try."""

    result: Any
    alone: bool = False
    note: str = ""  # what was not watched; empty where everything was


@dataclass(frozen=True)
class CompiledJob:
    """What a compiler made of a job."""

    error: Exception | None  # why it was refused or skipped, or None
    note: str  # what was not done of the way to the machine; empty where it went all the way
    seconds: float  # of wall time
