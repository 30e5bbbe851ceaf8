"""A layer of experts: each token goes through the few that a router chooses for it."""

from typing import Any

from kernels.machines import checks
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator


def experts(
    x: Any,
    router: Any,
    gate: Any,
    up: Any,
    down: Any,
    *,
    top_k: int,
    implementation: str = "pallas",
    interpret: Any = None,
) -> Any:
    """Send each token through top_k of E experts, gated by silu, and add up what they give.

    The logits x router are taken in float32, and the top_k largest choose; of equal ones the expert
    of the lower number. A token's weights are the softmax over its chosen logits, which is the
    softmax over all of them, normalised to add up to 1 over the chosen. No token is dropped.

    Args:
        x: [T, D], float32 or bfloat16; no dimension may be zero.
        router: [D, E], x's dtype, as the others.
        gate, up: [E, D, F].
        down: [E, F, D].
        top_k: experts of a token, 1 to E.
        implementation: "pallas" (tokens sorted by expert, products by grouped_matmul's kernel),
            "xla_ragged" (the same by jax.lax.ragged_dot) or "xla" (every expert for every token).
        interpret: None interprets where there is no TPU.

    Returns:
        [T, D] in x's dtype: Σ weight · (silu(x gate) · (x up)) down over the chosen experts. Sums
        are float32; each product, and what stands between two, is rounded to x's dtype.
        Differentiable in all arrays; the choice itself has no gradient.

    Raises:
        ValueError: for another rank, dtype, size, top_k or implementation.
    """
    chosen = EXPERTS[implementation]
    checks.array("x", x, rank=2)
    checks.array("router", router, rank=2, like=("x", x))
    features, number = x.shape[1], router.shape[1]
    for name, array in (("gate", gate), ("up", up), ("down", down)):
        checks.array(name, array, rank=3, like=("x", x))
    width = gate.shape[2]
    for name, array, shape in (
        ("router", router, (features, number)),
        ("gate", gate, (number, features, width)),
        ("up", up, (number, features, width)),
        ("down", down, (number, width, features)),
    ):
        checks.same(f"{name}.shape", tuple(array.shape), "x, router and gate together", shape)
    checks.positive_int("top_k", top_k)
    if top_k > number:
        checks.fail("top_k", top_k, f"at most {number}, the experts that there are")
    return chosen(x, router, gate, up, down, top_k=top_k, interpret=interpret)


EXPERTS = Operator(
    experts,
    summary="each token through the few experts that a router chooses",
    chapter="experts",
    differentiable=("x", "router", "gate", "up", "down"),
    implementations=(
        Implementation("xla", XLA, "layer:dense"),
        Implementation("xla_ragged", XLA, "layer:ragged"),
        Implementation("pallas", PALLAS_TPU, "layer:by_kernel"),
    ),
)
