"""A stranger's kernel as the rungs know one: a contract.Contract made of what he declared.

His arguments and results may be trees; here they are lists of leaves. The oracle is his reference
in float64, the plain form his reference in the arguments' own dtype. Nothing is asked of him about
the size of his sums: it is estimated, see `magnitude`.
"""

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from kernels.machines import rewritten
from kernels.machines.checks import fail
from kernels.machines.compat import jaxprs
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Backend, Job
from kernels.proof.backends.jax_arrays import at_places
from kernels.proof.backends.pallas_tpu_mesh import over
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Contract, positions
from kernels.proof.workload import Workload, Workloads
from kernels.yours.declared import Declared

DRAWS = 2  # of the values as given, where they are drawn
MOST_MEANS = 4  # arrays that get a large mean, one after the other
PROBES = 15  # directions in which the reference is varied to learn how it amplifies
STEP = 1e-9  # of that variation, relative to each number
NOTHING = 1e-6  # of what is common: an element that small is zero by construction
TAIL = 1e3  # of its Cauchy draws, cut there
ROUNDINGS = 8  # half ulps of a size that the budget allows at least: see kernels.budget
MEANS = (1000.0, 16.0)  # in standard deviations, of a wide dtype and of a narrow one
DECADES = (3.0, 2.0)  # likewise


class Drawn(Workload):
    """A draw of the stranger's arguments, whose sizes he knows himself."""

    def __str__(self) -> str:
        return self.name


