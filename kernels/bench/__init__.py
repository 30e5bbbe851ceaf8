"""Figures: records of what was measured, estimated or published, and the tables made of them."""

from kernels.bench.records import Record, read, write
from kernels.bench.report import compare

__all__ = ["Record", "compare", "read", "write"]
