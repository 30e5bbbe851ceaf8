"""A pallas_call as JAX traced it: grid, blocks, memories, index maps, and the kernel's own program.

JAX promises nothing of these: the parameters of the pallas_call equation (`grid_mapping`, `jaxpr`,
`compiler_params`, `input_output_aliases`, `interpret`, `out_avals`, `name`), the fields of
GridMapping and BlockMapping, `AbstractRef.inner_aval` and `.memory_space`, `DebugInfo.arg_names`,
`jax._src.state.discharge.discharge_state`. All were seen in JAX 0.10.2 and 0.12.0.1.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from kernels.machines.compat import jax_refs, jaxprs

Replacement = tuple[tuple[int, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]


@dataclass(frozen=True)
class Block:
    """One blocked operand of a pallas_call, in plain words."""

    name: str  # as the kernel calls it
    shape: tuple[int, ...]  # of the whole array
    dtype: str
    sizes: tuple[int, ...]  # of its block, a squeezed dimension as 1
    elements: tuple[bool, ...]  # whether the index map counts elements in a dimension, not blocks
    memory: str  # JAX's word for where the block is put, "none" where nothing was said
    mapping: Any = field(repr=False, compare=False)  # JAX's BlockMapping

    def indices(
        self, grid: tuple[int, ...], scalars: Sequence[np.ndarray | None] = ()
    ) -> np.ndarray | None:
        """What the index map gives at every grid point, in grid order: int [programs, rank]; None
        where it reads prefetched scalars that are not known."""
        import jax
        import jax.numpy as jnp

        count = math.prod(grid)
        ids = np.indices(grid).reshape(len(grid), count)
        closed = self.mapping.index_map_jaxpr
        inner = jaxprs.opened(closed)
        rest: list[Any] = []
        if inner.invars[len(grid) :]:
            read = self.scalars_read(len(grid))
            if any(i >= len(scalars) or scalars[i] is None for i in read):
                return None
            if read:
                shapes = [v.aval.shape for v in inner.invars[len(grid) :]]
                rest = [
                    jnp.zeros(shape, jnp.int32) if value is None else jnp.asarray(value)
                    for value, shape in zip(scalars, shapes, strict=True)
                ]
                from jax._src.state import discharge

                closed = discharge.discharge_state(closed)  # scalars as arrays, given back last
            else:
                inner = inner.replace(invars=inner.invars[: len(grid)])
                bare = closed is jaxprs.opened(closed)
                closed = inner if bare else closed.replace(jaxpr=inner)
        function = jaxprs.as_function(closed)
        if grid:
            axes = [0] * len(grid) + [None] * len(rest)
            every = jax.vmap(function, axes)
            indices = (jax.jit(every) if rest else every)(*map(jnp.asarray, ids), *rest)
            indices = indices[: len(self.shape)]
        else:
            indices = [jnp.reshape(i, (1,)) for i in function(*rest)[: len(self.shape)]]
        columns = [np.broadcast_to(np.asarray(index), count) for index in indices]
        return np.stack(columns, 1) if columns else np.zeros((count, 0), int)

    def scalars_read(self, rank: int) -> set[int]:
        """The numbers of the prefetched scalars that the index map of a grid of `rank` reads."""
        inner = jaxprs.opened(self.mapping.index_map_jaxpr)
        used = {v for equation in inner.eqns for v in equation.invars if not hasattr(v, "val")}
        used |= {v for v in inner.outvars if not hasattr(v, "val")}
        return {i for i, v in enumerate(inner.invars[rank:]) if v in used}


@dataclass(frozen=True)
class Scratch:
    """One buffer that a kernel gets beside its operands."""

    name: str  # as the kernel calls it
    text: str  # as JAX prints it
    in_vmem: bool  # whether it takes room in VMEM
    shape: tuple[int, ...] | None  # None for what is no array, such as a semaphore
    dtype: str  # of its elements


def is_interpreted(equation: Any) -> bool:
    """Whether a pallas_call is to be interpreted, by `interpret=` or by a mode that is forced."""
    return bool(equation.params.get("interpret"))


def is_for_a_tpu(equation: Any) -> bool:
    """Whether a kernel brings options of the TPU's compiler; seen in JAX 0.10.2 and 0.12.0.1."""
    options = equation.params.get("compiler_params")
    return type(options).__module__.startswith("jax._src.pallas.mosaic.")


def is_kernel(equation: Any) -> bool:
    """Whether an equation is a kernel: a pallas_call, or what pl.kernel and pl.core_map make."""
    return jaxprs.operation(equation) in ("pallas_call", "mpmd_map", "core_map")


