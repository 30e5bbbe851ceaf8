"""Arrays for the tests of single names, by the parameters of their kernels, and formulas."""

import inspect

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 48)).astype(np.float32)
Y = RNG.standard_normal((64, 48)).astype(np.float32)
COLUMN = RNG.standard_normal((64, 1)).astype(np.float32)
WHOLE = RNG.integers(-1000, 1000, (64, 48)).astype(np.int32)
TRUTH = RNG.integers(0, 2, (64, 48)).astype(np.uint8)
PLACES = RNG.integers(0, 48, (64, 48)).astype(np.uint32)
SEGMENTS = np.array([[1, 1, 2, 0, 3, 3]], np.float32)
TILES = {"a": X, "b": Y, "c": COLUMN, "p": TRUTH, "places": PLACES, "segments": SEGMENTS}
TILES |= {"positive": np.abs(X), "whole": WHOLE.astype(np.float32)}


def tiles(body):
    """The arrays that body(dst, a, …) is run on."""
    return [TILES[name] for name in inspect.signature(body).parameters if name != "dst"]


def half(x):
    return np.asarray(0.5, x.dtype)


def scanned(x, y):
    state, columns = np.zeros(len(x), x.dtype), []
    for i in range(x.shape[1]):
        state = x[:, i] * state + y[:, i]
        columns.append(state)
    return np.stack(columns, 1)


def largest_first(x):
    return -np.sort(-x, 1)[:, :8]


def triangle(x):
    return np.where(np.arange(64)[:, None] >= np.arange(48), x, -1)


def sums(x):
    return x.sum(1, keepdims=True)


def magnitude_of_scan(x, y):
    return scanned(np.abs(x), np.abs(y))


def moments(x):
    return np.stack([x.mean(1), x.var(1)], 1)


def taken(x, places):
    return np.take_along_axis(x, places.astype(int), 1)
