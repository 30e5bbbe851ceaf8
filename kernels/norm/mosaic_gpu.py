"""RMS norm and layer norm for a Hopper GPU, through Mosaic GPU; backward they are XLA's.

Between the two, no statistic is kept: XLA reads x anyway, and makes each again.
"""

import jax

from kernels.machines.gpu.row_kernel import along_rows
from kernels.norm import xla


def _rms(n, eps):
    def compute(keep, x, weight):  # behind the row's end stand zeros
        return x * jax.lax.rsqrt((x * x).sum() / n + eps) * weight

    return compute


def _layer(n, eps):
    def compute(keep, x, weight, bias):
        mean = x.sum() / n
        mean += keep(x - mean).sum() / n  # what that sum rounded off is large where x hardly varies
        x = keep(x - mean)
        return x * jax.lax.rsqrt((x * x).sum() / n + eps) * weight + bias

    return compute


def rms_norm(x, weight, *, eps, interpret=None):
    """[..., n], [n] → [..., n]; rows of at most LONGEST_ROW bytes."""
    return along_rows(_rms, xla.rms_norm, x, weight, eps=float(eps), interpret=interpret)


def layer_norm(x, weight, bias, *, eps, interpret=None):
    """[..., n], [n], [n] → [..., n]; rows of at most LONGEST_ROW bytes."""
    return along_rows(_layer, xla.layer_norm, x, weight, bias, eps=float(eps), interpret=interpret)