def on_sparse_core(equation: Any) -> bool:
    """Whether a kernel is written for the SparseCore, as its mesh or a ref's memory says."""
    params = equation.params
    meshes = (params.get("mesh"), *(params.get("meshes") or ()))
    kinds = [type(mesh).__name__ for mesh in meshes]
    kinds.append(str(getattr(equation.params.get("compiler_params"), "kernel_type", "")))
    return any("subcore" in kind.lower() for kind in kinds)


def reaches_other_chips(equation: Any) -> bool:
    """Whether a kernel sends to another chip or waits for one."""
    for inner in jaxprs.inner_jaxprs(equation):
        for operation in jaxprs.equations(inner):
            name = jaxprs.operation(operation)
            if name == "get_barrier_semaphore":
                return True
            if name == "dma_start" and jax_refs.copy(operation).remote:
                return True
            if name == "semaphore_signal" and jax_refs.signals_remotely(operation):
                return True
    return False


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
    compiling = lambda *operands, **params: bind(*operands, **(params | {"interpret": False}))
    jax.clear_caches()
    with mock.patch.object(pallas_call_p, "bind", compiling):
        yield


def outside_kernels(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those inside it, pallas_calls too, but none of a kernel."""
    for equation in jaxprs.own_equations(jaxpr):
        yield equation
        if not is_kernel(equation):
            for inner in jaxprs.inner_jaxprs(equation):
                yield from outside_kernels(inner)


def kernel(equation: Any) -> Any:
    """The kernel's own jaxpr."""
    return jaxprs.opened(equation.params["jaxpr"])


def grid(equation: Any, sizes: Sequence[int | None] = ()) -> tuple[int, ...]:
    """The grid, jax.vmap's dimensions before the author's; a size that is not known counts 1. ()
    of a kernel on a mesh of cores, which has none."""
    rest = iter(sizes)
    mapping = equation.params.get("grid_mapping")
    return tuple(
        int(size) if _is_static(size) else next(rest, None) or 1
        for size in (mapping.grid if mapping else ())
    )


def own_axes(equation: Any) -> tuple[int, ...]:
    """The dimensions of the grid that are the author's: those that his program ids count."""
    mapping = equation.params["grid_mapping"]
    return tuple(i for i in range(len(mapping.grid)) if i not in mapping.vmapped_dims)


def dynamic_axes(equation: Any) -> tuple[int, ...]:
    """The dimensions of the grid whose sizes are operands, the first ones of the call."""
    sizes = equation.params["grid_mapping"].grid
    return tuple(axis for axis, size in enumerate(sizes) if not _is_static(size))


def num_scalars(equation: Any) -> int:
    """How many of a kernel's operands are prefetched scalars, its first ones."""
    return int(equation.params["grid_mapping"].num_index_operands)


def name(equation: Any) -> str:
    """The name of the call: pallas_call's `name`, or the kernel function's."""
    [body, *_] = [*jaxprs.inner_jaxprs(equation), None]
    source = getattr(getattr(body, "debug_info", None), "func_src_info", None) or "kernel"
    return equation.params.get("name") or source.split(" at ")[0]


def is_triton(equation: Any) -> bool:
    """Whether the kernel was written for Triton, as its compiler parameters say."""
    return "triton" in type(equation.params.get("compiler_params")).__module__


def semantics(equation: Any) -> tuple[str, ...]:
    """How the programs along each grid dimension stand to each other: "parallel", "arbitrary", …

    A dimension that jax.vmap added is parallel: its programs know nothing of each other.
    """
    mapping = equation.params["grid_mapping"]
    words = iter(getattr(equation.params.get("compiler_params"), "dimension_semantics", None) or ())
    return tuple(
        "parallel" if i in mapping.vmapped_dims else word(next(words, "arbitrary"))
        for i in range(len(mapping.grid))
    )


def vmem_limit_bytes(equation: Any) -> int | None:
    """Bytes of VMEM that the kernel asks for; None where it does not ask."""
    return getattr(equation.params.get("compiler_params"), "vmem_limit_bytes", None)


def num_inputs(equation: Any) -> int:
    """How many of the blocks are inputs; the outputs follow them."""
    return equation.params["grid_mapping"].num_inputs


def outputs_summed(equation: Any) -> set[int]:
    """The outputs whose whole block every program reads and writes, outside of conditions."""
    body, first = kernel(equation), num_scalars(equation) + num_inputs(equation)
    touched = [e for e in body.eqns if jaxprs.operation(e) in jax_refs.ACCESSES]
    whole = [e for e in touched if (part := jax_refs.access(e)[0]).sizes == part.shape]
    kinds = {(jaxprs.inputs(e)[0], jaxprs.operation(e)) for e in whole}
    sums = lambda ref: (ref, "addupdate") in kinds or {(ref, "get"), (ref, "swap")} <= kinds
    return {number for number, ref in enumerate(body.invars[first:]) if sums(ref)}


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
    pieces = []
    for index, variable in enumerate(body.invars[first:], first):
        aval = getattr(variable.aval, "inner_aval", variable.aval)
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        array = (None, "") if shape is None or dtype is None else (tuple(shape), str(dtype))
        in_vmem = "vmem" in str(variable.aval).lower()
        pieces.append(Scratch(_name(body, index), str(aval), in_vmem, *array))
    return tuple(pieces)


def axis_names(equation: Any) -> tuple[str, ...]:
    """What the index maps call the grid's dimensions; "" for one that none of them names."""
    mapping = equation.params["grid_mapping"]
    maps = [jaxprs.opened(b.index_map_jaxpr) for b in mapping.block_mappings]
    named = [index_map.debug_info.arg_names for index_map in maps]
    names = max(named, key=lambda n: sum(map(bool, n or ())), default=None) or ()
    return tuple([n or "" for n in names] + [""] * len(mapping.grid))[: len(mapping.grid)]


def axes_read(equation: Any) -> set[int]:
    """The grid dimensions whose program id the kernel's body reads."""
    axes = own_axes(equation)
    return {
        axes[jaxprs.grid_axis(operation)]
        for operation in jaxprs.equations(kernel(equation))
        if jaxprs.operation(operation) == "program_id"
    }


def rebuilt(
    equation: Any,
    grid: tuple[int, ...],
    replaced: Sequence[Replacement | None] | None = None,
    tables: Mapping[int, Sequence[float]] | None = None,
    toggles: Sequence[Sequence[bool] | None] | None = None,
    share: float = 1.0,
) -> tuple[Callable[..., Any], list[Any]]:
    """A function that makes the same kernel's pallas_call on another grid of as many dimensions,
    and over other arrays, and the shapes that it takes.

    Args:
        equation, grid: the pallas_call, and the new grid.
        replaced: for each block None, or the shape of a new array whose last dimensions are the
            block's own, the ones before them squeezed, and a function from the indices that the
            old map gives to those of the new array.
        tables: id of an equation → for each program what it shall give if it reads a scalar, which
            branch it shall take, or how far it shall count.
        toggles: for each block None, or for each program whether it moves to another block than
            the program before; the block's index map then reads no scalars any more.
        share: of the rounds of the kernel's outermost loops of known length, how many are left.
    """
    import jax

    mapping = equation.params["grid_mapping"].replace(grid=grid)
    # The sizes of a dynamic grid come first; the new one has none.
    taken = equation.invars[len(dynamic_axes(equation)) :]
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in taken]
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
    if toggles is not None:
        blocks_now = [
            block if moves is None else _toggling(block, grid, moves)
            for block, moves in zip(mapping.block_mappings, toggles, strict=True)
        ]
        mapping = mapping.replace(block_mappings=tuple(blocks_now))
    params["grid_mapping"] = mapping
    if tables or share < 1:
        params["jaxpr"] = _specialised(params["jaxpr"], mapping, tables or {}, share)

    def call(*operands: Any) -> Any:
        return equation.primitive.bind(*operands, **params)

    return call, shapes


