"""Problems in the form of KernelBench for JAX: a file with `Model` (or a function `forward`),
`get_inputs` and `get_init_inputs`, read as it is.

At full size nothing is materialised: weights that a constructor makes, and inputs, are shapes. For
the interpreters the sizes at the top of the file are made smaller by whole blocks: each kernel then
runs the same body on the same blocks, on fewer of them. Values are drawn here, and not taken from
the file, whose weights are often zeros; what its own values would say is asked beside.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from kernels.machines.checks import brief, fail
from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.pallas.calls import calls_in
from kernels.yours.claim import is_float
from kernels.yours.declared import OWN, Declared
from kernels.yours.weighing import Full

FORMS = ("ModelNew", "Model", "forward")  # what is judged; the reference is no ModelNew
LEAST = 8  # a size below is no size that a problem is long in
FIXED = re.compile(r"kernel|stride|pad|dilat|group|window", re.I)
ELEMENTS = 1 << 24  # of all arrays of a problem that is run
PROGRAMS = 1 << 11  # of its kernels' grids
TRIES = 16  # smaller sizes that are tried for each name


@dataclasses.dataclass(frozen=True)
class Sized:
    """A kernel's file and its reference's at some sizes."""

    function: Callable[..., Any]  # of weights, by their paths, and of the inputs
    reference: Callable[..., Any]
    weights: Callable[[], dict[str, Any]]  # the reference's own
    inputs: Callable[[], list[Any]]

    @functools.cached_property
    def shapes(self) -> tuple[Any, ...]:
        """Weights and inputs as jax.ShapeDtypeStruct; a Python number is an array of no axes."""
        return (jax.eval_shape(self.weights), *jax.eval_shape(self.inputs))


def full(path: str, reference: str) -> Full:
    """The problem as its files have it; ValueError for a file that is not in the form, and what the
    files themselves raise."""
    sized = sized_as(path, reference, {})
    return Full(sized.function, sized.reference, sized.shapes, {})


def small(path: str, reference: str) -> tuple[list[Declared], dict[str, Any]]:
    """The problem at sizes that this machine bears, declared on drawn values, then on the file's
    own; and "sizes" that are smaller, "notes", and "faithful": whether each kernel is the very one
    of the full problem, on fewer blocks. ValueError for a file that is not in the form, and a
    problem that is too large and could not be made smaller."""
    sizes, faithful = _smaller(path, reference)
    sized = sized_as(path, reference, sizes)
    name = Path(path).stem
    weights, inputs = sized.weights(), [np.asarray(leaf) for leaf in sized.inputs()]
    zeros = [n for n, w in weights.items() if np.size(w) and not np.any(np.asarray(w))]
    draw = functools.partial(_drawn, weights, inputs, free=True)
    results = jax.tree.leaves(sized.reference(*draw(np.random.default_rng(0))))
    if not all(np.isfinite(np.asarray(result, np.float64)).all() for result in results):
        draw = functools.partial(_drawn, weights, inputs, free=False)
    ours = Declared(sized.function, sized.reference, draw, values=("given", "ties"), name=name)
    same = lambda rng: (weights, *inputs)
    own = dataclasses.replace(ours, arguments=same, values=("given",), name=name + OWN)
    notes = [f"weights of its own that are all zeros: {', '.join(zeros)}"] if zeros else []
    return [ours, own], {"sizes": sizes, "faithful": faithful, "notes": notes}


# --- the form -------------------------------------------------------------------------------------


def sized_as(path: str, reference: str, sizes: Mapping[str, int]) -> Sized:
    """The files with other numbers in place of some at their top; ValueError for one that is not in
    the form."""
    theirs = _executed(reference, sizes)
    ours = theirs if path == reference else _executed(path, sizes)
    init = _listed(theirs, "get_init_inputs")
    if not callable(getattr(theirs, "get_inputs", None)):
        fail("file", reference, "one with get_inputs, as KernelBench has it")
    build, known = _one(ours, FORMS, path), _one(theirs, FORMS[1:], reference)
    return Sized(
        functools.partial(_call, build, init),
        functools.partial(_call, known, init),
        functools.partial(_weights, known, init),
        lambda: _listed(theirs, "get_inputs"),
    )


def _listed(module: Any, name: str) -> list[Any]:
    if not isinstance(values := getattr(module, name, lambda: ())(), (list, tuple)):
        fail(name, f"a function that returns {values!r:.100}", "one that returns a list of inputs")
    return list(values)


def _executed(path: str, sizes: Mapping[str, int]) -> ModuleType:
    """The file as a module, with other numbers in place of sizes at its top."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    _sizes(tree, sizes)
    module = ModuleType(f"{Path(path).stem}, as judged")
    module.__file__ = path
    sys.modules[module.__name__] = module  # a dataclass looks for its own there
    exec(compile(tree, path, "exec"), module.__dict__)
    return module


