"""NumPy arrays, torch tensors and JAX arrays, each brought to where an implementation works.

Padding moves elements and computes nothing. So an implementation gets their bits, as integers of
the same width: every dtype, NaNs with their payload, and no kernel compiled twice for two dtypes.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from kernels.machines import checks, taichi
from kernels.machines.optional import require
from kernels.padding.lattice import BrickPlan


def check(tile: Any, dtypes: Collection[str]) -> str:
    """What a tile is, "numpy", "torch" or "jax"; refuse others, and those that want gradients."""
    if not (hasattr(tile, "shape") and hasattr(tile, "dtype")):
        checks.fail("tile", f"a {type(tile).__name__}", "an array [h, w] or [h, w, C]")
    shape = tuple(tile.shape)
    if len(shape) not in (2, 3) or 0 in shape:
        checks.fail("tile.shape", shape, "[h, w] or [h, w, C], each at least 1")
    checks.one_of("tile.dtype", str(tile.dtype).removeprefix("torch."), dtypes)
    if isinstance(tile, np.ndarray):
        return "numpy"
    if not hasattr(tile, "requires_grad"):
        return "jax"
    if tile.requires_grad:
        checks.fail("tile.requires_grad", True, "False: brick_pad has no gradient")
    if str(tile.device) not in ("cpu", "cuda:0"):
        checks.fail("tile.device", tile.device, "cpu, cuda:0")
    return "torch"


def check_out(out: Any, tile: Any, kind: str, shape: tuple[int, ...], implementation: str) -> None:
    """Refuse an `out` that cannot be written to in place of a new array.

    JAX writes to no array that it gets. Kind, shape, dtype and device have to be the result's, the
    memory contiguous, to be written to, and not the tile's.
    """
    if kind == "jax" or implementation == "jax":
        checks.fail("out", f"a {type(out).__name__}", "None: JAX writes to no array it is given")
    if not isinstance(out, type(tile)):
        checks.fail("out", f"a {type(out).__name__}", f"a {type(tile).__name__}, as the tile is")
    checks.same("out.shape", tuple(out.shape), "the result", shape)
    checks.same("out.dtype", out.dtype, "the tile", tile.dtype)
    if kind == "numpy":
        contiguous, writable = out.flags.c_contiguous, out.flags.writeable
        shared = np.may_share_memory(out, tile)
    else:
        checks.same("out.device", out.device, "the tile", tile.device)
        contiguous, writable = out.is_contiguous(), not out.requires_grad
        shared = out.untyped_storage().data_ptr() == tile.untyped_storage().data_ptr()
    for fault, wrong in (
        ("not contiguous", not contiguous),
        ("not to be written to", not writable),
        ("in the tile's memory", shared),
    ):
        if wrong:
            checks.fail("out", fault, "contiguous memory of its own")


def bits(array: Any) -> Any:
    """[n, …] → [n, m] integers of the same width; the same memory, if that is contiguous."""
    if isinstance(array, np.ndarray):
        array = np.ascontiguousarray(array)
        return array.reshape(len(array), -1).view(f"int{8 * array.itemsize}")
    torch = require("torch", "tensors")
    integer = getattr(torch, f"int{8 * array.element_size()}")
    return array.contiguous().view(len(array), -1).view(integer)


def through_bits(
    tile: Any,
    kind: str,
    shape: tuple[int, ...],
    plan: BrickPlan,
    out: Any,
    function: Callable[[Any, BrickPlan, Any], Any],
    works_on: str,
) -> Any:
    """Call function(tile_bits, plan, out_bits) on the bits of any array; the result is of the kind
    of the tile, which `check` says.

    The function works on "numpy" or "torch" alone, or on "either": tensors where the tile is on a
    GPU, and NumPy arrays otherwise.
    """
    if kind == "jax":
        jax = require("jax", "JAX arrays")
        if isinstance(tile, jax.core.Tracer):
            checks.fail("tile", "traced by JAX", "a concrete array, or implementation='jax'")
        padded = through_bits(np.asarray(tile), "numpy", shape, plan, None, function, works_on)
        return jax.numpy.asarray(padded)
    out = taichi.empty(shape, tile) if out is None else out
    tile_bits, out_bits = bits(tile), bits(out)
    if kind == "torch" and tile.device.type != "cpu":
        if works_on == "numpy":
            checks.fail("tile.device", tile.device, "cpu, for implementation='numpy'")
    elif works_on == "torch":
        torch = require("torch", "brick padding in PyTorch")
        if kind == "numpy":
            tile_bits, out_bits = (
                torch.from_numpy(array if array.flags.writeable else array.copy())
                for array in (tile_bits, out_bits)
            )
    elif kind == "torch":
        tile_bits, out_bits = tile_bits.numpy(), out_bits.numpy()
    function(tile_bits, plan, out_bits)
    return out


def through_jax(
    tile: Any, kind: str, shape: tuple[int, ...], planned: Callable[[int], BrickPlan]
) -> Any:
    """The gather of jax.py on JAX arrays, traced or not, and on the bits of others on the CPU.

    Eight bytes go as two numbers of four, for JAX narrows what is wider unless it is told to;
    planned(parts) gives the plan for a tile whose elements are cut into so many.
    """
    from kernels.padding.jax import brick_pad

    if kind == "jax":
        return brick_pad(tile.reshape(len(tile), -1), planned(1)).reshape(shape)
    if kind == "torch" and tile.device.type != "cpu":
        checks.fail("tile.device", tile.device, "cpu, for implementation='jax'")
    narrow = bits(tile) if kind == "numpy" else bits(tile).numpy()
    parts = max(1, narrow.itemsize // 4)
    narrow = narrow.view(f"int{8 * min(4, narrow.itemsize)}")
    padded = np.array(brick_pad(narrow, planned(parts)))
    if kind == "numpy":
        return padded.view(tile.dtype).reshape(shape)
    return require("torch", "tensors").from_numpy(padded).view(tile.dtype).view(shape)
