"""What an operator declares, and what the rungs ask of it.

An operator is a folder with an `operator.py`, which holds the public function and, for each, one
Operator. Everything else follows from the declaration: dispatch, catalog, command line, the rungs,
the pages of the book.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernels.machines import optional
from kernels.machines.checks import fail

if TYPE_CHECKING:
    from kernels.proof.backends.base import Backend
    from kernels.proof.workload import Workload, Workloads

RUNGS = ("interpret", "simulate", "compile", "measure")
OWN_BLOCKS = {"block": "chooses its own"}  # what an implementation lacks that is not to be tuned


def load(package: str, source: str) -> Any:
    """What a source names.

    Raises:
        ValueError: where the source has another form.
        ImportError, AttributeError: where there is nothing of that name.
    """
    module, colon, name = source.partition(":")
    if not (module and colon and name):
        fail("source", repr(source), '"MODULE:NAME", of the operator\'s folder')
    return getattr(importlib.import_module(f"{package}.{module}"), name)


@dataclass(frozen=True)
class Implementation:
    """One way in which an operator is written.

    Args:
        name: how it is asked for, as in `implementation="pallas"`.
        backend: what it is written in; decides how each rung is climbed.
        source: "MODULE:FUNCTION" in the operator's folder; loaded when it is first called.
        rungs: those that it claims; None for all that its backend proves without the device.
        accepts: whether it takes a workload; others are not offered to it.
        lacks: options of the public function that it has not, each with the reason; asking for one
            is an error that says so.
        differentiable: whether it has the operator's gradients.
        chapter: the chapter that builds it, where that is not the operator's.
        shipped_with: the library that it comes with, where it is a kernel that we did not write.
        needs: a package that it needs beside its backend's; where it is not installed, no rung is
            claimed, and a call says what to install.
        devices: kinds of PyTorch's devices on whose tensors it runs too, where the folder has a
            torch.py for them.
    """

    name: str
    backend: Backend
    source: str
    rungs: tuple[str, ...] = ()
    accepts: Callable[[Workload], bool] = lambda workload: True
    lacks: Mapping[str, str] = field(default_factory=dict, hash=False)
    differentiable: bool = True
    chapter: str = ""
    shipped_with: str = ""
    needs: str = ""
    devices: tuple[str, ...] = ()
    package: str = field(default="", repr=False)  # the operator's folder; the operator says it

    def __post_init__(self) -> None:
        if self.needs and not optional.available(self.needs):
            object.__setattr__(self, "rungs", ())
        elif not self.rungs:
            object.__setattr__(self, "rungs", self.backend.claims)

    @property
    def is_own(self) -> bool:
        """Whether it is a kernel that we wrote: not a library's, nor left to a compiler."""
        return not (self.backend.is_library or self.shipped_with)

    @property
    def tunable(self) -> bool:
        """Whether it takes a workload's tuning; what chooses for itself never does."""
        return self.backend.takes_interpret and "block" not in self.lacks

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself, behind the public one's checks."""
        return load(self.package, self.source)

    def __call__(self, *arguments: Any, interpret: Any = None, **options: Any) -> Any:
        """Run it. What interprets or simulates itself gets `interpret`, the rest has no use for
        it. Raises ValueError for an option that it lacks."""
        for name in options.keys() & self.lacks.keys():
            value = options.pop(name)
            if value is not None and value is not False:
                nothing = False if value is True else None
                fail(name, value, f'{nothing}, since "{self.name}" {self.lacks[name]}')
        if self.backend.takes_interpret:
            options["interpret"] = interpret
        return self.function(*arguments, **options)


class Contract:
    """What the rungs ask of whatever they prove: an operator, an exercise, a stranger's kernel.

    Attributes:
        reference: the float64 oracle, of the same arguments as the function.
        plain: the name of the plainest implementation, which sets the error budget.
        magnitude: the sums of absolute values behind each result, where it is a sum.
        rounding: the root of the sum of the squares of the terms, where each term is rounded to the
            dtype of the arguments before they are added up.
        gradient_magnitude: the sums of absolute values behind each gradient, of the arguments and
            the cotangents.
        outputs: a name for each result.
        differentiable: names of arguments.
        static: names of array arguments whose values the program is made from.
        terms: how many an element adds up at most, 1 where nobody says so.
        budget: how many times the budget it may take.
        rounds_sums: where a kernel rounds its partial sums again and again, in words; or "".
    """

    name: str
    reference: Callable[..., Any]
    workloads: Workloads
    plain: str
    magnitude: Callable[..., Any] | None
    rounding: Callable[..., Any] | None = None
    gradient_magnitude: Callable[..., Any] | None = None
    differentiable: tuple[str, ...]
    outputs: tuple[str, ...] = ("result",)
    static: tuple[str, ...] = ()
    terms = 1
    budget = 1.0
    rounds_sums = ""

    def plainest(self) -> tuple[Callable[..., Any], Backend]:
        """The plainest implementation, and what it is written in."""
        raise NotImplementedError


