"""Which shifts tile the plane with a rectangle, and what each row of the padded image is made of.

Copies of an h × w tile, moved by whole multiples of two vectors, cover every pixel once just where
the vectors span h · w pixels and the lattice's shortest horizontal vector is (w, 0), for rows of
bricks, or its shortest vertical one (0, h), for columns.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.checks import fail

Shift = tuple[int, int]


def normal_form(h: int, w: int, shift_x: Shift, shift_y: Shift) -> tuple[Shift, Shift]:
    """The same lattice as (w, 0), (step, h) with 0 ≤ step < w, or as (w, step), (0, h).

    The first is the Hermite normal form of the two vectors; the second that with x and y swapped.

    Args:
        h, w: rows and columns of the tile.
        shift_x, shift_y: two vectors of the lattice, (x, y) each.

    Returns:
        The two vectors of the one form or the other.

    Raises:
        ValueError: with the reason, where copies of the tile would overlap or leave gaps.
    """
    argument, value = "shift_x, shift_y", f"{tuple(shift_x)}, {tuple(shift_y)}"
    (a, b), (c, d) = shift_x, shift_y
    area = abs(a * d - b * c)
    if not area:
        fail(argument, f"{value}, which are parallel", "two vectors that span the plane")
    if area != h * w:
        fault = "gaps" if area > h * w else "overlaps"
        problem = f"{value}, which span {area} pixels and leave {fault}"
        fail(argument, problem, f"vectors that span h · w = {h * w} pixels")
    step, height = _smallest(a, b, c, d)
    if height == h:
        return (w, 0), (step % w, h)
    step, width = _smallest(b, a, d, c)
    if width == w:
        return (w, step % h), (0, h)
    problem = f"{value}, with which copies of the tile overlap"
    rows = f"a lattice whose shortest horizontal vector is ({w}, 0)"
    fail(argument, problem, f"{rows}, or whose shortest vertical one is (0, {h})")


def _smallest(a: int, b: int, c: int, d: int) -> Shift:
    """A vector of the lattice of (a, b) and (c, d) whose second coordinate is the least above 0."""
    while d:  # Euclid's algorithm on the second coordinates
        q = b // d
        a, b, c, d = c, d, a - q * c, b - q * d
    return (a, b) if b > 0 else (-a, -b)


@dataclass(frozen=True)
class BrickPlan:
    """How to fill an image: its rows are rows of `bricks`, rotated.

    All columns are counted in elements, C to a pixel.
    """

    # Of the image.
    height: int
    width: int
    # [h, n], for each of n bricks side by side the rows of the tile in it, or None for the tile
    # itself.
    bricks: np.ndarray | None
    # Rows and columns of the bricks, which repeat to the right for ever.
    h: int
    period: int
    up: int  # the tile's lowest row is this many rows above the image's
    left: int  # the brick's column at the image's left edge in the tile's own rows
    step: int  # so much less than `left` for each brick higher

    @property
    def farthest(self) -> int:
        """No row, and no column less the shift of its brick, is farther from the origin."""
        shifted = (self.height // self.h + 2) * abs(self.step)
        return max(self.height, self.width + abs(self.left) + shifted)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [height] twice: of each row of the image, from the top, the row of bricks, and the
        column that it begins at.
        """
        y = self.height - 1 - np.arange(self.height) - self.up
        v = y // self.h
        return self.h - 1 - (y - v * self.h), (self.left - v * self.step) % self.period

    def laid(self, tile: Any) -> Any:
        """[h, w], an array or a tensor → the bricks [h, period], contiguous."""
        if self.bricks is None:
            return tile
        if isinstance(tile, np.ndarray):
            return tile[self.bricks].reshape(self.h, self.period)
        import torch

        return tile[torch.from_numpy(self.bricks).to(tile.device)].reshape(self.h, self.period)


def plan(
    shape: tuple[int, ...], border: tuple[int, int], shift_x: Shift, shift_y: Shift
) -> BrickPlan:
    """The plan for a tile [h, w, …], with (rows, cols) to add on either side."""
    h, w, *more = shape
    channels = math.prod(more)
    rows, cols = border
    (_, climb), (step, _) = normal_form(h, w, shift_x, shift_y)
    height, width = h + 2 * rows, w + 2 * cols
    bricks, count, first = None, 1, 0
    if climb:  # columns of bricks: rows of several, of which each stands higher than the one before
        first = -cols // w
        count = min(h // math.gcd(h, climb), (width - 1) // w + 2)
        turned = np.arange(h)[:, None] + climb * (first + np.arange(count))
        bricks = turned % h
    return BrickPlan(
        height,
        width * channels,
        bricks,
        h,
        count * w * channels,
        rows,
        (-cols - first * w) % (count * w) * channels,
        step * channels,
    )