def _sizes(tree: ast.Module, sizes: Mapping[str, int]) -> dict[str, int]:
    """The whole numbers that a file names at its top, such as `N = 2048 * 2` or `shape = (8, 128)`,
    the first of these as "shape[0]"; and others put in their place."""
    known: dict[str, int] = {}

    def replaced(name: str, node: ast.expr) -> ast.expr:
        numbers = (ast.Constant, ast.BinOp, ast.operator)
        if not all(isinstance(part, numbers) for part in ast.walk(node)):
            return node
        value = eval(compile(ast.Expression(node), "", "eval"))
        if type(value) is int:
            known[name] = value
        return ast.copy_location(ast.Constant(sizes.get(name, value)), node)

    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            if isinstance(node.value, ast.Tuple):
                parts = enumerate(node.value.elts)
                node.value.elts = [replaced(f"{target.id}[{i}]", part) for i, part in parts]
            else:
                node.value = replaced(target.id, node.value)
    return known


def _one(module: ModuleType, names: Sequence[str], path: str) -> Any:
    for name in names:
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    fail("file", path, f"one that defines {', '.join(names)}")


def _call(build: Any, init: Sequence[Any], weights: Mapping[str, Any], *inputs: Any) -> Any:
    """The model of these inputs, with those of the weights that it has too."""
    if not inspect.isclass(build):
        return build(*inputs)
    model: Any = build(*init)
    paths, tree = jax.tree_util.tree_flatten_with_path(vars(model))
    leaves = [weights.get(jax.tree_util.keystr(path), leaf) for path, leaf in paths]
    vars(model).update(jax.tree.unflatten(tree, leaves))
    forward: Any = getattr(model, "forward", model)
    return forward(*inputs)


def _weights(build: Any, init: Sequence[Any]) -> dict[str, Any]:
    """The arrays among a model's attributes, by their paths."""
    if not inspect.isclass(build):
        return {}
    paths, _ = jax.tree_util.tree_flatten_with_path(vars(build(*init)))
    return {jax.tree_util.keystr(p): leaf for p, leaf in paths if hasattr(leaf, "dtype")}


# --- values ---------------------------------------------------------------------------------------


def _drawn(
    weights: Mapping[str, Any], inputs: Sequence[Any], rng: np.random.Generator, free: bool
) -> tuple[Any, ...]:
    """Weights and inputs, none of them zeros or all the same; inputs take both signs if `free`,
    else they keep to the range of the file's own."""
    return (
        {name: _weight(np.asarray(own), rng) for name, own in weights.items()},
        *[_input(own, rng, free) for own in inputs],
    )


