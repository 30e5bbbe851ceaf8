"""Figures: records of what was measured, estimated or published, and the tables made of them."""

from kernels.bench.records import Record, read, write

__all__ = ["Record", "read", "write"]
