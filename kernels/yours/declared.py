"""What is to be proven of a function: declared beside it, or handed to `kernels.prove`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.machines.checks import fail, name_of, one_of, positive
from kernels.yours.spread import Devices, spread_over

if TYPE_CHECKING:
    import numpy as np

CHIPS = ("v5e", "v6e")
# How the values of a draw are changed: not at all, by a large mean, over powers of ten, into pairs.
VALUES = ("given", "mean", "wide", "ties")
ENDED = "it ended its process"  # words of a failure: by exit, or by a signal
OWN = " on the file's own values"  # after the name of a kernel that runs on them too

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Declared:
    """A function, and what it is to be held against."""

    # function, reference, arguments: as `kernels.prove` takes them.
    function: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Callable[..., Any]
    # differentiable, static, chips: the same.
    differentiable: Sequence[str] = ()
    static: Sequence[str] = ()
    chips: Sequence[str] = CHIPS
    values: Sequence[str] = VALUES  # how drawn values are changed for further problems; of VALUES
    budget: float = 1.0  # how many times the error budget a result may take
    # mesh, in_specs, out_specs: of a function that several devices run; None for one.
    mesh: Mapping[str, int] | None = None
    in_specs: Any = None
    out_specs: Any = None
    name: str = ""  # by which it is reported and found
    file: str = ""  # that marked it; empty where nobody did
    # The positional and the named arguments that `kernels.judge` compiles it for; None for those
    # that are drawn.
    full: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        for argument in ("function", "reference", "arguments"):
            value = getattr(self, argument)
            if not callable(value):
                fail(argument, repr(value), "a function")
        for argument in ("differentiable", "static", "chips", "values"):
            value = getattr(self, argument)
            if isinstance(value, str) or not all(isinstance(name, str) for name in value):
                fail(argument, repr(value), "a tuple of names")
            object.__setattr__(self, argument, tuple(value))
        if not self.chips:
            from kernels.yours.machines import chips

            fail("chips", "empty", f"one or more of {', '.join(chips())}")
        positive("budget", self.budget)
        self.spread  # noqa: B018  # checks it
        for change in self.values:
            one_of("values", change, VALUES)
        if not self.name:
            object.__setattr__(self, "name", name_of(self.function))

    @property
    def spread(self) -> Devices | None:
        """How it is spread over devices; None for one device."""
        return spread_over(self.mesh, self.in_specs, self.out_specs)

    def draw(self, rng: np.random.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One draw: the positional arguments, and the named ones; ValueError for anything else."""
        drawn = self.arguments(rng)
        if isinstance(drawn, dict):
            return (), drawn
        if not isinstance(drawn, (tuple, list)):
            wrong = f"a function that draws {type(drawn).__name__}"
            fail("arguments", wrong, "one of a tuple, or a dict")
        return tuple(drawn), {}


# In the order in which files declared them; a child loads one file, and finds its own here.
_known: list[Declared] = []


def proves(
    reference: Callable[..., Any],
    *,
    arguments: Callable[..., Any],
    differentiable: Sequence[str] = (),
    static: Sequence[str] = (),
    chips: Sequence[str] = CHIPS,
    values: Sequence[str] = VALUES,
    budget: float = 1.0,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Callable[[Function], Function]:
    """Mark a function as one to prove, for `python -m kernels prove FILE`.

    Args:
        reference, arguments, differentiable, static: as `kernels.prove` takes them.
        chips, values, budget, mesh, in_specs, out_specs: likewise.

    Returns:
        A decorator that gives the function back as it is.

    Raises:
        ValueError: for what is no function, and for other values.
    """

    def mark(function: Function) -> Function:
        file = sys._getframe(1).f_code.co_filename
        names = (differentiable, static, chips, values, budget, mesh, in_specs, out_specs)
        _known.append(Declared(function, reference, arguments, *names, file=file))
        return function

    return mark


def declared() -> tuple[Declared, ...]:
    """Everything that was marked in this process, in order."""
    return tuple(_known)
