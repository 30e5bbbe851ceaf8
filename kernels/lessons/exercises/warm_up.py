"""Puzzles of five minutes: what is wrong with an answer, wanted beside got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl

from kernels.machines.checks import brief, fail

SHOWN = 64  # elements of an array that is shown whole


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
        kernel = pl.pallas_call(answer, **({"out_shape": like, "interpret": True} | options))
        try:
            results = jax.tree.leaves((kernel if call else answer)(*tried))
            shapes = [[np.shape(a) for a in some] for some in (results, wanted)]
            if shapes[0] != shapes[1]:
                fail("shapes", shapes[0], f"{shapes[1]}")
        except Exception as error:  # whatever a wrong program raises
            yield (brief(error),)
            return
        for want, got in zip(wanted, map(np.asarray, results), strict=True):
            most = 1e-5 if got.itemsize > 2 else 1e-2  # of bfloat16
            numbers = got.astype(float), want.astype(float)
            close = np.isclose(*numbers, rtol=most, atol=1e-6, equal_nan=True)
            if not close.all():
                pairs = (("wanted", want), ("got", got)) if want.size <= SHOWN else ()
                place = tuple(int(i) for i in np.argwhere(~close)[0])
                yield (
                    *(f"{n:<7}{np.array2string(a, prefix=' ' * 7, precision=3)}" for n, a in pairs),
                    f"{(~close).sum()} of {close.size} differ, first {list(place)}: "
                    f"wanted {want[place]:g}, got {got[place]:g}",
                )