def _looked_up(grid: tuple[int, ...], ids: Sequence[Any], values: Any) -> Any:
    """What a table says of a program, by comparisons where it changes: no memory is read."""
    import jax.numpy as jnp

    place = jnp.int32(0)
    for index, size in zip(ids, grid, strict=True):
        place = place * size + index
    value = place * 0 + int(values[0])
    for i in range(1, len(values)):
        if values[i] != values[i - 1]:
            value = jnp.where(place >= i, jnp.int32(int(values[i])), value)
    return value


def _toggling(block: Any, grid: tuple[int, ...], moves: Sequence[bool]) -> Any:
    """The block mapping that goes back and forth between two blocks, and moves when it shall. The
    compiler's profile reads zeros where an index map reads prefetched scalars."""
    import jax
    import jax.numpy as jnp

    whole = block.array_aval.shape
    cut = [n > _size(size) for n, size in zip(whole, block.block_shape, strict=True)]
    sides = np.cumsum([False, *list(moves)[1:]]) % 2

    def index(*ids: Any) -> tuple[Any, ...]:
        places = [jnp.int32(0)] * len(whole)
        if any(cut) and len(sides):
            places[cut.index(True)] = _looked_up(grid, ids, sides)
        return tuple(places)

    old = block.index_map_jaxpr
    traced = jax.make_jaxpr(index)(*[jax.ShapeDtypeStruct((), jnp.int32)] * len(grid))
    inner, before = jaxprs.opened(traced), jaxprs.opened(old)
    taken = [*inner.invars, *before.invars[len(grid) :]]
    names = before.debug_info._replace(result_paths=None)
    return block.replace(
        index_map_jaxpr=traced.replace(jaxpr=inner.replace(invars=taken, debug_info=names))
    )


