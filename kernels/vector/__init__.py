"""The first kernels: add two vectors, and count."""

from kernels.vector.operator import add_vectors, iota

__all__ = ["add_vectors", "iota"]
