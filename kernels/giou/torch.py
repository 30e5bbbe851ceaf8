"""GIOU in PyTorch, gradients by its autograd."""

from kernels.machines.optional import require

EPSILON = 1e-5


def _area(sides):
    return sides[..., 0] * sides[..., 1]


def giou(preds, targets):
    """[B, N, 4], [B, N, 4] → [B, N]; tensors on any device, or arrays, which become tensors."""
    torch = require("torch", "GIOU in PyTorch")
    preds, targets = map(torch.as_tensor, (preds, targets))
    first, last = preds[..., :2], preds[..., 2:]  # left and top, right and bottom
    first_, last_ = targets[..., :2], targets[..., 2:]
    # Not clamp: at its bound its derivative is 1, and here a tie gives half to each.
    zero, epsilon = preds.new_zeros(()), preds.new_tensor(EPSILON)
    inter = _area((last.minimum(last_) - first.maximum(first_)).maximum(zero))
    enclosing = _area((last.maximum(last_) - first.minimum(first_)).maximum(zero))
    union = _area(last - first) + _area(last_ - first_) - inter
    union, enclosing = union.maximum(epsilon), enclosing.maximum(epsilon)
    # As (enclosing - union) / enclosing the derivative by enclosing would be a difference of ones.
    return inter / union - (1 - union / enclosing)