def _specialised(
    jaxpr: Any, mapping: Any, tables: Mapping[int, Sequence[float]], share: float
) -> Any:
    """A kernel whose scalars are computed where it read them, and with fewer rounds of its loops:
    `tables` and `share` are those of rebuilt."""
    import jax
    from jax.experimental import pallas as pl

    def lookup(values: Sequence[float], dtype: Any) -> tuple[list[Any], Any]:
        """Equations that look a scalar up, and the variable that then holds it."""

        def looked_up() -> Any:
            # A kernel cannot ask where it is in what jax.vmap added; the first stands for all.
            mine = iter(range(len(mapping.grid)))
            ids = [
                0 if axis in mapping.vmapped_dims else pl.program_id(next(mine))
                for axis in range(len(mapping.grid))
            ]
            scalar = _looked_up(mapping.grid, ids, values)
            # Its own operation, whose result may be renamed.
            return jax.lax.convert_element_type_p.bind(
                scalar, new_dtype=dtype, weak_type=False, sharding=None
            )

        with mapping.trace_env():
            traced = jaxprs.opened(jax.make_jaxpr(looked_up)())
        return list(traced.eqns), traced.outvars[0]

    def inside(value: Any, outermost: bool) -> Any:
        if isinstance(value, (tuple, list)):
            values = [inside(inner, outermost) for inner in value]
            return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
        if hasattr(jaxprs.opened(value), "eqns"):
            return rewritten(value, outermost)
        return value

    def rewritten(closed: Any, outermost: bool) -> Any:
        inner = jaxprs.opened(closed)
        equations: list[Any] = []
        for equation in inner.eqns:
            if id(equation) in tables:
                name, values = jaxprs.operation(equation), tables[id(equation)]
                at = 0 if name == "cond" else jaxprs.limit(equation) if name == "while" else None
                wanted = equation.outvars[0] if at is None else equation.invars[at]
                first, variable = lookup(values, wanted.aval.dtype)
                equations += first
                if at is None:
                    equations[-1] = equations[-1].replace(outvars=[wanted])
                    continue
                equation = equation.replace(
                    invars=[*equation.invars[:at], variable, *equation.invars[at + 1 :]]
                )
            loops = jaxprs.operation(equation) in ("scan", "while")
            params = {k: inside(v, outermost and not loops) for k, v in equation.params.items()}
            if outermost and share < 1 and is_cut(equation):
                params["length"] = max(1, round(params["length"] * share))
            equations.append(equation.replace(params=params))
        new = inner.replace(eqns=equations)
        return new if closed is inner else closed.replace(jaxpr=new)

    return rewritten(jaxpr, True)


SHORT_LOOP = 4  # rounds of a loop that is not cut


def is_cut(equation: Any) -> bool:
    """Whether an equation is a loop of known length, over no rows of its own, that may be cut."""
    if jaxprs.operation(equation) != "scan":
        return False
    loop = jaxprs.scan(equation)
    rows = len(jaxprs.inputs(equation)) - loop.fixed - loop.carried
    kept = len(jaxprs.outputs(equation)) - loop.carried
    return loop.length > SHORT_LOOP and rows == 0 and kept == 0


def longest_loop(equation: Any) -> int:
    """The rounds of the longest of a kernel's outermost loops that may be cut; 1 without one."""
    lengths = [1]

    def look(jaxpr: Any) -> None:
        for operation in jaxprs.own_equations(jaxpr):
            if is_cut(operation):
                lengths.append(int(operation.params["length"]))
            if jaxprs.operation(operation) not in ("scan", "while"):
                for inner in jaxprs.inner_jaxprs(operation):
                    look(inner)

    look(kernel(equation))
    return max(lengths)


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
        sizes=tuple(_size(dimension) for dimension in block.block_shape),
        elements=tuple(isinstance(dimension, pl.Element) for dimension in block.block_shape),
        memory=word(getattr(block.transformed_block_aval, "memory_space", None)),
        mapping=block,
    )


def _size(dimension: Any) -> int:
    """The size of one block dimension; a squeezed one counts 1."""
    from jax.experimental import pallas as pl

    if dimension is None or isinstance(dimension, pl.Squeezed):
        return 1
    return int(getattr(dimension, "block_size", dimension))


def _is_static(size: Any) -> bool:
    """Whether the size of a grid dimension is a number, and no operand of the call."""
    return isinstance(size, (int, np.integer))


def _name(body: Any, index: int) -> str:
    names = getattr(body.debug_info, "arg_names", None)
    name = (names[index] if names and index < len(names) else None) or f"operand {index}"
    return name.removesuffix("_ref")
