"""Puzzles of five minutes: what is wrong with an answer, wanted beside got."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from kernels.machines.checks import brief, fail

SHOWN = 32  # elements of an array that is shown whole


def rows(named: Mapping[str, Any]) -> Iterator[str]:
    """Lines of each array behind its name; none where one is too large to be taken in."""
    arrays = {name: np.asarray(array) for name, array in named.items()}
    if all(array.size <= SHOWN for array in arrays.values()):
        for name, array in arrays.items():
            yield f"{name:<7}{np.array2string(array, prefix=' ' * 7, precision=3)}"


def faults(
    answer: Callable[..., Any], formula: Callable[..., Any], arrays: Any, call: bool, options: Any
) -> Iterator[tuple[str, ...]]:
    """Lines on each result that is wrong, of the arrays on the page and of others like them.

    A second try with the same numbers in another order, floating-point ones stretched, meets an
    answer that knows the first by heart.
    """
    rng = np.random.default_rng(0)
    again = [rng.permutation(a.ravel()).reshape(a.shape) for a in map(np.asarray, arrays)]
    stretched = [(a * 1.5).astype(a.dtype) if a.dtype.kind == "f" else a for a in again]
    for tried in (arrays, stretched):
        wanted = [np.asarray(w) for w in jax.tree.leaves(formula(*tried))]
        like = [
            jax.ShapeDtypeStruct(w.shape, jax.dtypes.canonicalize_dtype(w.dtype)) for w in wanted
        ]
        listed = len(like) > 1 or isinstance(options.get("out_specs"), (list, tuple))
        shapes = {"out_shape": like if listed else like[0], "interpret": True}
        kernel = pl.pallas_call(answer, **(shapes | options))
        try:
            results = jax.tree.leaves((kernel if call else answer)(*tried))
            sizes = [[np.shape(a) for a in some] for some in (results, wanted)]
            if sizes[0] != sizes[1]:
                fail("shapes", sizes[0], f"{sizes[1]}")
        except Exception as error:  # whatever a wrong program raises
            yield (brief(error),)
            return
        for want, got in zip(wanted, map(np.asarray, results), strict=True):
            most = 1e-5 if got.itemsize > 2 else 1e-2  # of bfloat16
            numbers = got.astype(float), want.astype(float)
            close = np.isclose(*numbers, rtol=most, atol=1e-6, equal_nan=True)
            if not close.all():
                place = tuple(int(i) for i in np.argwhere(~close)[0])
                yield (
                    *rows({"wanted": want, "got": got}),
                    f"{(~close).sum()} of {close.size} differ, first {list(place)}: "
                    f"wanted {want[place]:g}, got {got[place]:g}",
                )
