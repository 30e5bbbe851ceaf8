"""The convolution in NumPy: one shifted product a lag, in float64, rounded once at the end."""

import numpy as np


def depthwise_conv(w, k, eps):
    """[C, T], [B, C, T] → [B, C, T]; arrays, or tensors on a CPU."""
    wide, rows = (np.asarray(x, np.float64) for x in (w, k))
    steps = rows.shape[-1]
    out = np.full(rows.shape, float(eps))
    with np.errstate(invalid="ignore", over="ignore"):
        for lag in range(steps):
            out[..., lag:] += wide[:, steps - 1 - lag, None] * rows[..., : steps - lag]
        return out.astype(np.dtype(str(k.dtype).removeprefix("torch.")))
