"""What the arguments of attention must be: of arrays, and of PyTorch tensors alike."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kernels.machines import checks

MAX_HEAD_DIM = 256


@dataclass(frozen=True)
class AttentionSpec:
    """Everything about attention but its operands; hashable, so that jit can key on it."""

    causal: bool  # query i sees the keys 0 to i
    scale: float  # of the products
    interpret: Any  # as the kernel's call takes it


def check_heads(q: Any, k: Any, v: Any, scale: Any, dtypes: Collection[str]) -> float:
    """Refuse what no implementation takes; the scale to use, D ** -0.5 for None."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.array(name, x, rank=4, dtypes=dtypes)
        checks.same(f"{name}.dtype", str(x.dtype), "q", str(q.dtype))
        for axis, what in ((0, "batch"), (1, "heads"), (3, "head_dim")):
            checks.same(f"{name}.shape[{axis}] ({what})", x.shape[axis], "q", q.shape[axis])
    checks.same("v.shape[2] (keys)", v.shape[2], "k", k.shape[2])
    if q.shape[3] > MAX_HEAD_DIM:
        checks.fail("q.shape[3] (head_dim)", q.shape[3], f"at most {MAX_HEAD_DIM}")
    return _scale(scale, q.shape[3])


def check_packed(qkv: Any, num_heads: Any, scale: Any, dtypes: Collection[str]) -> float:
    """The same for q, k and v in one array."""
    checks.array("qkv", qkv, rank=3, dtypes=dtypes)
    checks.positive_int("num_heads", num_heads)
    head_dim = qkv.shape[2] // (3 * num_heads)  # not divmod: torch.compile cannot trace it
    if qkv.shape[2] % (3 * num_heads):
        checks.fail(
            "qkv.shape[2]", qkv.shape[2], f"a multiple of 3 × {num_heads} (q, k and v of all heads)"
        )
    if head_dim > MAX_HEAD_DIM:
        checks.fail("qkv.shape[2]", qkv.shape[2], f"at most 3 × {num_heads} × {MAX_HEAD_DIM}")
    return _scale(scale, head_dim)


def _scale(scale: Any, head_dim: int) -> float:
    if scale is None:
        return head_dim**-0.5
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not (number and -math.inf < scale < math.inf):  # torch.compile cannot trace isfinite
        checks.fail("scale", repr(scale), "None or a finite number")
    return float(scale)
