"""A pallas_call as JAX traced it: grid, blocks, memories, index maps, and the kernel's own program.

JAX promises nothing of these: the parameters of the pallas_call equation (`grid_mapping`, `jaxpr`,
`compiler_params`, `input_output_aliases`, `interpret`, `out_avals`, `name`), the fields of
GridMapping and BlockMapping, `AbstractRef.inner_aval` and `.memory_space`, `DebugInfo.arg_names`.
All were seen in JAX 0.7.1, 0.10.2, 0.11.2 and 0.12.0.1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.compat import jaxprs

Replacement = tuple[tuple[int, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]


@dataclass(frozen=True)
class Block:
    """One blocked operand of a pallas_call, in plain words.

    Args:
        name: as the kernel calls it.
        shape, dtype: of the whole array.
        sizes: of its block, a squeezed dimension as 1.
        elements: of each dimension, whether the index map counts elements in it, and not blocks.
        memory: JAX's word for where the block is put, "none" where nothing was said.
        mapping: JAX's own BlockMapping.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...]
    elements: tuple[bool, ...]
    memory: str
    mapping: Any = field(repr=False, compare=False)  # JAX's BlockMapping

    def indices(self, grid: tuple[int, ...]) -> np.ndarray | None:
        """What the index map gives at every grid point, in grid order.

        Returns:
            int [programs, rank]; None where the map reads prefetched scalars, whose values only the
            run knows.
        """
        import jax
        import jax.numpy as jnp

        count = math.prod(grid)
        ids = np.stack(np.unravel_index(np.arange(count), grid or (1,)), 0)[: len(grid)]
        closed = self.mapping.index_map_jaxpr
        inner = jaxprs.opened(closed)
        prefetched = set(inner.invars[len(grid) :])
        if prefetched:
            read = {v for each in inner.eqns for v in each.invars if not hasattr(v, "val")}
            if (read | {v for v in inner.outvars if not hasattr(v, "val")}) & prefetched:
                return None
            inner = inner.replace(invars=inner.invars[: len(grid)])
            closed = closed.replace(jaxpr=inner) if closed is not jaxprs.opened(closed) else inner
        function = jaxprs.as_function(closed)
        if grid:
            found = jax.vmap(function)(*map(jnp.asarray, ids))
        else:
            found = [jnp.reshape(index, (1,)) for index in function()]
        columns = [np.broadcast_to(np.asarray(index), count) for index in found]
        return np.stack(columns, 1) if columns else np.zeros((count, 0), int)


@dataclass(frozen=True)
class Scratch:
    """One buffer that a kernel gets beside its operands.

    Args:
        name: as the kernel calls it.
        text: as JAX prints it.
        in_vmem: whether it takes room in VMEM.
        shape: None for what is no array, such as a semaphore.
        dtype: of its elements.
    """

    name: str
    text: str
    in_vmem: bool
    shape: tuple[int, ...] | None
    dtype: str


def is_pallas_call(equation: Any) -> bool:
    """Whether an equation is a pallas_call."""
    return jaxprs.operation(equation) == "pallas_call"


def is_interpreted(equation: Any) -> bool:
    """Whether a pallas_call is to be interpreted, by `interpret=` or by a mode that is forced."""
    return bool(equation.params.get("interpret"))


@contextlib.contextmanager
def compiled() -> Iterator[None]:
    """Within it no pallas_call that is traced is interpreted, whatever it says.

    A kernel of somebody else often decides for the CPU by itself, and what stands in for it there
    says nothing of a TPU. Private: `jax._src.pallas.pallas_call.pallas_call_p`, whose `bind` is
    replaced. A jax.jit does not trace twice, so its traces are forgotten first.
    """
    import jax
    from jax._src.pallas.pallas_call import pallas_call_p

    bind = pallas_call_p.bind

    def bound(*operands: Any, **params: Any) -> Any:
        return bind(*operands, **{**params, "interpret": False})

    jax.clear_caches()
    pallas_call_p.bind = bound  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pallas_call_p.bind


