"""The oracle: NumPy, in the precision of the argument."""

import numpy as np


def softmax(x):
    """[..., n] → [..., n], along the last axis."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(x - x.max(-1, keepdims=True))
        return raised / raised.sum(-1, keepdims=True)
