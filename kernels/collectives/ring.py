"""Rings by remote DMA, on a TPU: each device talks to its two neighbours alone.

    gather, n devices, step s of n − 1:
        send block (me − s) to the right
        receive block (me − s − 1) from the left
    reduce and scatter, step s of n − 1:
        send the sum of chunk (me − s − 1) to the right
        receive that of chunk (me − s − 2) from the left, and add mine

A second ring goes the other way with half of the rows, where there are enough, so that both
directions of each link work. Who receives says so: a buffer is written again only after the
neighbour raised `free`, so however fast one device is, it overwrites nothing that is still read.

Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here

BLOCK = 1 << 20  # bytes of a block of float32 sums at most: long beside a hop, short in VMEM
GATHER, SCATTER, GATHER_MATMUL, MATMUL_SCATTER = range(4)  # kinds of ring: no two share a barrier


class Ring(NamedTuple):
    """What a kernel knows of its ring.

    Args:
        axis: of the mesh.
        size: devices along it.
        barrier: its collective_id, which no other ring of the program has.
        parts: for each direction, 1 or −1, the first row and how many.
        block: rows that are reduced at a time.
    """

    axis: str
    size: int
    barrier: int
    parts: tuple[tuple[int, int, int], ...]
    block: int = 0

    def device(self, me, steps):
        """The device so many steps from this one."""
        return lax.rem(me + steps + 2 * self.size, self.size)


def make_ring(axis, size, kind, rows, dtype, both=True):
    """The ring along an axis; both directions where each gets whole tiles of rows."""
    mesh = jax.sharding.get_abstract_mesh()
    place = mesh.axis_names.index(axis) if axis in mesh.axis_names else 0
    tile = 32 // jnp.dtype(dtype).itemsize
    half = rows // 2 // tile * tile
    parts = ((1, half, rows - half), (-1, 0, half)) if both and half else ((1, 0, rows),)
    return Ring(axis, size, 4 * place + kind, parts)


def meet(ring, me):
    """Wait until both neighbours have entered the kernel: their memory is theirs to write now."""
    barrier = pltpu.get_barrier_semaphore()
    for step in (1, -1):
        signal(barrier, ring, ring.device(me, step))
    pl.semaphore_wait(barrier, 2)


def signal(semaphore, ring, device):
    mesh = pl.DeviceIdType.MESH
    pl.semaphore_signal(semaphore, 1, device_id={ring.axis: device}, device_id_type=mesh)


def send(source, target, sent, arrived, ring, device):
    return pltpu.make_async_remote_copy(
        src_ref=source,
        dst_ref=target,
        send_sem=sent,
        recv_sem=arrived,
        device_id={ring.axis: device},
        device_id_type=pl.DeviceIdType.MESH,
    )


def gather_kernel(x_ref, out_ref, own, sent, arrived, free, *, ring):
    # x_ref [rows, columns], out_ref [devices, rows, columns], in HBM; semaphores own,
    # sent and arrived [directions, 2] of copies, free [directions] of signals
    me = lax.axis_index(ring.axis)
    meet(ring, me)
    mine = pltpu.make_async_copy(x_ref, out_ref.at[me], own)
    mine.start()

    def step(s, first=False):
        hops = []
        for lane, (way, start, rows) in enumerate(ring.parts):
            part = out_ref.at[ring.device(me, -way * s), pl.ds(start, rows)]
            source = x_ref.at[pl.ds(start, rows)] if first else part
            semaphores = sent.at[lane, s % 2], arrived.at[lane, s % 2]
            hops.append(send(source, part, *semaphores, ring, ring.device(me, way)))

            @pl.when(s >= 2)
            def _(lane=lane):  # the neighbour has seen what these semaphores told it before
                pl.semaphore_wait(free.at[lane], 1)

            hops[-1].start()
        for lane, (way, *_) in enumerate(ring.parts):
            hops[lane].wait_recv()

            @pl.when(s < ring.size - 3)
            def _(lane=lane, way=way):
                signal(free.at[lane], ring, ring.device(me, -way))

            hops[lane].wait_send()

    step(0, first=True)
    lax.fori_loop(1, ring.size - 1, lambda s, _: step(s), None)
    mine.wait()


def scatter_kernel(x_ref, out_ref, sums, own, fetched, sent, arrived, free, *, ring):
    # x_ref [devices, rows, columns], out_ref [rows, columns], in HBM; in VMEM for each direction
    # sums [2, block, columns] float32 and own [block, columns]; semaphores as of gather_kernel
    me = lax.axis_index(ring.axis)
    hops, blocks = ring.size - 1, ring.parts[0][2] // ring.block
    meet(ring, me)

    def rows(lane, t):
        past = t // hops * ring.block if blocks > 1 else 0  # a block alone may have any size
        return pl.ds(ring.parts[lane][1] + past, ring.block)

    def fetch(lane, t, chunk):
        part = x_ref.at[chunk, rows(lane, t)]
        return pltpu.make_async_copy(part, own.at[lane], fetched.at[lane])

    def step(t, _):
        s, slot, other = t % hops, t % 2, (t + 1) % 2
        lanes = list(enumerate(way for way, *_ in ring.parts))

        @pl.when(s == 0)
        def _():
            firsts = [fetch(lane, t, ring.device(me, -way)) for lane, way in lanes]
            for first in firsts:
                first.start()
            for lane, first in enumerate(firsts):
                first.wait()
                sums[lane, slot] = own[lane].astype(jnp.float32)

        sends, fetches = [], []
        for lane, way in lanes:

            @pl.when(t >= 1)
            def _(lane=lane):  # the neighbour has sent on what this slot held
                pl.semaphore_wait(free.at[lane], 1)

            semaphores = sent.at[lane, slot], arrived.at[lane, slot]
            slots = sums.at[lane, slot], sums.at[lane, other]
            sends.append(send(*slots, *semaphores, ring, ring.device(me, way)))
            fetches.append(fetch(lane, t, ring.device(me, -way * (s + 2))))
            sends[-1].start()
            fetches[-1].start()
        for lane, way in lanes:
            fetches[lane].wait()
            sends[lane].wait_recv()
            sums[lane, other] += own[lane].astype(jnp.float32)
            sends[lane].wait_send()

            @pl.when(t < hops * blocks - 1)
            def _(lane=lane, way=way):
                signal(free.at[lane], ring, ring.device(me, -way))

        @pl.when(s == hops - 1)
        def _():
            for lane, _ in lanes:
                own[lane] = sums[lane, other].astype(own.dtype)
                done = pltpu.make_async_copy(
                    own.at[lane], out_ref.at[rows(lane, t)], fetched.at[lane]
                )
                done.start()
                done.wait()

    lax.fori_loop(0, hops * blocks, step, None)


def _call(kernel, ring, x, shape, scratch, interpret, name):
    """A kernel on arrays in HBM; `scratch` comes before the semaphores of its directions."""
    lanes = len(ring.parts)
    interpret = interprets(interpret, "tpu")
    return pl.pallas_call(
        functools.partial(kernel, ring=ring),
        out_shape=jax.ShapeDtypeStruct(shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[
            *scratch,
            pltpu.SemaphoreType.DMA((lanes, 2)),
            pltpu.SemaphoreType.DMA((lanes, 2)),
            pltpu.SemaphoreType.REGULAR((lanes,)),
        ],
        compiler_params=pltpu.CompilerParams(
            collective_id=ring.barrier,
            has_side_effects=True,
            vmem_limit_bytes=CHIPS[here()].vmem_limit_bytes,
        ),
        # JAX's plain interpreter knows no barrier; its simulated TPU does.
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
        name=name,
    )(x)


def gather(x, axis, size, *, both=True, interpret=None):
    """[rows, columns] of each of `size` devices → [size · rows, columns] on each."""
    if size == 1:
        return x
    ring = make_ring(axis, size, GATHER, x.shape[0], x.dtype, both)
    scratch = [pltpu.SemaphoreType.DMA]
    gathered = _call(gather_kernel, ring, x, (size, *x.shape), scratch, interpret, "ring_gather")
    return gathered.reshape(-1, x.shape[1])


def scatter(x, axis, size, *, both=True, interpret=None):
    """[size · rows, columns] of each device → the sum of this device's [rows, columns]."""
    if size == 1:
        return x
    rows, columns = x.shape[0] // size, x.shape[1]
    x = x.reshape(size, rows, columns)
    tile = 32 // jnp.dtype(x.dtype).itemsize
    lanes = 2 if both and rows >= 2 * tile else 1
    most = max(BLOCK // (4 * columns) // tile * tile, tile)
    blocks = pl.cdiv(rows, lanes * most)
    block = pl.cdiv(rows, lanes * blocks * tile) * tile if lanes * blocks > 1 else rows
    whole = lanes * blocks * block
    if whole > rows:  # the last block would not be whole
        x = jnp.pad(x, ((0, 0), (0, whole - rows), (0, 0)))
    ring = make_ring(axis, size, SCATTER, whole, x.dtype, both=lanes == 2)._replace(block=block)
    scratch = [
        pltpu.VMEM((lanes, 2, block, columns), jnp.float32),
        pltpu.VMEM((lanes, block, columns), x.dtype),
        pltpu.SemaphoreType.DMA((lanes,)),
    ]
    shape = (whole, columns)
    return _call(scatter_kernel, ring, x, shape, scratch, interpret, "ring_scatter")[:rows]