class Claim(Contract):
    """A declared function as a contract: see kernels.proof.contract.Contract. ValueError where
    `arguments` draws no tuple, or nothing that is an array, and for names of no argument."""

    plain = "the reference"
    rounds_sums = ""  # whoever traces it says so, see kernels.yours.answers
    gradient_rounding: Callable[..., Any] | None

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.name, self.budget = declared.name, declared.budget
        leaves, self._tree, paths = self._flat(np.random.default_rng(0))
        names = names_of(declared.reference) or names_of(declared.function)
        self._owners = [_owner(path, names) for path in paths]
        self.leaves = _identifiers(paths, names)
        self.spread = declared.spread
        arrays = [n for n, leaf in zip(self.leaves, leaves) if _is_array(leaf)]
        if not arrays:
            fail("arguments", f"a function that draws no array for {self.name}", "one that does")
        self.differentiable = self._named("differentiable", leaves, floats=True)
        self.static = self._named("static", leaves)
        if self.spread and self.static:
            fail("static", ", ".join(self.static), "nothing, on a mesh")
        self._first = leaves
        self._made: dict[Any, Any] = {}  # see _once
        self._plainest = self._signed(self._plain)
        self.reference = self._signed(lambda *leaves: self._widely(leaves)(*leaves))
        self.magnitude = self._signed(functools.partial(self._size, absolute=True))
        narrow = any(is_float(leaf) and leaf.dtype.itemsize < 4 for leaf in leaves)
        terms = functools.partial(self._size, absolute=False)
        self.rounding = self._signed(terms) if narrow else None
        self.gradient_magnitude = self._pull_size if self.differentiable else None
        self.gradient_rounding = self._pull_rounding if self.differentiable else None

    # --- what the rungs ask ---------------------------------------------------------------------

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """A name for each leaf of the reference's result."""
        result = self._result
        paths, _ = jax.tree_util.tree_flatten_with_path(result)
        if not paths:
            fail("reference", f"a function that returns {result!r}", "one that returns arrays")
        self.cut  # noqa: B018  # checks the specs
        if not any(_tells(leaf) for _, leaf in paths):
            useless = "a function that gives no finite number for the arguments drawn"
            fail("reference", useless, "one whose results a wrong kernel would miss")
        return tuple(f"result{jax.tree_util.keystr(path)}" for path, _ in paths)

    @functools.cached_property
    def workloads(self) -> Workloads:  # type: ignore[override]
        """The draws: as given, with a large mean, over many powers of ten, with ties."""
        again, _, _ = self._flat(np.random.default_rng(1))
        draws = 1 if all(map(_same, self._first, again)) else DRAWS
        named = [Drawn(f"values as drawn, {n + 1}", {"draw": n}, self._dtype) for n in range(draws)]
        leaves = enumerate(self._first)
        floats = [p for p, a in leaves if is_float(a) and a.size > 1 and _is_data(a)]
        if "mean" in self.declared.values:
            named += [
                Drawn(f"large mean of {self.leaves[p]}", {"draw": 0, "mean": p}, self._dtype)
                for p in floats[:MOST_MEANS]
            ]
        if "wide" in self.declared.values and floats:
            named.append(Drawn("wide range of values", {"draw": 0, "wide": 1}, self._dtype, "wide"))
        whole = any(np.asarray(r).dtype.kind in "iub" for r in jax.tree.leaves(self._result))
        if "ties" in self.declared.values and floats and whole:
            named.append(Drawn("each value twice", {"draw": 0, "ties": 1}, self._dtype, "ties"))
        if "given" not in self.declared.values:
            named = named[draws:] or named
        return Workloads(make=self._make, named=tuple(named), draw=lambda rng: named[0])

    def plainest(self) -> tuple[Callable[..., Any], Backend]:
        """The reference in the dtype of its arguments."""
        return self._plainest, XLA

    @functools.cached_property
    def function(self) -> Callable[..., tuple[Any, ...]]:
        """The stranger's function, of leaves and with leaves; of whole arrays, on a mesh."""
        own, tree = self.declared.function, self._tree  # without self, which is not pickled
        part = lambda *leaves: tuple(jax.tree.leaves(_called(own, tree, leaves)))
        return functools.partial(_on_devices, part, self.cut, self.copied) if self.spread else part

    @functools.cached_property
    def cut(self) -> dict[str, Any]:
        """How arrays and results are cut over a mesh, as kernels.tpu.compile takes it."""
        if not self.spread:
            return {}
        cut = self.spread.cut(*self._tree.unflatten(self._first))
        pairs = zip(self.copied, self._out_specs, strict=True)
        spec_of = jax.sharding.PartitionSpec
        outs = tuple(spec_of(axes, *spec) if axes else spec for axes, spec in pairs)
        return cut | {"out_specs": outs}

    @functools.cached_property
    def copied(self) -> list[tuple[str, ...]]:
        """The axes along which each device has a copy of its own of a result, for each: there such
        copies stand one behind the other, along a new first dimension, so that none goes unseen."""
        return [self.spread.copied(spec) for spec in self._out_specs] if self.spread else []

    @functools.cached_property
    def _result(self) -> Any:
        return _called(self.declared.reference, self._tree, self._first)

    @functools.cached_property
    def _out_specs(self) -> list[Any]:
        return self.spread.specs("out_specs", self._result) if self.spread else []

    @functools.cached_property
    def terms(self) -> int:  # type: ignore[override]
        """How many an element adds up at most, of a result or of a gradient; 1 of NumPy's."""
        places = [i for i, a in enumerate(self._first) if is_float(a)]
        function, arrays = at_places(self._plain, self._first, places)

        def pulled(*arrays: Any) -> Any:
            results, pull = jax.vjp(function, *arrays)
            return pull(results)

        with contextlib.suppress(Exception):  # what no tracer runs, or has no gradient
            whole = pulled if self.differentiable else function
            return jaxprs.most_terms(jaxprs.trace(whole, *arrays))
        return 1

    # --- values ---------------------------------------------------------------------------------

    @property
    def _dtype(self) -> str:
        return next((str(a.dtype) for a in self._first if _is_array(a)), "float32")

    def _flat(self, rng: np.random.Generator) -> tuple[list[Any], Any, list[Any]]:
        """One draw: its leaves, their tree, and the path of each."""
        paths, tree = jax.tree_util.tree_flatten_with_path(self.declared.draw(rng))
        return [_canonical(leaf) for _, leaf in paths], tree, [path for path, _ in paths]

    def _make(self, workload: Workload, rng: np.random.Generator) -> tuple[Any, ...]:
        sizes = workload.sizes
        seed = int(rng.integers(1 << 31)) + sizes["draw"]
        leaves, tree, _ = self._flat(np.random.default_rng(seed))
        if tree != self._tree:
            fail("arguments", f"a function that draws {tree} once and {self._tree} before", "one")
        if "mean" in sizes:
            array = leaves[sizes["mean"]]
            wide, deviations = array.astype(np.float64), MEANS[array.itemsize < 4]
            leaves[sizes["mean"]] = (wide + deviations * wide.std()).astype(array.dtype)
        if "wide" in sizes:
            spread = np.random.default_rng(seed + 1)
            leaves = [_spread(a, spread) if is_float(a) and _is_data(a) else a for a in leaves]
        if "ties" in sizes:
            leaves = [_twice(a) if is_float(a) and _is_data(a) else a for a in leaves]
        return tuple(leaves)

    # --- functions of leaves --------------------------------------------------------------------

    def _plain(self, *leaves: Any) -> tuple[Any, ...]:
        try:
            result = _called(self.declared.reference, self._tree, leaves)
        except TypeError:  # NumPy's, that writes into its arrays
            if any(isinstance(a, jax.core.Tracer) for a in leaves):
                raise
            args, kwargs = jax.tree.unflatten(self._tree, list(leaves))
            result = self.declared.reference(*args, **kwargs)
        results = tuple(jax.tree.leaves(result))
        if not self.spread:
            return results
        counts = [(self.spread.count(axes),) * bool(axes) for axes in self.copied]
        return tuple(jnp.broadcast_to(r, n + np.shape(r)) for r, n in zip(results, counts))

    def _widely(self, leaves: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        """The oracle for such leaves: the reference, where it casts to a narrow float cast to
        float64 instead. It is compiled; what no tracer runs, as NumPy's own, is run as it is."""
        # Integers stay what they are: a reference may loop over them in Python.
        places = [i for i, a in enumerate(leaves) if is_float(a) or hasattr(a, "aval")]
        function, arrays = at_places(self._plain, leaves, places)

        # What is made of integers alone may have to be numbers.
        early = jax.ensure_compile_time_eval()(function)

        def compiled() -> Any:
            for one in (function, early):
                with contextlib.suppress(jax.errors.JAXTypeError, TypeError, ValueError):
                    return jax.jit(rewritten.widened(one)).lower(*arrays).compile()
            return None

        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        wide = rewritten.widened(function) if traced else self._once("wide", leaves, compiled)
        return (lambda *values: tuple(wide(*[values[p] for p in places]))) if wide else self._plain

    def _once(self, what: str, leaves: Sequence[Any], make: Callable[[], Any]) -> Any:
        """What is made for such leaves, whatever the values of floats among them: made once."""
        key = what, *map(_decides, leaves)
        if key not in self._made:
            self._made[key] = make(), leaves  # these too, lest their ids be given again
        return self._made[key][0]

    def _signed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the leaves' names as its parameters', which the rungs go by."""
        return with_names(lambda *leaves: function(*leaves), self.leaves)

    def _named(self, what: str, leaves: Sequence[Any], floats: bool = False) -> tuple[str, ...]:
        """The leaves of the arguments that `differentiable` or `static` names."""
        names = []
        for name in getattr(self.declared, what):
            own = [
                leaf_name
                for leaf_name, owner, leaf in zip(self.leaves, self._owners, leaves, strict=True)
                if owner == name and (is_float(leaf) if floats else _is_array(leaf))
            ]
            if not own:
                known = ", ".join(dict.fromkeys(self._owners))
                kind = "float arrays" if floats else "arrays"
                fail(what, repr(name), f"of {self.name}'s arguments with {kind}: {known}")
            names += own
        return tuple(names)

    # --- how large what an element adds up is ---------------------------------------------------

    def _size(self, *leaves: Any, absolute: bool) -> list[np.ndarray]:
        """How much a result depends on the arguments; absolute: and at least what rounding alone
        may do to it, as to 1 + tanh(x) where tanh is nearly -1."""
        sizes = _amplified(self._widely(leaves), leaves, absolute)
        if absolute:
            places = [i for i, a in enumerate(leaves) if is_float(a)]
            function, arrays = at_places(self._plain, leaves, places)
            make = lambda: jax.jit(rewritten.rounded(rewritten.widened(function)))
            with contextlib.suppress(Exception):  # NumPy's own is not traced
                return _rounded(self._once("rounded", leaves, make), arrays, sizes)
        return sizes

    def _pull(self, *arguments: Any) -> tuple[Job, list[Any]]:
        """The gradients of the reference by the differentiable arguments, and the cotangents that
        follow upon these."""
        count = len(self.leaves)
        wanted = positions(self, self.differentiable)  # type: ignore[arg-type]
        return Job(self.reference, arguments[:count], {}, wanted), list(arguments[count:])

    def _pull_size(self, *arguments: Any) -> list[np.ndarray]:
        """The same of the gradients."""
        pull = lambda *changed: jax_arrays.pull(*self._pull(*changed))
        return _amplified(pull, arguments, absolute=True)

    def gradient_moves(self, exact: Any, place: int, draw: int, *arguments: Any) -> np.ndarray:
        """How far relative changes of the arguments by ±1 unit move the exact gradient by one of
        the differentiable ones: less than it depends on them, and as soon known as it is itself."""
        rng = np.random.default_rng((place, draw))
        moved = _varied(arguments, lambda shape: rng.choice((-1.0, 1.0), shape))
        job, cotangents = self._pull(*moved)
        with jax.enable_x64(True):
            one = replace(job, wanted=job.wanted[place : place + 1])
            [other] = jax_arrays.pull(one, cotangents)
        return np.nan_to_num(np.abs(other - exact) / STEP, posinf=0.0)

    def _pull_rounding(self, *arguments: Any) -> list[np.ndarray]:
        """What rounding alone may do to the gradients, which takes no more than float32 to know.

        In a softmax that sees almost nothing but one key, what comes back to the logits is a
        difference of two sums that are nearly equal: however little it depends on the arguments, it
        is no more exact than these. A kernel may even add them up in another order than the
        reference, as flash attention does, so that what they have in common does not cancel.
        """
        narrow = [a.astype(np.float32) if is_float(a) else a for a in arguments]
        job, cotangents = self._pull(*narrow)

        def make() -> Any:
            gradient, _ = jax_arrays.programs(job)[1]
            results = len(self.outputs)
            return jax.jit(rewritten.rounded(lambda *arrays: gradient(*arrays)[results:]))

        arrays = (a for a in job.arguments if hasattr(a, "shape"))
        with jax.enable_x64(False):
            errors = self._once("rounded gradient", job.arguments, make)
            return _rounded(errors, (tuple(cotangents), *arrays), [0.0] * len(job.wanted))


def _called(function: Callable[..., Any], tree: Any, leaves: Sequence[Any]) -> Any:
    arrays = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in leaves]
    args, kwargs = jax.tree.unflatten(tree, arrays)
    return function(*args, **kwargs)


def _on_devices(
    part: Callable[..., Any], cut: dict[str, Any], copied: Sequence[Any], *leaves: Any
) -> tuple[Any, ...]:
    """A function of one device's leaves, called on all devices."""
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape")]
    call, arrays = at_places(part, leaves, places)

    def of_parts(*parts: Any) -> tuple[Any, ...]:
        results = call(*parts)
        if len(results) != len(copied):
            fail("function", f"one that returns {len(results)} arrays", f"{len(copied)} of them")
        return tuple(jnp.asarray(r)[None] if axes else r for r, axes in zip(results, copied))

    return over(of_parts, **cut)(*arrays)


def names_of(function: Callable[..., Any]) -> list[str]:
    """What a function calls its positional arguments; nothing where it does not say."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def with_names(function: Any, names: Sequence[str]) -> Any:
    """The function, once it calls its arguments so."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


def _amplified(
    function: Callable[..., Any], values: Sequence[Any], absolute: bool
) -> list[np.ndarray]:
    """How much relative changes of the values change each result: its condition, in its own unit.

    To first order a result moves by Σ J x ε. With ε drawn from a Cauchy distribution that sum is
    one too, of scale Σ |J x|; so the median of its absolute value over several draws estimates it.
    Of a product of matrices that is the sum of its terms' absolute values (twice, as both factors
    move).

    Args:
        function: of the values; runs in float64.
        values: arrays and others; the float64 arrays are varied.
        absolute: for Σ |J x|; else the root of Σ (J x)², by draws of ±1.

    Returns:
        For each result an array of its shape, at least its own absolute value.

    Source:
        Indyk, "Stable distributions, pseudorandom generators, embeddings and data stream
        computation", Journal of the ACM 53 (2006).
    """
    rng = np.random.default_rng(0)
    cauchy = lambda shape: np.clip(rng.standard_cauchy(shape), -TAIL, TAIL)
    signs = lambda shape: rng.choice((-1.0, 1.0), shape)
    base = [np.asarray(r, np.float64) for r in function(*values)]
    distances: list[list[np.ndarray]] = [[] for _ in base]
    for _ in range(PROBES):
        changed = _varied(values, cauchy if absolute else signs)
        with np.errstate(invalid="ignore", over="ignore"):
            for kept, first, other in zip(distances, base, function(*changed), strict=True):
                kept.append(np.abs(np.asarray(other, np.float64) - first) / STEP)
    sizes = []
    for first, kept in zip(base, distances, strict=True):
        stacked = np.stack(kept)
        with np.errstate(invalid="ignore"):
            typical = np.median(stacked, 0) if absolute else np.sqrt(np.mean(stacked**2, 0))
        size = np.maximum(np.abs(first), np.nan_to_num(typical, posinf=0.0))
        # What is zero whatever the values are, as where terms cancel by construction, has terms
        # nevertheless: about those of the other elements.
        common = np.median(size[size > 0]) if (size > 0).any() else 0.0
        sizes.append(np.where(size <= NOTHING * common, common, size))
    return sizes


def _varied(values: Sequence[Any], draw: Callable[[Any], np.ndarray]) -> list[Any]:
    """The values, with the float64 arrays off by steps that are drawn for their shapes."""
    varies = lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64
    return [value * (1 + STEP * draw(value.shape)) if varies(value) else value for value in values]


def _rounded(errors: Callable[..., Any], arrays: Any, sizes: Any) -> list[np.ndarray]:
    """The sizes of a function's results; at least what the budget needs for rounding alone.
    errors: as rewritten.rounded makes them."""
    pairs = zip(sizes, errors(*arrays), strict=True)
    return [np.maximum(s, np.asarray(e, np.float64) / ROUNDINGS) for s, e in pairs]


# --- leaves ---------------------------------------------------------------------------------------


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _same(one: Any, other: Any) -> bool:
    """Whether two draws of a leaf are equal in every bit."""
    if not _is_array(one):
        return one is other
    return isinstance(one, np.ndarray) and one.tobytes() == np.asarray(other).tobytes()


def _tells(result: Any) -> bool:
    """Whether a result has a number that another could differ from."""
    values = np.asarray(result)
    kind = values.dtype.kind
    return kind not in "OSU" and bool(values.size if kind in "iub" else np.isfinite(values).any())


def is_float(value: Any) -> bool:
    """Whether it is a NumPy array of floats, of any width."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "iubOSU"


def _decides(leaf: Any) -> Any:
    """What a program depends on that takes the leaf's value where it is a float array."""
    if not isinstance(leaf, np.ndarray):
        return id(leaf)
    return leaf.shape, leaf.dtype, b"" if is_float(leaf) else leaf.tobytes()


def _is_data(value: np.ndarray) -> bool:
    """Whether its values may be changed: not those of a mask, nor of what is one number."""
    wide = value.astype(np.float64)
    return bool(np.isfinite(wide).all() and (wide != np.round(wide)).any() and np.ptp(wide) > 0)


def _canonical(leaf: Any) -> Any:
    """As JAX would take it, in NumPy: 64 bits become 32."""
    if not _is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf
    return np.asarray(jnp.asarray(leaf))


def _spread(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    decades = DECADES[array.itemsize < 4]
    with np.errstate(over="ignore"):
        wide = array.astype(np.float64) * 10.0 ** rng.uniform(-decades, decades, array.shape)
    largest = float(ml_dtypes.finfo(array.dtype).max)
    return np.clip(wide, -largest, largest).astype(array.dtype)


def _twice(array: np.ndarray) -> np.ndarray:
    """With each value of it twice along each axis that is not short, as boxes' four numbers are."""
    for axis in (axis for axis, size in enumerate(array.shape) if size >= 8):
        array = np.maximum(array, np.flip(array, axis))
    return array


def _owner(path: Any, names: Sequence[str]) -> str:
    """The argument that a leaf belongs to. path: of (args, kwargs)."""
    which, key = path[0].idx, path[1]
    if which == 1:
        return str(key.key)
    return names[key.idx] if key.idx < len(names) else f"argument{key.idx}"


def _identifiers(paths: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    """A name for each leaf, that may stand as a parameter's."""
    identifiers: list[str] = []
    for path in paths:
        rest = re.sub(r"\W+", "_", jax.tree_util.keystr(path[2:])).strip("_")
        name = _owner(path, names) + (f"_{rest}" if rest else "")
        while name in identifiers:
            name += "_"
        identifiers.append(name)
    return tuple(identifiers)
