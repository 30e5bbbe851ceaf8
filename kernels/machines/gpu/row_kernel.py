"""A kernel along rows for a Hopper GPU: whole rows in registers, each read once and written once.

Blocks of one warpgroup stay on the SMs and take one row after the other. TMA brings the next rows
into shared memory while this one is worked on; its numbers lie in the registers of 128 threads,
which reduce them together, and leaves through shared memory too.

    for each row of this block:            two rows ahead are on their way
        wait until it is in shared memory
        y = compute(row in float32, vectors)
        write y
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.machines import checks
from kernels.machines.gpu.chips import CHIPS, LONGEST_ROW
from kernels.machines.gpu.simulator import interprets, multiprocessors

WIDTH = 128  # numbers of a line, one for each thread; TMA copies at most 256 along one axis
SLOTS = 3  # rows in shared memory: one is worked on, or on its way out, while two come in
RESERVED = 3200  # bytes of a block at most: barriers, sums of its warps, and what CUDA keeps
BLOCKS = 16  # of an SM, which keeps 2048 threads at most


def call(
    name: str, compute: Callable[..., Any], x: Any, vectors: Sequence[Any] = (), *, interpret: Any
) -> Any:
    """Run it.

    Args:
        name: of the kernel.
        compute: (keep, row, *vectors) → row, all float32 and of one shape, over both of whose axes
            a row is reduced. keep(values, other=0) puts `other` behind the row's end.
        x: [rows, n], float32 or bfloat16, as is the result; where WIDTH does not divide n, XLA
            copies it, padded, and cuts the result.
        vectors: [n], of x's dtype.
        interpret: as plgpu.kernel takes it.

    Raises:
        ValueError: for rows longer than LONGEST_ROW, which XLA reads twice.
    """
    rows, n = x.shape
    if n * x.dtype.itemsize > LONGEST_ROW:
        most = LONGEST_ROW // x.dtype.itemsize
        checks.fail(
            "x.shape[-1]", n, f'at most {most}, of which a block holds a row; "xla" takes it'
        )
    shape = (pl.cdiv(n, WIDTH), WIDTH)
    more, size = math.prod(shape) - n, math.prod(shape) * x.dtype.itemsize
    room = CHIPS["h100"].shared_bytes_per_sm // (size * (SLOTS + len(vectors)) + RESERVED)
    blocks = min(rows, multiprocessors() * min(BLOCKS, room))

    def keep(values: Any, other: float = 0.0) -> Any:
        if not more:
            return values
        place = [jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1)]
        return jnp.where(place[0] * WIDTH + place[1] < n, values, other)

    def kernel(x_gmem: Any, *refs: Any) -> None:
        *vectors_gmem, o_gmem = refs[: len(vectors) + 1]
        *vectors_smem, ring_smem, arrived = refs[len(vectors) + 1 :]
        first = jax.lax.axis_index("block")

        def fetch(turn: Any) -> None:
            slot, row = jax.lax.rem(turn, SLOTS), first + turn * blocks

            @pl.when(row < rows)
            def _() -> None:
                plgpu.copy_gmem_to_smem(x_gmem.at[row], ring_smem.at[slot], arrived.at[slot])

        for gmem, smem in zip(vectors_gmem, vectors_smem, strict=True):
            plgpu.copy_gmem_to_smem(gmem, smem, arrived.at[SLOTS])
            plgpu.barrier_wait(arrived.at[SLOTS])
        for turn in range(SLOTS - 1):
            fetch(jnp.int32(turn))

        @plgpu.nd_loop((rows,), collective_axes="block")
        def step(loop: Any) -> None:
            (row,), turn = loop.index, loop.local_index
            slot = jax.lax.rem(turn, SLOTS)
            plgpu.barrier_wait(arrived.at[slot])
            inputs = (ring_smem.at[slot], *vectors_smem)
            result = compute(keep, *(ref[...].astype(jnp.float32) for ref in inputs))
            # All of x is read, since it was reduced; the result takes its place.
            ring_smem[slot] = result.astype(x.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(ring_smem.at[slot], o_gmem.at[row])
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)  # the row before has left its slot
            fetch(turn + SLOTS - 1)

        plgpu.wait_smem_to_gmem(0)

    def folded(a: Any) -> Any:
        padded = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, more)])
        return padded.reshape(*a.shape[:-1], *shape)

    out = plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((rows, *shape), x.dtype),
        scratch_types=[
            *[plgpu.SMEM(shape, x.dtype)] * len(vectors),
            plgpu.SMEM((SLOTS, *shape), x.dtype),
            plgpu.Barrier(num_barriers=SLOTS + 1),
        ],
        grid=(blocks,),
        grid_names=("block",),
        compiler_params=plgpu.CompilerParams(
            lowering_semantics=plgpu.LoweringSemantics.Warpgroup,
            approx_math=x.dtype == jnp.bfloat16,
        ),
        interpret=interpret,
        kernel_name=name,
    )(folded(x), *map(folded, vectors))
    return out.reshape(rows, -1)[:, :n]


def along_rows(
    form: Callable[..., Callable[..., Any]],
    plain: Callable[..., Any],
    x: Any,
    *vectors: Any,
    interpret: Any,
    **options: float,
) -> Any:
    """A differentiable function along the last axis of x: this kernel, and backward plain JAX.

    Args:
        form: (n, **options) → what `call` computes.
        plain: (x, *vectors, **options) → the same in JAX, which gives the kernel its name.
        x, vectors: [..., n], and [n] each, of x's dtype; the result is as x.
        interpret: None simulates where there is no such GPU.
    """
    x, *vectors_taken = map(jnp.asarray, (x, *vectors))
    static = form, plain, tuple(options.items()), interprets(interpret)
    return _forward(*static, x.reshape(-1, x.shape[-1]), *vectors_taken).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _forward(form, plain, options, interpret, x, *vectors):
    compute = form(x.shape[1], **dict(options))
    return call(plain.__name__, compute, x, vectors, interpret=interpret)


def _backward(form, plain, options, interpret, saved, dy):
    return jax.vjp(functools.partial(plain, **dict(options)), *saved)[1](dy)


_forward.defvjp(lambda *arguments: (_forward(*arguments), arguments[4:]), _backward)
