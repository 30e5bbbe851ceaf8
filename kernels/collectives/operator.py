"""Operators over several chips: each device calls them with its part, inside jax.shard_map."""

import math
from typing import Any

from kernels.collectives.sequence import RING_ATTENTION as RING_ATTENTION  # the catalog's
from kernels.machines import checks
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.backends.xla_mesh import XLA_MESH
from kernels.proof.contract import Implementation, Operator

DTYPES = ("float32", "bfloat16")


def all_gather(
    x: Any, axis_name: Any, *, implementation: str = "pallas", interpret: Any = None
) -> Any:
    """The parts of all devices along an axis of the mesh, one below the other, on each of them.

    Called inside jax.shard_map with check_vma=False. Over several axes, those after the first are
    gathered first, so that the rows stand as PartitionSpec((first, second)) cuts them.

    Args:
        x: [rows, columns], this device's; float32 or bfloat16; no dimension may be zero.
        axis_name: of the mesh, or a tuple of names.
        implementation: "pallas" (rings in both directions by remote DMA, TPU), "ring" (one
            direction) or "xla" (jax.lax.all_gather).
        interpret: None interprets where there is no TPU.

    Returns:
        [devices · rows, columns] in x's dtype, every bit as it was. Differentiable in x: the
        gradient is the reduce_scatter of the cotangents.

    Raises:
        ValueError: for another rank, dtype or implementation, and outside of such an axis.
    """
    chosen = ALL_GATHER[implementation]
    checks.array("x", x, rank=2, dtypes=DTYPES)
    _devices(axis_name)
    return chosen(x, axis_name, interpret=interpret)


def reduce_scatter(
    x: Any, axis_name: Any, *, implementation: str = "pallas", interpret: Any = None
) -> Any:
    """The sum over all devices along an axis of the mesh, of which each device gets its rows.

    Called inside jax.shard_map with check_vma=False. Sums are float32 on their way, so that a ring
    of many devices rounds once; of bfloat16 twice as many bytes are sent.

    Args:
        x: [devices · rows, columns] of this device; float32 or bfloat16; no dimension may be zero.
        axis_name: of the mesh, or a tuple of names.
        implementation: "pallas" (rings in both directions by remote DMA, TPU), "ring" (one
            direction) or "xla" (jax.lax.psum_scatter).
        interpret: None interprets where there is no TPU.

    Returns:
        [rows, columns] in x's dtype. Differentiable in x: the gradient is the all_gather of the
        cotangents.

    Raises:
        ValueError: for another rank, dtype or implementation, for rows that the devices do not
            divide, and outside of such an axis.
    """
    chosen = REDUCE_SCATTER[implementation]
    checks.array("x", x, rank=2, dtypes=DTYPES)
    if x.shape[0] % (devices := _devices(axis_name)):
        checks.fail(
            "x.shape[0]", x.shape[0], f"a multiple of {devices}, the devices along the axis"
        )
    return chosen(x, axis_name, interpret=interpret)


def _devices(axis_name: Any) -> int:
    """How many devices there are along one or several axes."""
    import jax

    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    try:
        return math.prod(jax.lax.axis_size(name) for name in names)
    except NameError:
        checks.fail("axis_name", repr(axis_name), "an axis of the mesh, inside jax.shard_map")


def _implementations(name: str) -> tuple[Implementation, ...]:
    return (
        Implementation("xla", XLA_MESH, f"xla:{name}"),
        Implementation("ring", PALLAS_TPU_MESH, f"pallas:{name}_one_way"),
        Implementation("pallas", PALLAS_TPU_MESH, f"pallas:{name}"),
    )


ALL_GATHER = Operator(
    all_gather,
    summary="the parts of all devices, on each of them",
    differentiable=("x",),
    implementations=_implementations("all_gather"),
)
REDUCE_SCATTER = Operator(
    reduce_scatter,
    summary="the sum over all devices, a part of it on each",
    differentiable=("x",),
    implementations=_implementations("reduce_scatter"),
)
