"""Operators over several chips: each device calls them with its part, inside jax.shard_map."""

import functools
from typing import Any

from kernels.collectives.sequence import RING_ATTENTION as RING_ATTENTION  # the catalog's
from kernels.collectives.sequence import devices_along
from kernels.machines import checks
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.backends.xla_mesh import XLA_MESH
from kernels.proof.contract import Implementation, Operator


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
    checks.array("x", x, rank=2)
    devices_along(axis_name)
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
    checks.array("x", x, rank=2)
    _shares(x, axis_name)
    return chosen(x, axis_name, interpret=interpret)


def all_to_all(
    x: Any, sizes: Any, axis_name: Any, *, implementation: str = "pallas", interpret: Any = None
) -> Any:
    """The first rows of a block for each device to that device: groups of any lengths.

    Called inside jax.shard_map with check_vma=False. Only whole tiles that hold such rows are sent,
    so blocks may be as long as the longest group that can be. tpu.estimate takes each message to
    have a link of its own, also between chips that are no neighbours: it is a lower bound.

    Args:
        x: [devices, rows, columns], block d for device d; float32 or bfloat16; no dimension may be
            zero.
        sizes: int32 [devices], rows of each block that are sent: 0 to `rows`, to which others are
            clipped.
        axis_name: of the mesh, one name.
        implementation: "pallas" (by remote DMA straight to each device, TPU) or "xla"
            (jax.lax.all_to_all of whole blocks).
        interpret: None interprets where there is no TPU.

    Returns:
        [devices, rows, columns] in x's dtype: row d is what device d sent here, every bit as it
        was, and zeros after it. Differentiable in x: the cotangents go back the same way.

    Raises:
        ValueError: for another rank, dtype, size or implementation, and outside of such an axis.
    """
    chosen = ALL_TO_ALL[implementation]
    checks.array("x", x, rank=3)
    checks.array("sizes", sizes, rank=1, dtypes=("int32",))
    devices = devices_along(axis_name, several=False)
    checks.same("x.shape[0]", x.shape[0], "the devices along the axis", devices)
    checks.same("sizes.shape[0]", sizes.shape[0], "the devices along the axis", devices)
    return chosen(x, sizes, axis_name, interpret=interpret)


def all_gather_matmul(
    x: Any, w: Any, axis_name: Any, *, implementation: str = "pallas", interpret: Any = None
) -> Any:
    """The parts of all devices along an axis, one below the other, times this device's w.

    Called inside jax.shard_map with check_vma=False. While rows are multiplied, the next ones come
    from the neighbours. Over several axes that holds for the first; the others' are gathered
    before.

    Args:
        x: [rows, k], this device's; float32 or bfloat16; no dimension may be zero.
        w: [k, columns], this device's; x's dtype.
        axis_name: of the mesh, or a tuple of names.
        implementation: "pallas" (a ring by remote DMA, in both directions of three devices or more,
            TPU) or "xla" (jax.lax.all_gather and a product).
        interpret: None interprets where there is no TPU.

    Returns:
        [devices · rows, columns] in x's dtype, added up in float32. Differentiable in both: the
        gradient of x is a matmul_reduce_scatter, for that of w the rows are gathered again.

    Raises:
        ValueError: for another rank, dtype, size or implementation, outside of such an axis, and
            where VMEM does not hold a few rows with all of k.
    """
    chosen = ALL_GATHER_MATMUL[implementation]
    _factors(x, w)
    devices_along(axis_name)
    return chosen(x, w, axis_name, interpret=interpret)


def matmul_reduce_scatter(
    x: Any, w: Any, axis_name: Any, *, implementation: str = "pallas", interpret: Any = None
) -> Any:
    """The sum of the products of all devices along an axis, of which each gets its rows.

    Called inside jax.shard_map with check_vma=False. While rows are multiplied, the sums of those
    before travel on, in float32. Over several axes that holds for the first; over the others the
    sums are scattered after.

    Args:
        x: [devices · rows, k] of this device; float32 or bfloat16; no dimension may be zero.
        w: [k, columns], this device's; x's dtype.
        axis_name: of the mesh, or a tuple of names.
        implementation: "pallas" (a ring by remote DMA, in both directions of three devices or more,
            TPU) or "xla" (a product and jax.lax.psum_scatter).
        interpret: None interprets where there is no TPU.

    Returns:
        [rows, columns] in x's dtype, added up in float32. Differentiable in both: the gradient of x
        is an all_gather_matmul, for that of w the cotangents are gathered.

    Raises:
        ValueError: for another rank, dtype, size or implementation, for rows that the devices do
            not divide, outside of such an axis, and where VMEM does not hold a few rows with all of
            k and of the columns' sums.
    """
    chosen = MATMUL_REDUCE_SCATTER[implementation]
    _factors(x, w)
    _shares(x, axis_name)
    return chosen(x, w, axis_name, interpret=interpret)


def _factors(x: Any, w: Any) -> None:
    """ValueError for what cannot be multiplied."""
    checks.array("x", x, rank=2)
    checks.array("w", w, rank=2, like=("x", x))
    checks.same("w.shape[0]", w.shape[0], "x.shape[1]", x.shape[1])


def _shares(x: Any, axis_name: Any) -> None:
    """ValueError for rows that the devices do not divide."""
    if x.shape[0] % (devices := devices_along(axis_name)):
        accepted = f"a multiple of {devices}, the devices along the axis"
        checks.fail("x.shape[0]", x.shape[0], accepted)


def _implementations(name: str, one_way: bool = False) -> tuple[Implementation, ...]:
    ring = Implementation("ring", PALLAS_TPU_MESH, f"pallas:{name}_one_way")
    return (
        Implementation("xla", XLA_MESH, f"xla:{name}"),
        *[ring] * one_way,
        Implementation("pallas", PALLAS_TPU_MESH, f"pallas:{name}"),
    )


_moved = functools.partial(Operator, chapter="rings", differentiable=("x",), linear=True)
_multiplied = functools.partial(
    Operator, chapter="collective_matmul", differentiable=("x", "w"), linear=True
)
ALL_GATHER = _moved(
    all_gather,
    summary="the parts of all devices, on each of them",
    implementations=_implementations("all_gather", one_way=True),
)
REDUCE_SCATTER = _moved(
    reduce_scatter,
    summary="the sum over all devices, a part of it on each",
    implementations=_implementations("reduce_scatter", one_way=True),
)
ALL_TO_ALL = _moved(
    all_to_all,
    summary="rows from each device to each other one, as many as there are",
    chapter="sharding",
    implementations=(
        Implementation("xla", XLA_MESH, "xla:all_to_all"),
        Implementation("pallas", PALLAS_TPU_MESH, "exchange:all_to_all"),
    ),
)
ALL_GATHER_MATMUL = _multiplied(
    all_gather_matmul,
    summary="the parts of all devices, times a matrix on each",
    implementations=_implementations("all_gather_matmul"),
)
MATMUL_REDUCE_SCATTER = _multiplied(
    matmul_reduce_scatter,
    summary="the sum over all devices of their products, a part of it on each",
    implementations=_implementations("matmul_reduce_scatter"),
)
