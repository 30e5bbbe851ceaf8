"""All to all by remote DMA, on a TPU: each device writes into the memory of all the others.

    meet all; then for each other device:
        send it the tiles that hold the first sizes[device] rows of its block, one tile at least
    copy my own block; then for each other device:
        wait until its tiles have left, and until as many as it sends me have arrived

One tile at least, so that nobody ends before all have met.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.collectives.ring import ALL_TO_ALL, HBM, call, make_ring, meet

TILES = 16  # that a block is cut into, if its rows are enough


def kernel(sizes_ref, x_ref, out_ref, own, sent, arrived, *, ring, tile):
    # sizes_ref [2, devices] in SMEM: rows that go to each device, and that come from it; x_ref and
    # out_ref [devices, rows, columns] in HBM; sent and arrived [devices] of copies
    me, others = lax.axis_index(ring.axis), range(1, ring.size)
    meet(ring, me, others)

    def each_tile(step, comes, act):
        size = sizes_ref[int(comes), ring.device(me, -step if comes else step)]
        count = jnp.maximum(lax.div(size + tile - 1, tile), 1)
        lax.fori_loop(0, count, lambda number, _: act(hop(step, number)), None)

    def hop(step, number):
        to, rows = ring.device(me, step), pl.ds(number * tile, tile)
        ends = x_ref.at[to, rows], out_ref.at[me, rows], sent.at[step], arrived.at[step]
        return pltpu.make_async_remote_copy(*ends, {ring.axis: to}, pl.DeviceIdType.MESH)

    for step in others:
        each_tile(step, False, lambda copy: copy.start())
    mine = pltpu.make_async_copy(x_ref.at[me], out_ref.at[me], own)
    mine.start()
    for step in others:
        each_tile(step, False, lambda copy: copy.wait_send())
        each_tile(step, True, lambda copy: copy.wait_recv())
    mine.wait()


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _all_to_all(x, sizes, axis_name, interpret):
    devices, rows, _ = x.shape
    step = 32 // x.dtype.itemsize  # rows of a register tile
    tile = pl.cdiv(rows, TILES * step) * step
    ring = make_ring(axis_name, devices, ALL_TO_ALL, rows)
    padded = jnp.pad(x, ((0, 0), (0, -rows % tile), (0, 0)))
    copies = pltpu.SemaphoreType.DMA((devices,))
    run = call(
        functools.partial(kernel, ring=ring, tile=tile),
        ring,
        interpret,
        out_shape=jax.ShapeDtypeStruct(padded.shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), HBM],
        out_specs=HBM,
        scratch_shapes=[pltpu.SemaphoreType.DMA, copies, copies],
        name="all_to_all",
    )
    exchanged = run(sizes, padded) if devices > 1 else padded
    come = jnp.arange(rows) < sizes[1][:, None]
    return jnp.where(come[..., None], exchanged[:, :rows], 0)


def _backward(axis_name, interpret, sizes, dy):
    """What came goes back."""
    return _all_to_all(dy, sizes[::-1], axis_name, interpret), None


_all_to_all.defvjp(lambda *arguments: (_all_to_all(*arguments), arguments[1]), _backward)


def all_to_all(x, sizes, axis_name, *, interpret=None):
    """[devices, rows, columns], int32 [devices] → [devices, rows, columns]."""
    sizes = jnp.clip(sizes, 0, x.shape[1])
    come = lax.all_to_all(sizes, axis_name, 0, 0)
    return _all_to_all(x, jnp.stack([sizes, come]), axis_name, interpret)
