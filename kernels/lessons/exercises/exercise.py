"""What an exercise asks for, and how an answer to it is proven."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from kernels.lessons.exercises.bars import Bar
from kernels.proof.backends.base import Backend, Refused
from kernels.proof.backends.pallas_tpu import IN_LESSONS
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Contract
from kernels.proof.workload import Workload, Workloads, values

Make = Callable[[Workload, np.random.Generator], tuple[Any, ...]]


@dataclass(frozen=True, repr=False)
class Exercise(Contract):
    """A kernel or a function for the reader to write.

    Args:
        name: by which it is checked, and its texts in texts.toml are found.
        reference: what the result is, in float64 NumPy, of the same arguments; it is the oracle.
        make: make(workload, rng) gives the positional arguments.
        problems: the workloads it is proven on.
        call: `call(answer, *arguments, interpret)` runs the reader's function; None where that
            takes the arguments as they are, and interpret= unless it is written for a library.
        rungs: those that it has to climb; none for all that its backend proves on the CPU.
        backend: what it is to be written in.
        magnitude: for a sum, the sum of its terms' absolute values, as in a reference.
        judge: judge(programs) asks more of the program of the first workload, as ladder.programs
            gives it; returns a note, or raises ladder.Refused.
        bar: how fast the answer has to be; it is measured when all else is right.
        differentiable: the arguments whose gradients are proven too; JAX then has to be able to
            trace the reference.
        task, hint: a sentence, and what is shown with each failure: see `chapters`.
    """

    name: str
    reference: Callable[..., Any]
    make: Make
    problems: tuple[Workload, ...]
    call: Callable[..., Any] | None = None
    rungs: tuple[str, ...] = ()
    backend: Backend = IN_LESSONS
    magnitude: Callable[..., Any] | None = None
    judge: Callable[[list[Any]], str] | None = None
    bar: Bar | None = None
    differentiable: tuple[str, ...] = ()
    task: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        climbed, named = tuple(r for r in self.backend.claims if r != "measure"), self.problems
        drawn = Workloads(self.make, named, draw=lambda rng: named[rng.integers(len(named))])
        object.__setattr__(self, "rungs", self.rungs or climbed)
        object.__setattr__(self, "workloads", drawn)
        # The name under which the answer climbs: so it is compared with the reference alone.
        object.__setattr__(self, "plain", self.name)

    def __repr__(self) -> str:
        return f"<Exercise {self.name}: {self.task}>"

    def plainest(self) -> tuple[Callable[..., Any], Backend]:
        """The reference in the dtype of its arguments."""
        return self.reference, XLA

    @property
    def caller(self) -> Callable[..., Any]:
        """`call`; where there is none, what does for a function of a library or for a kernel."""
        return self.call or functools.partial(_call, self.backend.is_library)


def _call(
    plain: bool, answer: Callable[..., Any], *arguments: Any, interpret: Any = None, **options: Any
) -> Any:
    how = {} if plain else {"interpret": interpret}
    return compared(answer(*arguments, **how, **options))


def jitted(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Run an answer under jax.jit."""
    return jax.jit(answer)(*arguments)


def compared(result: Any) -> Any:
    """The result, if it can be compared with a number or an array."""
    if not hasattr(result, "dtype") and np.asarray(result).dtype.kind not in "iufb":
        raise Refused(f"{type(result).__name__} is returned, where numbers are wanted")
    return result


def launch(
    kernel: Callable[..., Any],
    *arrays: Any,
    interpret: Any,
    shape: tuple[int, ...] | None = None,
    dtype: Any = None,
    blocks: tuple[Any, ...] = (),
    **options: Any,
) -> Any:
    """Run an answer that is a kernel.

    Args:
        kernel: the reader's.
        arrays: what it reads.
        interpret: how pl.pallas_call is to run it.
        shape, dtype: of the result; those of the last array where none are said.
        blocks: the block specification of each array and, last, of the result; none for all whole.
        options: of pl.pallas_call, besides.
    """
    if blocks:
        *options["in_specs"], options["out_specs"] = blocks
    like = jax.ShapeDtypeStruct(shape or arrays[-1].shape, dtype or arrays[-1].dtype)
    return pl.pallas_call(kernel, out_shape=like, interpret=interpret, **options)(*arrays)


def drawn(*shapes: str) -> Make:
    """A `make` that draws arrays of shapes such as "m 2*n", of the workload's dtype and values."""

    def make(workload: Workload, rng: np.random.Generator) -> tuple[Any, ...]:
        def size(side: str) -> int:
            return math.prod(int(workload.sizes.get(part, part)) for part in side.split("*"))

        sizes = [tuple(map(size, shape.split())) for shape in shapes]
        return tuple(values(workload.values, shape, workload.dtype, rng) for shape in sizes)

    return make


def numbers(workload: Workload, rng: np.random.Generator) -> tuple[Any, ...]:
    """A `make` for functions of the sizes themselves."""
    return tuple(workload.sizes.values())


product = functools.partial(
    Exercise,
    reference=lambda x, y: x @ y,
    make=drawn("m k", "k n"),
    magnitude=lambda x, y: abs(x) @ abs(y),
)
