"""The problems that nms is proven on: boxes as a detector gives them, and hostile ones."""

import numpy as np

from kernels.proof.workload import SIZES, Workload, Workloads

IMAGE = 640.0  # pixels: the side of the image in which boxes are drawn


def _boxes(centre, size):
    return np.concatenate([centre - size / 2, centre + size / 2], 1)


def _detections(n, rng):
    """About eight boxes around each object, as an untrained eye and a detector see it."""
    objects = max(1, n // 8)
    centre, size = rng.uniform(0, IMAGE, (objects, 2)), rng.lognormal(4, 0.5, (objects, 2))
    which = rng.integers(objects, size=n)
    moved = centre[which] + rng.normal(0, 0.15, (n, 2)) * size[which]
    return _boxes(moved, size[which] * rng.lognormal(0, 0.15, (n, 2))), rng.uniform(size=n)


def _disjoint(n, rng):
    corner = np.stack([np.arange(n) * 16.0, rng.uniform(0, IMAGE, n)], 1)
    return np.concatenate([corner, corner + rng.uniform(1, 15, (n, 2))], 1), rng.uniform(size=n)


def _chain(n, rng):
    """Each box overlaps the next by more than a half, and no other: every other one is kept."""
    left = np.arange(n) * 4.0 + rng.integers(100)
    boxes = np.stack([left, np.zeros(n), left + 14, np.full(n, 8.0)], 1)
    return boxes, np.arange(n, 0, -1)


def _ties(n, rng):
    boxes, _ = _detections(n, rng)
    return np.rint(boxes), rng.choice([-1.0, -0.0, 0.0, 1.0], n)


def _degenerate(n, rng):
    """Points, lines, inverted boxes, tiny ones, and some that are none of it."""
    corner = rng.integers(0, 8, (n, 2)).astype(float)
    size = rng.choice([-3.0, 0.0, 1e-3, 2.0, 3.0], (n, 2))
    return np.concatenate([corner, corner + size], 1), rng.uniform(size=n)


def _nonfinite(n, rng):
    boxes, scores = _detections(n, rng)
    odd = rng.choice([np.nan, np.inf, -np.inf, 1e30, 1.0], 5 * n, p=[0.03, 0.02, 0.02, 0.03, 0.9])
    return boxes * odd[n:].reshape(n, 4), np.where(odd[:n] == 1, scores, odd[:n])


KINDS = {
    "normal": _detections,
    "identical": lambda n, rng: (
        np.tile(_boxes(*rng.uniform(1, IMAGE, (2, 1, 2))), (n, 1)),
        rng.uniform(size=n),
    ),
    "disjoint": _disjoint,
    "chain": _chain,
    "ties": _ties,
    "degenerate": _degenerate,
    "nonfinite": _nonfinite,
}


def _make(workload, rng):
    boxes, scores = KINDS[workload.values](workload.sizes["n"], rng)
    with np.errstate(over="ignore"):
        return boxes.astype(workload.dtype), scores.astype(workload.dtype)


def _draw(rng):
    kind, threshold = rng.choice(list(KINDS)), float(rng.choice([0.0, 0.3, 0.5, 0.7, 1.0]))
    return _workload("random", int(rng.choice((0, *SIZES))), str(kind), threshold)


def _workload(name, n, values="normal", threshold=0.5, why=""):
    options = {"iou_threshold": threshold}
    return Workload(name, {"n": n}, values=values, options=options, why=why)


nms = Workloads(
    make=_make,
    draw=_draw,
    figures=tuple(
        _workload(f"n{n}", n, why="a figure of the chapter") for n in (256, 1024, 4096, 16384)
    ),
    named=(
        _workload("tiny", 8, why="one object"),
        _workload("none", 0, why="a detector that saw nothing"),
        _workload("one", 1, why="nobody to drop it"),
        _workload("prime", 509, why="no block divides it"),
        _workload("identical", 257, "identical", why="one box drops all others, across blocks"),
        _workload("disjoint", 200, "disjoint", why="nobody is dropped"),
        _workload("chain", 300, "chain", why="each would drop the next, were it not dropped"),
        _workload("ties", 257, "ties", why="equal scores: the lower index goes first"),
        _workload("degenerate", 300, "degenerate", 0.0, "points, lines, inverted boxes"),
        _workload("nonfinite", 300, "nonfinite", why="NaN scores come last; NaN boxes stay"),
    ),
)
