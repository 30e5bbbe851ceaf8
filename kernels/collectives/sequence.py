"""Ring attention: the tokens of one sequence lie on several devices."""

import math
from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.backends.xla_mesh import XLA_MESH
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator

MAX_HEAD_DIM = 256


def ring_attention(
    q: Any,
    k: Any,
    v: Any,
    axis_name: str,
    *,
    causal: bool = False,
    scale: float | None = None,
    implementation: str = "pallas",
    block: int | None = None,
    interpret: Any = None,
) -> Any:
    """softmax(scale q kᵀ) v of a sequence whose tokens lie on the devices along an axis of a mesh.

    Called inside jax.shard_map with check_vma=False. Each device keeps its queries, and the keys
    and values of all go round. Without causal, the order of the tokens does not matter. With it,
    each device holds a piece of the front and one of the back, or else the last would have the most
    to do: of n devices, device i has pieces i and 2n − 1 − i of the 2n equal ones, as
    kernels.collectives.zigzag cuts them, of the whole arrays, before PartitionSpec does.

    Args:
        q, k, v: [B, H, N, D], N tokens of this device; float32 or bfloat16, all the same shape and
            dtype; D at most 256; no dimension may be zero.
        axis_name: of the mesh, one name.
        causal: query i sees the keys 0 to i of the whole sequence; N has to be even.
        scale: of the products; None is D ** -0.5.
        implementation: "pallas" (by remote DMA, half of the heads round each way, beside the
            products of what is here; TPU), "gathered" (the all_gather of k and v, and then the
            attention of this package; not causal; TPU) or "xla" (jax.lax.ppermute, and the formula
            of some queries at a time).
        block: of "pallas": tokens in VMEM at a time, a multiple of 128; None is 1024.
        interpret: None interprets where there is no TPU.

    Returns:
        [B, H, N, D] in q's dtype, of this device's queries; sums are float32. Differentiable in q,
        k and v: in one ring k and v travel again and dq stays, in another q travels, and dk and dv
        stay.

    Raises:
        ValueError: for another rank, shape, dtype, scale, block or implementation, for an odd N
            with causal, and outside of such an axis.

    Source:
        Liu, Zaharia and Abbeel, Ring attention with blockwise transformers, 2023.
    """
    chosen = RING_ATTENTION[implementation]
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.array(name, x, rank=4, like=("q", q))
        checks.same(f"{name}.shape", tuple(x.shape), "q", tuple(q.shape))
    tokens, head_dim = q.shape[2:]
    if head_dim > MAX_HEAD_DIM:
        checks.fail("q.shape[3] (head_dim)", head_dim, f"at most {MAX_HEAD_DIM}")
    checks.one_of("causal", causal, (False, True))
    if causal and tokens % 2:
        checks.fail(
            "q.shape[2] (tokens)", tokens, "an even number: a causal part is two pieces (zigzag)"
        )
    scale = checks.finite("scale", scale, head_dim**-0.5)
    if block is not None and (not isinstance(block, int) or block < 1 or block % 128):
        checks.fail("block", repr(block), "None or a multiple of 128")
    devices_along(axis_name, several=False)
    options = {"causal": bool(causal), "scale": scale, "block": block}
    return chosen(q, k, v, axis_name, interpret=interpret, **options)


def devices_along(axis_name: Any, *, several: bool = True) -> int:
    """How many devices there are along an axis, or several; ValueError for what is none."""
    import jax

    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    try:
        if several or names is not axis_name:
            return math.prod(jax.lax.axis_size(name) for name in names)
    except NameError:
        pass
    accepted = f"{'an' if several else 'one'} axis of the mesh, inside jax.shard_map"
    checks.fail("axis_name", repr(axis_name), accepted)


def zigzag(x: Any, devices: int, *, axis: int = 2, back: bool = False) -> Any:
    """The order of a sequence in which equal parts are what causal ring attention wants.

    Of 2 · devices equal pieces, part i then is pieces i and 2 · devices − 1 − i: the devices have
    equal work, since what the front does not see, the back does.

    Args:
        x: the whole array.
        devices: how many parts it will be cut into.
        axis: of the tokens.
        back: from that order to the sequence's own.

    Returns:
        An array of x's shape and dtype.

    Raises:
        ValueError: for a number of tokens that 2 · devices does not divide.
    """
    checks.positive_int("devices", devices)
    pieces, shape = 2 * devices, x.shape
    if shape[axis] % pieces:
        accepted = f"a multiple of {pieces}, two pieces for each device"
        checks.fail(f"x.shape[{axis}]", shape[axis], accepted)
    order = np.arange(pieces).reshape(2, devices)
    order[1] = order[1, ::-1]
    order = np.argsort(order.T.ravel()) if back else order.T.ravel()
    tokens = np.arange(shape[axis]).reshape(pieces, -1)[order].ravel()
    return x.__array_namespace__().take(x, tokens, axis=axis)


RING_ATTENTION = Operator(
    ring_attention,
    summary="attention of a sequence that lies on several devices",
    chapter="collective_matmul",
    differentiable=("q", "k", "v"),
    implementations=(
        Implementation("xla", XLA_MESH, "xla:ring_attention", lacks=OWN_BLOCKS),
        Implementation(
            "gathered",
            PALLAS_TPU_MESH,
            "pallas:gathered_attention",
            rungs=("interpret", "compile"),  # of two kernels that are simulated by themselves
            accepts=lambda workload: not workload.options.get("causal"),
            lacks={"causal": "masks nothing"} | OWN_BLOCKS,
        ),
        Implementation("pallas", PALLAS_TPU_MESH, "ring_passes:ring_attention"),
    ),
)
