"""Brick padding: a border of bricks around an image, written in four frameworks."""

from kernels.padding.operator import brick_pad, floor

__all__ = ["brick_pad", "floor", "lattice", "levels", "numpy", "reference", "taichi", "torch"]