def _weight(own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not is_float(own):
        return own
    if own.size and own.astype(np.float64).min() > 0:  # a variance, a scale
        return (rng.uniform(0.5, 1.5, own.shape) * own.astype(np.float64)).astype(own.dtype)
    fan_in = math.prod(own.shape[1:])
    return (rng.standard_normal(own.shape) / math.sqrt(max(fan_in, 1))).astype(own.dtype)


def _input(own: np.ndarray, rng: np.random.Generator, free: bool) -> np.ndarray:
    wide = own.astype(np.float64) if is_float(own) else own
    kept = rng.permutation(wide.ravel()).reshape(own.shape)
    whole = not is_float(own) or (np.any(wide) and bool(np.all(wide == np.round(wide))))
    if whole and np.ptp(wide) > 0:  # labels, masks, signs
        return kept.astype(own.dtype)
    if free or not np.any(wide):
        return rng.standard_normal(own.shape).astype(own.dtype)
    return (kept * rng.uniform(0.5, 1.0, own.shape)).astype(own.dtype)


# --- smaller by whole blocks ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Traced:
    """What a problem's kernels are at some sizes."""

    grids: tuple[tuple[int, ...], ...]
    blocks: tuple[Any, ...]  # of each operand
    # The same without dimensions that one block is as long as; and whether blocks divide the rest.
    cut: tuple[Any, ...]
    bodies: tuple[str, ...]
    elements: int
    outside: bool  # whether index maps leave their arrays, or leave some unwritten

    def stands_for(self, whole: _Traced, same_body: bool) -> bool:
        """Whether it has the kernels of the whole problem on fewer of the same blocks; without
        same_body a block may be shorter where it is as long as its array."""
        if same_body and (self.blocks, self.bodies) != (whole.blocks, whole.bodies):
            return False
        if self.cut != whole.cut or self.outside:
            return False
        pairs = [p for own, all_ in zip(self.grids, whole.grids) for p in zip(own, all_)]
        return all(min(2, most) <= size <= most for size, most in pairs)


def _traced(path: str, reference: str, sizes: Mapping[str, int]) -> _Traced:
    sized = sized_as(path, reference, sizes)
    leaves, tree = jax.tree.flatten(sized.shapes)
    with jax_pallas.compiled():
        traced = jaxprs.trace(lambda *a: sized.function(*jax.tree.unflatten(tree, a)), *leaves)
    jax.eval_shape(sized.reference, *sized.shapes)  # it takes these sizes too
    own = list(filter(jax_pallas.is_kernel, jax_pallas.outside_kernels(traced)))
    grids, blocks = tuple(map(jax_pallas.grid, own)), [jax_pallas.blocks(e) for e in own]
    cut = lambda b: tuple(n < s and (n, s % n == 0) for s, n in zip(b.shape, b.sizes))
    return _Traced(
        grids,
        tuple(tuple(b.sizes for b in call) for call in blocks),
        tuple(tuple(map(cut, call)) for call in blocks),
        tuple(str(jax_pallas.kernel(e)) for e in own),
        sum(math.prod(array.shape) for array in (*leaves, *itertools.chain(*blocks))),
        sum(map(math.prod, grids)) <= PROGRAMS
        and any(call.problems() for call in calls_in(traced)),
    )


def _smaller(path: str, reference: str) -> tuple[dict[str, int], bool]:
    """Sizes in place of the file's, and whether the kernels' bodies stay what they are; ValueError
    where the problem is too large to run, and cannot be made smaller."""
    tree = ast.parse(Path(reference).read_text(encoding="utf-8"))
    named = _sizes(tree, {}).items()
    known = {name: size for name, size in named if size >= LEAST and not FIXED.search(name)}
    whole = _traced(path, reference, {})
    steps = {n for call in whole.blocks for sizes in call for n in sizes if n > 1}
    for same_body in (True, False):
        sizes: dict[str, int] = {}
        now, why = whole, "it names no sizes at its top"
        for name, size in sorted(known.items(), key=lambda item: -item[1]):
            for less in _less(size, steps):
                try:
                    tried = _traced(path, reference, {**sizes, name: less})
                except Exception as error:  # sizes that the file itself does not take
                    why = f"at {name} = {less}: {brief(error)}"
                    continue
                if tried.stands_for(whole, same_body):
                    sizes[name], now = less, tried
                    break
                why = f"at {name} = {less} its kernels have other blocks"
        programs = sum(map(math.prod, now.grids))
        if now.elements <= ELEMENTS and programs <= PROGRAMS:
            return sizes, now.bodies == whole.bodies
    words = f"{now.elements:,} elements on {programs:,} programs"
    fail("problem", f"{words}, and could not be shrunk by whole blocks ({why})", "a smaller one")


def _less(size: int, steps: set[int]) -> list[int]:
    """Smaller sizes: few whole blocks and the same rest first, then powers of two times less."""
    few = {count * step + size % step for step in steps for count in (1, 2)}
    halves = {size >> n for n in range(1, size.bit_length()) if size % (1 << n) == 0}
    return [n for n in (*sorted(few), *sorted(halves - few)) if 1 < n < size][:TRIES]
