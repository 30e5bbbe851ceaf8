"""What the arguments of attention must be: of arrays, and of PyTorch tensors alike."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kernels.machines import checks

MAX_HEAD_DIM = 256


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Everything about attention but its operands; hashable, so that jit can key on it."""

    causal: bool  # query i sees the keys 0 to i
    scale: float  # of the products
    window: tuple[int, int] | None = None  # query i sees the keys i - window[0] to i + window[1]
    soft_cap: float | None = None  # scores are soft_cap tanh(s / soft_cap)
    interpret: Any = None  # as the kernel's call takes it

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How many keys before and after its own place a query sees; None for all of them."""
        left, right = self.window or (None, None)
        return left, 0 if self.causal else right


def check_heads(
    q: Any, k: Any, v: Any, scale: Any, dtypes: Collection[str], grouped: bool = False
) -> float:
    """Refuse what no implementation takes, and unless `grouped` heads of k and v that are fewer
    than q's; the scale to use, D ** -0.5 for None."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.array(name, x, rank=4, dtypes=dtypes, like=("q", q))
        for axis, what in ((0, "batch"), (1, "heads"), (3, "head_dim")):
            if axis != 1 or not grouped:
                checks.same(f"{name}.shape[{axis}] ({what})", x.shape[axis], "q", q.shape[axis])
    if q.shape[1] % k.shape[1]:
        checks.fail("k.shape[1] (heads)", k.shape[1], f"a divisor of the {q.shape[1]} heads of q")
    checks.same("v.shape[1] (heads)", v.shape[1], "k", k.shape[1])
    checks.same("v.shape[2] (keys)", v.shape[2], "k", k.shape[2])
    if q.shape[3] > MAX_HEAD_DIM:
        checks.fail("q.shape[3] (head_dim)", q.shape[3], f"at most {MAX_HEAD_DIM}")
    return checks.finite("scale", scale, q.shape[3] ** -0.5)


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
    return checks.finite("scale", scale, head_dim**-0.5)


def check_window(window: Any) -> tuple[int, int] | None:
    """Keys before and after a query's place, of a pair or of one number for both."""
    pair = window if isinstance(window, (tuple, list)) else (window, window)
    whole = [isinstance(w, int) and not isinstance(w, bool) and w >= 0 for w in pair]
    if window is not None and whole != [True, True]:
        checks.fail("window", repr(window), "None, a whole number of at least 0, or a pair of them")
    return None if window is None else (pair[0], pair[1])


def check_segments(segment_ids: Any, q: Any, k: Any) -> tuple[Any, ...] | None:
    """int32 [B, N] of queries and keys alike; or that of queries and [B, M] of keys."""
    if segment_ids is None:
        return None
    several = isinstance(segment_ids, (tuple, list))
    ids = tuple(segment_ids) if several else (segment_ids,)
    if several and len(ids) != 2:
        checks.fail("segment_ids", f"{len(ids)} arrays", "None, an array, or those of q and of k")
    for place, (like, name) in enumerate(((q, "q"), (k, "k"))):
        argument = f"segment_ids[{place}]" if several else "segment_ids"
        checks.array(argument, ids[place * several], rank=2, dtypes=("int32",))
        shape = like.shape[0], like.shape[2]
        checks.same(f"{argument}.shape", tuple(ids[place * several].shape), name, shape)
    return ids


def check_soft_cap(soft_cap: Any) -> float | None:
    """None, or a finite number above 0."""
    if soft_cap is None:
        return None
    checks.positive("soft_cap", soft_cap)
    if soft_cap == math.inf:
        checks.fail("soft_cap", soft_cap, "None or a finite number above 0")
    return float(soft_cap)
