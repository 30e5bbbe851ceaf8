"""A layer of experts: each token goes through the few that a router chooses for it."""

from kernels.experts.operator import experts

__all__ = ["experts"]
