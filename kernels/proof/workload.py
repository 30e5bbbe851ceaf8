"""Workloads: the sizes and values that an operator is proven on. Same seed, same arguments."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from kernels.machines.checks import fail

# Sizes that find mistakes: 1, primes, and one below, at and above what blocks and tiles divide.
SIZES = (1, 2, 3, 5, 7, 8, 9, 16, 31, 63, 64, 65, 101, 123, 127, 128, 129, 200, 257, 384, 509)

# How values are drawn. "cancelling" makes sums nearly vanish, "nonfinite" plants NaN and infinity.
VALUES = ("normal", "wide", "cancelling", "nonfinite")

# What they are drawn as.
DTYPES = (
    *(f"{kind}{bits}" for kind in ("float", "int", "uint") for bits in (16, 32, 64)),
    *("bool", "int4", "int8", "uint8", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
)
MOST = 2**56  # of the sizes' product: NumPy counts the bytes of an array in 63 bits


@dataclass(frozen=True)
class Workload:
    """One problem to solve: named sizes, a dtype, how values are drawn, the operator's options.

    Args:
        name: by which it is found among its operator's.
        sizes: name → whole number.
        dtype: of its arrays, by name.
        values: how they are drawn; one of VALUES.
        options: part of the problem, such as an activation.
        tuning: part of an answer, such as block sizes; implementations that choose for themselves
            do not get it.
        why: what this workload would reveal, in a few words.
    """

    name: str
    sizes: Mapping[str, int]
    dtype: str = "float32"
    values: str = "normal"
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tuning: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    why: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(getattr(ml_dtypes, self.dtype, None) or self.dtype).itemsize

    def __hash__(self) -> int:
        return hash((self.name, *self.sizes.items(), self.dtype, self.values))

    def __str__(self) -> str:
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items())
        options = "".join(
            f" {k}={getattr(v, '__name__', v)}" for k, v in {**self.options, **self.tuning}.items()
        )
        values = "" if self.values == "normal" else f" {self.values}"
        return f"{self.name}: {sizes} {self.dtype}{values}{options}"


@dataclass(frozen=True)
class Workloads:
    """All that is known of an operator's problems.

    Args:
        make: make(workload, rng) gives the operator's positional arguments (NumPy arrays or
            numbers).
        named: the real and the hostile ones.
        draw: draw(rng) makes a random one.
        candidates: candidates(workload, vmem_bytes) gives the tunings worth trying on a TPU with so
            much VMEM, the most promising first; None where there is nothing to tune.
        figures: the sizes that the book gives figures of, too large to be proven on.
        choice: choice(workload) says in words which tuning is taken by itself, and why.
        limit: limit(workload, device) gives what bounds a measurement on "cpu" or "cuda": its name,
            a call without arguments to be timed beside the implementations, and how many of it the
            workload takes.
        work: work(workload, gradient) gives the least that a chip has to do for it, or for it and
            its gradients: operations of matrix products, and bytes of arguments and results, each
            moved once.
        published: a size's name in published figures → its name here, where that is another one.
    """

    make: Callable[[Workload, np.random.Generator], tuple[Any, ...]]
    named: tuple[Workload, ...]
    draw: Callable[[np.random.Generator], Workload]
    candidates: Callable[[Workload, int], Sequence[Mapping[str, Any]]] | None = None
    figures: tuple[Workload, ...] = ()
    choice: Callable[[Workload], str] | None = None
    limit: Callable[[Workload, str], tuple[str, Callable[[], Any], float]] | None = None
    work: Callable[[Workload, bool], tuple[int, int]] | None = None
    published: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def arguments(self, workload: Workload, seed: int = 0) -> tuple[Any, ...]:
        """The positional arguments for `workload`; the same seed gives the same values.

        Raises:
            ValueError: where they do not fit into memory.
        """
        try:
            return self.make(workload, np.random.default_rng(seed))
        except MemoryError as error:
            fail("workload", workload, f"sizes whose arrays fit into memory ({error})")

    def find(self, text: str) -> Workload:
        """The named workload `text`, or a new one of sizes such as "m=512 k=512 n=512 bfloat16".

        Args:
            text: a name; or sizes and a dtype, float32 where none is given.

        Returns:
            The workload; a new one is called "custom", and has the options of the first named one.

        Raises:
            ValueError: for an unknown name, for other sizes than the operator has, and for a dtype
                that is not of DTYPES.
        """
        words = text.replace(",", " ").split()
        if not any("=" in word for word in words):
            return self[text]
        pairs = [word.split("=", 1) for word in words if "=" in word]
        dtype, *more = [word for word in words if "=" not in word] or ["float32"]
        known = self.named[0]
        sizes = {name: int(size) for name, size in pairs if size.isdecimal()}
        once = sorted(name for name, _ in pairs) == sorted(known.sizes) and len(sizes) == len(pairs)
        if not once or math.prod(sizes.values()) > MOST:
            wanted = f"a whole number for each of {', '.join(known.sizes)}, once"
            fail("workload", repr(text), f"{wanted}, of a product up to {MOST}" if once else wanted)
        if more or dtype not in DTYPES:
            fail("workload", repr(text), f"sizes and one dtype of {', '.join(DTYPES)}")
        # Its options are what cannot be done without, such as a border.
        return Workload("custom", sizes, dtype, options=known.options)

    def __getitem__(self, name: str) -> Workload:
        everything = (*self.named, *self.figures)
        for workload in everything:
            if workload.name == name:
                return workload
        fail("workload", repr(name), ", ".join(w.name for w in everything))


def cases(
    sizes: str, *, dtype: str = "float32", values: str = "normal", **named: Any
) -> tuple[Workload, ...]:
    """Workloads of the same sizes, as a table.

    Args:
        sizes: their names, such as "m k n".
        dtype, values: of the arrays, as Workload has them, where a case says nothing else.
        named: name → a number for each size; then what it reveals, if there is more to say; then,
            as dictionaries, what else Workload takes.
    """
    workloads = []
    for name, case in named.items():
        parts = case if isinstance(case, tuple) else (case,)
        numbers = [part for part in parts if not isinstance(part, (str, dict))]
        more: dict[str, Any] = {"dtype": dtype, "values": values}
        for part in parts[len(numbers) :]:
            more |= {"why": part} if isinstance(part, str) else part
        sized = dict(zip(sizes.split(), numbers, strict=True))
        workloads.append(Workload(name, sized, **more))
    return tuple(workloads)


def along_rows(make: Any, *, vectors: int = 0, **more: Any) -> Workloads:
    """The workloads of what works along the rows of x [rows, n], and of as many more arrays [n].

    Args:
        make: as Workloads takes it.
        vectors: how many of these.
        more: `named` and `figures`, as Workloads takes them.
    """

    def draw(rng: np.random.Generator) -> Workload:
        kind = str(rng.choice(["normal", "wide", "cancelling"]))
        dtype = str(rng.choice(["float32", "bfloat16"]))
        return Workload("random", {"rows": size(rng), "n": size(rng)}, dtype, kind)

    def sized(workload: Workload) -> tuple[int, int, str]:
        return workload.sizes["rows"], workload.sizes["n"], workload.dtype

    def work(workload: Workload, gradient: bool) -> tuple[int, int]:
        rows, n, _ = sized(workload)
        # The gradient reads x (or the result) and its cotangent, and writes another.
        return 0, ((5 if gradient else 2) * rows + vectors) * n * workload.itemsize

    def candidates(workload: Workload, vmem_bytes: int) -> Sequence[Mapping[str, Any]]:
        from kernels.machines.tpu import rows

        blocks = rows.candidates(*sized(workload), vmem_bytes, 2, vectors)
        return [{"block": block} for block in blocks]

    def choice(workload: Workload) -> str:
        from kernels.machines.tpu import rows

        return rows.explained(*sized(workload), 2, vectors)

    known = {"work": work, "candidates": candidates, "choice": choice, "published": {"m": "rows"}}
    return Workloads(make=make, draw=draw, **known, **more)  # type: ignore[arg-type]


def size(rng: np.random.Generator) -> int:
    """Draw one dimension."""
    return int(rng.choice(SIZES))


def values(kind: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Draw an array.

    Args:
        kind: one of VALUES for floats; integers use their whole range.
        shape: of the array.
        dtype: by its name, such as "bfloat16".
        rng: where the randomness comes from.

    Returns:
        An array of that shape and dtype.

    Raises:
        ValueError: for an unknown kind.
    """
    dtype_ = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    if dtype_.kind in "iu":
        info = np.iinfo(dtype_)
        return rng.integers(info.min, info.max, shape, dtype=dtype_, endpoint=True)
    x = rng.standard_normal(shape)
    if kind == "wide":
        x *= 2.0 ** rng.integers(-30, 31, shape)
    elif kind == "cancelling":
        x = x + 1000.0 * np.where(np.arange(x.size).reshape(shape) % 2, 1.0, -1.0)
    elif kind == "nonfinite":
        where = rng.choice(x.size, min(3, x.size), replace=False)
        x.reshape(-1)[where] = (np.nan, np.inf, -np.inf)[: where.size]
    elif kind != "normal":
        fail("kind", repr(kind), ", ".join(VALUES))
    return x.astype(dtype_)
