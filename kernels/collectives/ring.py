"""Rings by remote DMA, on a TPU: each device talks to its two neighbours alone.

    gather, n devices, step s of n − 1, or in both directions of ⌊n / 2⌋:
        send block (me − s) to the right
        receive block (me − s − 1) from the left
    reduce and scatter, step s of n − 1:
        send the sum of chunk (me − s − 1) to the right
        receive that of chunk (me − s − 2) from the left, and add mine

So that both directions of each link work, a gather sends whole blocks both ways, none farther than
half of the ring, and a scatter half of the rows each way, where there are enough. Who receives says
so: a buffer is written again only after the neighbour raised `free`, so however fast one device is,
it overwrites nothing that is still read.

Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here

BLOCK = 1 << 20  # bytes of a block of float32 sums at most: long beside a hop, short in VMEM
KINDS = range(6)  # no two share a barrier
GATHER, SCATTER, GATHER_MATMUL, MATMUL_SCATTER, ATTENTION, ALL_TO_ALL = KINDS
HBM = pl.BlockSpec(memory_space=pltpu.HBM)


class Ring(NamedTuple):
    """What a kernel knows of its ring.

    Args:
        axis: of the mesh.
        size: devices along it.
        barrier: its collective_id, which no other ring of the program has.
        parts: for each direction, 1 or −1, the first row (or head) and how many.
    """

    axis: str
    size: int
    barrier: int
    parts: tuple[tuple[int, int, int], ...]

    def device(self, me: Any, steps: Any) -> Any:
        """The device so many steps from this one."""
        return lax.rem(me + steps + 2 * self.size, self.size)

    def lanes(self, me: Any, free: Any) -> list["Lane"]:
        """Its directions, of this device."""
        return [Lane(self, me, n, way, free) for n, (way, *_) in enumerate(self.parts)]


class Lane(NamedTuple):
    """What a device knows of one direction of its ring.

    Args:
        ring: that it is of.
        me: the device.
        number: among the directions; a traced one too.
        way: 1 or −1; `right` is where it leads.
        free: [directions] of signals.
    """

    ring: Ring
    me: Any
    number: Any
    way: Any
    free: Any

    def device(self, steps: Any) -> Any:
        """The device so many steps to the right."""
        return self.ring.device(self.me, self.way * steps)

    def hop(self, source: Any, target: Any, sent: Any, arrived: Any) -> Any:
        """The copy to the neighbour on the right."""
        to: dict[Any, Any] = {self.ring.axis: self.device(1)}
        mesh = pl.DeviceIdType.MESH
        return pltpu.make_async_remote_copy(source, target, sent, arrived, to, mesh)

    def wait_free(self, when: Any) -> None:
        """Until the neighbour on the right needs no more what it has in the next place."""
        pl.when(when)(lambda: pl.semaphore_wait(self.free.at[self.number], 1))

    def raise_free(self, when: Any) -> None:
        """The neighbour on the left may write again."""
        pl.when(when)(lambda: signal(self.free.at[self.number], self.ring, self.device(-1)))


def make_ring(axis, size, kind, rows, dtype=None, both=True):
    """The ring along an axis; both directions where each gets whole tiles of rows of a dtype."""
    mesh = jax.sharding.get_abstract_mesh()
    place = mesh.axis_names.index(axis) if axis in mesh.axis_names else 0
    tile = 32 // jnp.dtype(dtype).itemsize if dtype else 1
    half = rows // 2 // tile * tile
    parts = ((1, half, rows - half), (-1, 0, half)) if both and half else ((1, 0, rows),)
    return Ring(axis, size, len(KINDS) * place + kind, parts)


def signal(semaphore, ring, device):
    mesh = pl.DeviceIdType.MESH
    pl.semaphore_signal(semaphore, 1, device_id={ring.axis: device}, device_id_type=mesh)


def meet(ring, me, steps=(1, -1)):
    """Wait until both neighbours have entered the kernel: their memory may be written now. With
    other steps, until those devices have.

    Nobody ends before all have met, since each needs something of all the others: what the next
    kernel signals, this one does not hear.
    """
    barrier = pltpu.get_barrier_semaphore()
    for step in steps:
        signal(barrier, ring, ring.device(me, step))
    pl.semaphore_wait(barrier, len(steps))


def call(kernel, ring, interpret, *, vmem_limit_bytes=None, semantics=None, **options):
    """pl.pallas_call of a kernel that talks to its neighbours; of a ring of one, to nobody."""
    interpret = interprets(interpret, "tpu")
    return pl.pallas_call(
        kernel,
        compiler_params=pltpu.CompilerParams(
            collective_id=ring.barrier if ring.size > 1 else None,
            has_side_effects=True,
            dimension_semantics=semantics,
            vmem_limit_bytes=vmem_limit_bytes or CHIPS[here()].vmem_limit_bytes,
        ),
        # JAX's plain interpreter knows no barrier; its simulated TPU does.
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
        **options,
    )


def gather_kernel(x_ref, out_ref, own, sent, arrived, free, *, ring, halves):
    # x_ref [rows, columns], out_ref [devices, rows, columns], in HBM; semaphores own,
    # sent and arrived [directions, 2] of copies, free [directions] of signals
    me, ways = lax.axis_index(ring.axis), len(ring.parts)
    meet(ring, me)
    mine = pltpu.make_async_copy(x_ref, out_ref.at[me], own)
    mine.start()
    lanes, steps = ring.lanes(me, free), pl.cdiv(ring.size - 1, ways)
    # A block that is as far by either way comes half by each, or all of it by one.
    last = halves if (ring.size - 1) % ways else ring.parts

    def step(s, parts, first=False):
        hops = []
        for lane, (_, start, rows) in zip(lanes, parts, strict=False):
            part = out_ref.at[lane.device(-s), pl.ds(start, rows)]
            source = x_ref.at[pl.ds(start, rows)] if first else part
            slot = lane.number, s % 2
            hops.append(lane.hop(source, part, sent.at[slot], arrived.at[slot]))
            lane.wait_free(s >= 2)  # the neighbour has seen what these semaphores told it before
            hops[-1].start()
        for lane, hop in zip(lanes, hops, strict=False):
            hop.wait_recv()
            lane.raise_free(s < steps - 2 - (lane.number >= len(last)))
            hop.wait_send()

    step(0, ring.parts if steps > 1 else last, first=True)
    lax.fori_loop(1, steps - 1, lambda s, _: step(s, ring.parts), None)
    if steps > 1:
        step(steps - 1, last)
    mine.wait()


def scatter_kernel(x_ref, out_ref, sums, own, fetched, sent, arrived, free, *, ring, block):
    # x_ref [devices, rows, columns], out_ref [rows, columns], in HBM; in VMEM for each direction
    # sums [2, block, columns] float32 and own [block, columns]; semaphores as of gather_kernel
    me = lax.axis_index(ring.axis)
    hops, blocks = ring.size - 1, ring.parts[0][2] // block
    meet(ring, me)
    lanes = ring.lanes(me, free)

    def rows(lane, t):
        past = t // hops * block if blocks > 1 else 0  # a block alone may have any size
        return pl.ds(ring.parts[lane.number][1] + past, block)

    def fetch(lane, t, chunk):
        part = x_ref.at[chunk, rows(lane, t)]
        return pltpu.make_async_copy(part, own.at[lane.number], fetched.at[lane.number])

    def step(t, _):
        s, slot, other = t % hops, t % 2, (t + 1) % 2

        @pl.when(s == 0)
        def _():
            firsts = [fetch(lane, t, lane.device(-1)) for lane in lanes]
            for first in firsts:
                first.start()
            for number, first in enumerate(firsts):
                first.wait()
                sums[number, slot] = own[number].astype(jnp.float32)

        sends, fetches = [], []
        for lane in lanes:
            lane.wait_free(t >= 1)  # the neighbour has sent on what this slot held
            now, later = (lane.number, slot), (lane.number, other)
            sends.append(lane.hop(sums.at[now], sums.at[later], sent.at[now], arrived.at[now]))
            fetches.append(fetch(lane, t, lane.device(-s - 2)))
            sends[-1].start()
            fetches[-1].start()
        for number, lane in enumerate(lanes):
            fetches[number].wait()
            sends[number].wait_recv()
            sums[number, other] += own[number].astype(jnp.float32)
            sends[number].wait_send()
            lane.raise_free(t < hops * blocks - 1)

        @pl.when(s == hops - 1)
        def _():
            for number, lane in enumerate(lanes):
                own[number] = sums[number, other].astype(own.dtype)
                target = out_ref.at[rows(lane, t)]
                done = pltpu.make_async_copy(own.at[number], target, fetched.at[number])
                done.start()
                done.wait()

    lax.fori_loop(0, hops * blocks, step, None)


def _run(kernel, ring, x, shape, scratch, interpret, name):
    """A kernel on x in HBM; `scratch` comes before the semaphores of its directions."""
    lanes = len(ring.parts)
    copies = [pltpu.SemaphoreType.DMA((lanes, 2))] * 2
    options = {
        "out_shape": jax.ShapeDtypeStruct(shape, x.dtype),
        "scratch_shapes": [*scratch, *copies, pltpu.SemaphoreType.REGULAR((lanes,))],
    }
    kernel = functools.partial(kernel, ring=ring)
    return call(kernel, ring, interpret, in_specs=[HBM], out_specs=HBM, name=name, **options)(x)


def gather(x, axis, size, *, both=True, interpret=None):
    """[rows, columns] of each of `size` devices → [size · rows, columns] on each."""
    if size == 1:
        return x
    rows, scratch = x.shape[0], [pltpu.SemaphoreType.DMA]
    ring = make_ring(axis, size, GATHER, rows, x.dtype, both)
    ways = (1, -1) if both and size > 2 else (1,)
    whole = ring._replace(parts=tuple((way, 0, rows) for way in ways))
    kernel = functools.partial(gather_kernel, halves=ring.parts)
    gathered = _run(kernel, whole, x, (size, *x.shape), scratch, interpret, "ring_gather")
    return gathered.reshape(-1, x.shape[1])


def scatter(x, axis, size, *, both=True, interpret=None):
    """[size · rows, columns] of each device → the sum of this device's [rows, columns]."""
    if size == 1:
        return x
    rows, columns = x.shape[0] // size, x.shape[1]
    tile = 32 // jnp.dtype(x.dtype).itemsize
    lanes = 2 if both and rows >= 2 * tile else 1
    most = max(BLOCK // (4 * columns) // tile * tile, tile)
    blocks = pl.cdiv(rows, lanes * most)
    block = pl.cdiv(rows, lanes * blocks * tile) * tile if lanes * blocks > 1 else rows
    whole = lanes * blocks * block  # or else the last block would not be whole
    x = jnp.pad(x.reshape(size, rows, columns), ((0, 0), (0, whole - rows), (0, 0)))
    ring = make_ring(axis, size, SCATTER, whole, x.dtype, both=lanes == 2)
    scratch = [
        pltpu.VMEM((lanes, 2, block, columns), jnp.float32),
        pltpu.VMEM((lanes, block, columns), x.dtype),
        pltpu.SemaphoreType.DMA((lanes,)),
    ]
    kernel = functools.partial(scatter_kernel, block=block)
    return _run(kernel, ring, x, (whole, columns), scratch, interpret, "ring_scatter")[:rows]