def outside_kernels(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those inside it, pallas_calls too, but none of a kernel."""
    for equation in jaxprs.own_equations(jaxpr):
        yield equation
        if not is_pallas_call(equation):
            for inner in jaxprs.inner_jaxprs(equation):
                yield from outside_kernels(inner)


def kernel(equation: Any) -> Any:
    """The kernel's own jaxpr."""
    return jaxprs.opened(equation.params["jaxpr"])


def grid(equation: Any) -> tuple[int, ...]:
    """The grid, with the dimensions that jax.vmap put before the author's."""
    return tuple(int(size) for size in equation.params["grid_mapping"].grid)


def name(equation: Any) -> str:
    """The name of the call: pallas_call's `name`, or the kernel function's."""
    source = getattr(kernel(equation).debug_info, "func_src_info", None) or "kernel"
    return equation.params.get("name") or source.split(" at ")[0]


def is_triton(equation: Any) -> bool:
    """Whether the kernel was written for Triton, as its compiler parameters say."""
    return "triton" in type(_compiler_params(equation)).__module__


def semantics(equation: Any) -> tuple[str, ...]:
    """How the programs along each grid dimension stand to each other: "parallel", "arbitrary", …

    A dimension that jax.vmap added is parallel: its programs know nothing of each other.
    """
    mapping = equation.params["grid_mapping"]
    given = iter(getattr(_compiler_params(equation), "dimension_semantics", None) or ())
    return tuple(
        "parallel" if i in mapping.vmapped_dims else word(next(given, "arbitrary"))
        for i in range(len(mapping.grid))
    )


def vmem_limit_bytes(equation: Any) -> int | None:
    """Bytes of VMEM that the kernel asks for; None where it does not ask."""
    return getattr(_compiler_params(equation), "vmem_limit_bytes", None)


def num_inputs(equation: Any) -> int:
    """How many of the blocks are inputs; the outputs follow them."""
    return equation.params["grid_mapping"].num_inputs


def aliased_outputs(equation: Any) -> set[int]:
    """The outputs that share their memory with an input."""
    return {output for _, output in equation.params.get("input_output_aliases") or ()}


def blocks(equation: Any) -> tuple[Block, ...]:
    """The blocked operands, inputs first."""
    mapping = equation.params["grid_mapping"]
    body = kernel(equation)
    return tuple(
        _block(block, _name(body, mapping.num_index_operands + index))
        for index, block in enumerate(mapping.block_mappings)
    )


def scratch(equation: Any) -> tuple[Scratch, ...]:
    """What the kernel gets beside its blocks."""
    mapping = equation.params["grid_mapping"]
    body = kernel(equation)
    first = mapping.num_index_operands + len(mapping.block_mappings)
    found = []
    for index, variable in enumerate(body.invars[first:], first):
        aval = getattr(variable.aval, "inner_aval", variable.aval)
        is_array = hasattr(aval, "dtype") and hasattr(aval, "shape")
        found.append(
            Scratch(
                _name(body, index),
                str(aval),
                "vmem" in str(variable.aval).lower(),
                tuple(aval.shape) if is_array else None,
                str(aval.dtype) if is_array else "",
            )
        )
    return tuple(found)


def axis_names(equation: Any) -> tuple[str, ...]:
    """What the index maps call the grid's dimensions; "" for one that none of them names."""
    mapping = equation.params["grid_mapping"]
    maps = [jaxprs.opened(b.index_map_jaxpr) for b in mapping.block_mappings]
    named = [each.debug_info.arg_names for each in maps]
    names = max(named, key=lambda n: sum(map(bool, n or ())), default=None) or ()
    return tuple([n or "" for n in names] + [""] * len(mapping.grid))[: len(mapping.grid)]


def axes_read(equation: Any) -> set[int]:
    """The grid dimensions whose program id the kernel's body reads."""
    return {
        jaxprs.grid_axis(each)
        for each in jaxprs.equations(kernel(equation))
        if jaxprs.operation(each) == "program_id"
    }


def has_open_loop(equation: Any) -> bool:
    """Whether the kernel's body holds a loop that ends by what it computes, and not by counting."""
    return any(
        jaxprs.operation(each) == "while" and not jaxprs.counts(each)
        for each in jaxprs.equations(kernel(equation))
    )


def rebuilt(
    equation: Any,
    grid: tuple[int, ...],
    replaced: Sequence[Replacement | None] | None = None,
) -> tuple[Callable[..., Any], list[Any]]:
    """The same kernel in a pallas_call on another grid, and over other arrays.

    Args:
        equation: The pallas_call.
        grid: The new grid, of as many dimensions.
        replaced: For each block None, or the shape of a new array whose last dimensions are the
            block's own, the ones before them squeezed, and a function from the indices that the
            old map gives to those of the new array.

    Returns:
        A function that makes the call, and the shapes that it takes.
    """
    import jax

    mapping = equation.params["grid_mapping"].replace(grid=grid)
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    params = dict(equation.params)
    if replaced is not None:
        new = [
            block if other is None else _over(block, len(grid), *other)
            for block, other in zip(mapping.block_mappings, replaced, strict=True)
        ]
        mapping = mapping.replace(block_mappings=tuple(new))
        first = mapping.num_index_operands
        for i, block in enumerate(new[: mapping.num_inputs]):
            aval = block.array_aval
            shapes[first + i] = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        params["out_avals"] = tuple(
            aval.update(shape=block.array_aval.shape)
            for aval, block in zip(params["out_avals"], new[mapping.num_inputs :], strict=True)
        )
    params["grid_mapping"] = mapping

    def call(*operands: Any) -> Any:
        return equation.primitive.bind(*operands, **params)

    return call, shapes


def reads_only_ids(block: Block, rank: int) -> bool:
    """Whether a block's index map takes the program ids of a grid of `rank`, and no scalars."""
    return len(block.mapping.index_map_jaxpr.in_avals) == rank


def word(value: Any) -> str:
    """The plain word for one of JAX's enumerations, such as pltpu.VMEM."""
    return str(getattr(value, "value", value)).lower()


def _over(
    block: Any, rank: int, shape: tuple[int, ...], index: Callable[[Sequence[Any]], tuple[Any, ...]]
) -> Any:
    """The block mapping of the same block over an array of another shape."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    old = jaxprs.as_function(block.index_map_jaxpr)
    more = len(shape) - len(block.block_shape)
    ids = [jax.ShapeDtypeStruct((), jnp.int32)] * rank
    return block.replace(
        block_shape=(*[pl.Squeezed()] * more, *block.block_shape),
        index_map_jaxpr=jax.make_jaxpr(lambda *ids: tuple(index(old(*ids))))(*ids),
        index_map_out_tree=jax.tree.structure((0,) * len(shape)),
        array_aval=block.array_aval.update(shape=shape),
    )


def _block(block: Any, name: str) -> Block:
    from jax.experimental import pallas as pl

    aval = block.array_aval
    return Block(
        name=name,
        shape=tuple(aval.shape),
        dtype=str(aval.dtype),
        sizes=tuple(_size(each) for each in block.block_shape),
        elements=tuple(isinstance(each, pl.Element) for each in block.block_shape),
        memory=word(getattr(block.transformed_block_aval, "memory_space", None)),
        mapping=block,
    )


def _size(dimension: Any) -> int:
    """The size of one block dimension; a squeezed one counts 1."""
    from jax.experimental import pallas as pl

    if dimension is None or isinstance(dimension, pl.Squeezed):
        return 1
    return int(getattr(dimension, "block_size", dimension))


def _compiler_params(equation: Any) -> Any:
    return equation.params.get("compiler_params")


def _name(body: Any, index: int) -> str:
    names = getattr(body.debug_info, "arg_names", None)
    found = (names[index] if names and index < len(names) else None) or f"operand {index}"
    return found.removesuffix("_ref")