def positions(contract: Contract, names: Sequence[str]) -> tuple[int, ...]:
    """Where arguments of these names stand among the positional ones of the contract's reference.

    Raises:
        ValueError: for a name that the reference has not.
    """
    known = list(inspect.signature(contract.reference).parameters)
    for name in names:
        if name not in known:
            fail("differentiable or static", repr(name), f"{', '.join(known)} (of {contract.name})")
    return tuple(known.index(name) for name in names)


def _of_folder(module: str, suffix: str = "") -> Any:
    """What a file of an operator's folder has under its name; with a suffix, None if nothing. The
    magnitude of what is linear is the reference of absolute values."""

    def load_it(operator: Operator) -> Any:
        if suffix == "_magnitude" and operator.linear:
            return lambda *arguments, **options: operator.reference(*map(abs, arguments), **options)
        loaded, name = importlib.import_module(f"{operator.package}.{module}"), operator.name
        return getattr(loaded, name + suffix, None) if suffix else getattr(loaded, name)

    return property(functools.cache(load_it))


class Operator(Contract):
    """One operator: a public function, its float64 reference, and its implementations.

    Under the function's name, workloads.py of its folder has its Workloads, and reference.py the
    float64 oracle, whose positional arguments are the function's. NAME_magnitude, NAME_rounding and
    NAME_gradient_magnitude of reference.py are what Contract calls so, where they are there:
    without a gradient_magnitude, pulling the cotangents back through the magnitude gives it, as it
    does for what is linear in each argument. All are loaded when they are first needed, so that
    declaring an operator imports nothing heavy.

    Args:
        function: the public one: it checks its arguments, then hands over to `OPERATOR[name]`.
        summary: what it computes, in a line.
        implementations: the ways in which it is written.
        chapter: the one that is about it, where there is one.
        plain: the plainest implementation, which sets the error budget.
        outputs: a name for each result; a function with several returns a tuple.
        differentiable: names of arguments, at any position; empty where no gradient is defined.
        static: names of array arguments whose values decide what is compiled, such as a mask.
        linear: whether it is linear in each of its arrays of floats; its magnitude is then the
            reference of absolute values.

    Raises:
        ValueError: for a name that stands twice, and for a plain form that is not there.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        summary: str,
        implementations: Sequence[Implementation],
        chapter: str = "",
        plain: str = "xla",
        outputs: tuple[str, ...] = ("result",),
        differentiable: tuple[str, ...] = (),
        static: tuple[str, ...] = (),
        linear: bool = False,
    ) -> None:
        self.function, self.summary, self.chapter, self.plain = function, summary, chapter, plain
        self.name: str = function.__name__
        self.package: str = function.__module__.rpartition(".")[0]
        self.implementations = tuple(replace(i, package=self.package) for i in implementations)
        self.outputs, self.differentiable, self.static = outputs, differentiable, static
        self.linear = linear
        if len(set(self.names)) < len(self.names):
            fail(f"implementations of {self.name}", ", ".join(self.names), "each name once")
        if plain not in self.names:
            fail(f"plain of {self.name}", repr(plain), ", ".join(self.names))

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"

    reference, workloads = _of_folder("reference"), _of_folder("workloads")
    magnitude = _of_folder("reference", "_magnitude")
    rounding = _of_folder("reference", "_rounding")
    gradient_magnitude = _of_folder("reference", "_gradient_magnitude")

    def plainest(self) -> tuple[Callable[..., Any], Backend]:
        """The public function with the plainest implementation, and what that is written in."""
        return self.whole(self.plain), self[self.plain].backend

    def whole(self, name: str) -> Callable[..., Any]:
        """The public function with that implementation, as a function of whole arrays."""
        return self[name].backend.spread(functools.partial(self.function, implementation=name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its implementations."""
        return tuple(i.name for i in self.implementations)

    def __getitem__(self, name: str) -> Implementation:
        """The implementation of that name; ValueError lists those there are."""
        for implementation in self.implementations:
            if implementation.name == name:
                return implementation
        fail("implementation", repr(name), ", ".join(self.names))
