"""The problems that GIOU is proven on."""

import numpy as np

from kernels.proof.workload import Workload, Workloads, cases, size

IMAGE = 256  # pixels a side, as in the published benchmark


def _corners(shape, rng):
    """Boxes that lie in the image; whole pixels, as the published ones."""
    start = rng.integers(0, IMAGE - 1, (*shape, 2))
    end = np.minimum(start + rng.integers(1, IMAGE, (*shape, 2)), IMAGE - 1)
    return np.concatenate([start, end], axis=-1).astype(np.float64)


def _degenerate(preds, targets, rng):
    """Points, lines, equal, nested, touching, disjoint and inverted boxes, wherever they fall."""
    kind = rng.integers(0, 8, preds.shape[:-1])
    point, line = preds[..., [0, 1, 0, 1]], preds[..., [0, 1, 0, 3]]
    # In the order of `kind`, from 0; the last leaves the pair as it is.
    pairs = (
        (point, point),
        (point, targets),
        (line, line),
        (preds, preds),
        (preds, preds[..., [2, 1, 2, 3]] + [0, 0, 8, 0]),  # side by side, sharing an edge
        (preds, preds + 2 * IMAGE),
        (preds[..., [2, 3, 0, 1]], targets),
    )
    for number, (p, t) in enumerate(pairs):
        here = (kind == number)[..., None]
        preds, targets = np.where(here, p, preds), np.where(here, t, targets)
    return preds, targets


def _make(workload, rng):
    shape = workload.sizes["b"], workload.sizes["n"]
    kind = workload.values
    preds, targets = _corners(shape, rng), _corners(shape, rng)
    if kind == "normal":
        preds, targets = (boxes + rng.random(boxes.shape) for boxes in (preds, targets))
        preds[..., 2:] += 1
        targets[..., 2:] += 1
    elif kind == "degenerate":
        preds, targets = _degenerate(preds, targets, rng)
    elif kind == "wide":
        scale = 2.0 ** rng.integers(-24, 25, (*shape, 1))
        preds, targets = preds * scale, targets * scale
    elif kind == "far":
        preds, targets = preds + 2.0**22, targets + 2.0**22
    elif kind == "nonfinite":
        for boxes in (preds, targets):
            where = rng.choice(boxes.size, min(3, boxes.size), replace=False)
            boxes.reshape(-1)[where] = (np.nan, np.inf, -np.inf)[: where.size]
    return preds.astype(np.float32), targets.astype(np.float32)


def _draw(rng):
    kind = str(rng.choice(["normal", "degenerate", "degenerate", "wide"]))
    return Workload("random", {"b": min(size(rng), 200), "n": size(rng)}, values=kind)


def _work(workload, gradient):
    """Two boxes of four float32 in, a score out; back, a cotangent in and two gradients out."""
    pairs = workload.sizes["b"] * workload.sizes["n"]
    return 0, 4 * (4 + 4 + 1) * (2 if gradient else 1) * pairs


giou = Workloads(
    make=_make,
    draw=_draw,
    work=_work,
    figures=cases("b n", published=(1024, 256, "the size of both published benchmarks")),
    named=(
        Workload("tiny", {"b": 2, "n": 8}, why="the chapter's first call"),
        Workload("one", {"b": 1, "n": 1}, why="one pair of boxes"),
        Workload("tile", {"b": 128, "n": 128}, why="one block of the published kernel"),
        Workload("image", {"b": 16, "n": 256}, why="a part of the published size"),
        Workload("ragged", {"b": 131, "n": 101}, why="primes: no block divides them"),
        Workload("long", {"b": 3, "n": 1025}, why="one box beyond a tile"),
        Workload("tall", {"b": 257, "n": 3}, why="many samples of few boxes"),
        Workload("partitions", {"b": 129, "n": 130}, why="one row beyond 128 partitions"),
        Workload("tcm", {"b": 9, "n": 343}, why="more boxes than a GpSimd core's memory holds"),
        Workload("degenerate", {"b": 33, "n": 128}, values="degenerate", why="boxes of no area"),
        Workload("wide", {"b": 17, "n": 100}, values="wide", why="boxes of 2⁻²⁴ to 2³² pixels"),
        Workload("far", {"b": 8, "n": 64}, values="far", why="small boxes far from the origin"),
        Workload("nonfinite", {"b": 8, "n": 128}, values="nonfinite", why="NaN stays in its pair"),
    ),
)
