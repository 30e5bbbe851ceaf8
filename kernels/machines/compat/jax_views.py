"""Views by `ref.reshape` and `ref.bitcast`, which JAX's simulation of a TPU does not know, and
masked swaps, which it refuses where a later dimension is shorter than the first: as boxes of the
memory. And empty parts, which it refuses at a memory's end, and waits for nothing, at which its
watch for races fails.

Private: get, store, swap, to_range, _slices_overlap and the shared memory (Semaphore too) of
`jax._src.pallas.mosaic.interpret`, NDIndexer, ReshapeTransform, BitcastTransform. Seen in JAX
0.10.2 and, but for empty parts, in 0.12.0.1.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from kernels.machines.compat.jax_devices import line_of


@contextlib.contextmanager
def taught() -> Iterator[None]:
    """Within it the simulation reads, writes and copies through views."""
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as simulation
    from jax._src.pallas.mosaic.interpret import race_detection_state as watch
    from jax._src.pallas.mosaic.interpret.shared_memory import Semaphore

    utils = simulation.interpret_utils
    to_range: Any = utils.to_range
    overlap: Any = getattr(watch, "_slices_overlap", None)

    def nothing(cut: Any) -> bool:
        return isinstance(cut, slice) and cut.start is not None and cut.start == cut.stop

    def ranges(steps: Any) -> tuple[Any, ...]:
        # An empty part that begins where its memory ends is within it, and overlaps no other.
        return tuple(slice(0, 0, cut.step) if nothing(cut) else cut for cut in to_range(steps))

    # To wait for nothing orders nothing.
    wait: Any = Semaphore.wait
    waited = lambda semaphore, value, *more, **by: value and wait(semaphore, value, *more, **by)
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(utils, "to_range", ranges))
        patches.enter_context(mock.patch.object(Semaphore, "wait", waited))
        apart = lambda *cuts: not any(map(nothing, cuts)) and overlap(*cuts)
        patches.enter_context(mock.patch.object(watch, "_slices_overlap", apart, create=True))
        for name in ("get", "store", "swap"):
            access = getattr(simulation, name).__wrapped__
            viewed = simulation.fail_on_exception(_viewed(simulation, access))
            patches.enter_context(mock.patch.object(simulation, name, viewed))
        yield


def _viewed(simulation: Any, access: Callable[..., Any]) -> Callable[..., Any]:
    """An access that takes a view apart into boxes of the memory behind it, one after another, and
    says the line of code of what is refused."""

    def of_view(token: Any, *place: Any, **by: Any) -> Any:
        device, core, space, buffer, steps, *more = place
        where = token, device, core, space, buffer
        # What a masked swap may write JAX measures by its first dimension alone: so row by row.
        masked = access.__name__ == "swap" and np.ndim(more[1]) > 0  # without a mask it is None
        if not any(map(_is_view, steps)) and not masked:
            return access(token, *place, **by)
        name = simulation.TPU_MEMORY_SPACE_NAMES[int(space)]
        owner = simulation._local_core_id_or_zero_if_hbm(int(core), name)
        memory = simulation._get_shared_memory().mem[name, int(buffer), int(device), owner]
        own = memory.content.dtype
        try:
            part, dtype = places(memory.logical_shape, own, steps)
        except IndexError:
            if any(map(_is_view, steps)):
                raise
            return access(token, *place, **by)  # a mask may hide what is beyond
        lines = part.reshape(*part.shape[:-2], math.prod(part.shape[-2:]))
        order = np.argsort(lines, axis=-1)  # numbers that make up one lie under each other

        def laid(value: Any) -> np.ndarray:
            value = np.asarray(value)[..., None]
            value = value.view(own) if value.dtype == dtype else np.broadcast_to(value, part.shape)
            return np.take_along_axis(value.reshape(lines.shape), order, -1)

        values = [None if value is None else laid(value) for value in more]
        result = np.empty(lines.shape, own)
        for index, box in boxes(np.take_along_axis(lines, order, -1), memory.logical_shape, masked):
            sizes = tuple(part.size for part in box.indices)
            pieces = [value if value is None else value[index].reshape(sizes) for value in values]
            answer = access(*where, (box,), *pieces, **by)
            if isinstance(answer, tuple):
                token, piece = answer
                result[index] = piece.reshape(result[index].shape)
        if not isinstance(answer, tuple):
            return answer
        seen = np.empty_like(result)
        np.put_along_axis(seen, order, result, -1)
        return token, seen.reshape(part.shape).view(dtype)[..., 0]

    def of_line(*place: Any, source_info: Any = None, **by: Any) -> Any:
        try:
            return of_view(*place, source_info=source_info, **by)
        except (IndexError, ValueError) as error:
            if source_info is None:  # the copy of a whole block
                raise
            words = str(error).rstrip(" .")
            raise type(error)(f"{words} ({line_of(source_info)})") from None

    return of_line


def _is_view(step: Any) -> bool:
    return type(step).__name__ in ("ReshapeTransform", "BitcastTransform")


def places(shape: tuple[int, ...], dtype: Any, steps: Sequence[Any]) -> tuple[np.ndarray, Any]:
    """Where in memory of this shape and dtype each element of a part lies, which indexers and views
    take one after another, and the part's dtype. Of the part's shape, and of one dimension more for
    the numbers that make up an element: places in the memory, counted row by row. IndexError where
    it is not all within its view, NotImplementedError for other views, and as narrower numbers."""
    import jax

    shapes = [shape]
    axes: list[Any] = []
    for step in steps:
        if hasattr(step, "dtype"):  # rows under each other make up one of wider numbers
            aval = jax.core.ShapedArray(shapes[-1], dtype)
            shapes.append(step.transform_type(aval).shape)
            axes.append(step.dtype.itemsize // dtype.itemsize)
            if math.prod(shapes[-2]) != axes[-1] * math.prod(shapes[-1]):
                raise NotImplementedError(f"a view of {dtype} as {step.dtype}")
            dtype = step.dtype
        elif _is_view(step):
            axes.append(None)
            shapes.append(step.shape)
        elif not hasattr(step, "indices"):
            raise NotImplementedError(f"{type(step).__name__} of a view")
        else:
            taken = [
                int(index.start) + int(index.stride) * np.arange(int(index.size))
                if hasattr(index, "stride")
                else np.asarray(int(index))
                for index in step.indices
            ]
            for size, axis in zip(shapes[-1], taken, strict=True):
                if axis.size and not 0 <= axis.min() <= axis.max() < size:
                    what = f"a view of shape {shapes[-1]} is read or written at {axis.max()}"
                    raise IndexError(f"Out-of-bounds access: {what} of {size}")
            axes.append(taken)
            shapes.append(tuple(axis.size for axis in taken if axis.ndim))
    part = np.arange(math.prod(shapes[-1])).reshape(*shapes[-1], 1)
    for before, after, taken in zip(shapes[-2::-1], shapes[:0:-1], axes[::-1], strict=True):
        if taken is None:  # counted row by row, a reshaped array is what it was
            continue
        if isinstance(taken, int):
            part = np.repeat(part, taken, -1)
            at = _coordinates(part, after)
            at[-2] = at[-2] * taken + np.arange(part.shape[-1]) % taken
        else:
            inside = iter(_coordinates(part, after) if after else ())
            at = [axis[next(inside)] if axis.ndim else axis for axis in taken]
        part = np.ravel_multi_index(np.broadcast_arrays(*at, part)[:-1], before)
    return part, dtype


def _coordinates(places: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    """As np.unravel_index, which errs beyond 8,192 places in one column (its issue 31980)."""
    return [axis.reshape(places.shape) for axis in np.unravel_index(places.ravel(), shape)]


def boxes(
    part: np.ndarray, shape: tuple[int, ...], by_row: bool = False
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """A part of memory, its places as `places` has them, as boxes of it, or with by_row each row as
    boxes of its own: of each box the index of its elements, and an indexer of the memory."""
    from jax._src.state import indexing

    lines = [np.unique(line) for line in _coordinates(part, shape)]
    strides = [int(line[1] - line[0]) if line.size > 1 else 1 for line in lines]
    even = all((np.diff(line) == stride).all() for line, stride in zip(lines, strides))
    if not by_row and even and math.prod(line.size for line in lines) == part.size:
        slices = tuple(
            indexing.Slice(int(line[0]) if line.size else 0, line.size, stride)
            for line, stride in zip(lines, strides)
        )
        yield (), indexing.NDIndexer(slices, shape, ())
        return
    for row, places_of_row in enumerate(part):
        for index, box in boxes(places_of_row, shape):
            yield (row, *index), box
