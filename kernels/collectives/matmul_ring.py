"""Products whose factor or sums travel a ring, on a TPU: the transfer hides behind the product.

    gather and multiply, n devices, step s of n, for each strip of rows of the part of me − s:
        wait until the strip is here; send it on to the right, from step 1 to n − 2 too
        multiply it by w, a block of columns at a time, while the next strip is on its way
    multiply and scatter, step s of n, for each strip of rows of chunk me − s − 1:
        take the sums of the left neighbour's strip, from step 1 on
        add x w to them, a block of columns at a time, and send them to the right; at last they stay

A part is cut into strips, so that the first can be multiplied while the last still travels. Where
three devices or more are in the ring, half of the strips go the other way, in turn with the others.
Strips, sums and what neighbours send have two places each, and are written again only after the
neighbour raised `free`.

Wang et al., Overlap communication with dependent computation via decomposition in large deep
learning models, ASPLOS 2023.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.collectives.ring import (
    GATHER_MATMUL,
    MATMUL_SCATTER,
    Ring,
    make_ring,
    meet,
    send,
    signal,
)
from kernels.machines import checks
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here
from kernels.matmul import BlockSizes, sublanes

LANES = 128  # columns of a register tile
COLUMNS = 512  # of a block of w
RESERVE = 16 << 20  # bytes of VMEM that XLA keeps


class Strips(NamedTuple):
    """How the rows of a part are cut, and go round.

    Args:
        ring: its devices.
        lanes: 2 where half of the strips go the other way, else 1.
        per_lane: strips of a part that go one way.
        block: rows of a strip, all of k, columns of a block of w.
        columns: blocks of w.
        vmem_limit_bytes: what the kernel asks for.
    """

    ring: Ring
    lanes: int
    per_lane: int
    block: BlockSizes
    columns: int
    vmem_limit_bytes: int

    @property
    def grid(self):
        """A turn is a step, a strip and a lane; each multiplies all columns."""
        return self.ring.size, self.per_lane, self.lanes, self.columns

    @property
    def rows(self):
        """Of a part, in whole strips."""
        return self.lanes * self.per_lane * self.block.bm

    @property
    def messages(self):
        """That a device sends in each direction."""
        return (self.ring.size - 1) * self.per_lane

    def turn(self, number):
        """The step, the strip and the lane of a turn; which way the lane goes."""
        lane = lax.rem(number, self.lanes)
        past = lax.div(number, self.lanes)
        return lax.div(past, self.per_lane), lax.rem(past, self.per_lane), lane, 1 - 2 * lane

    def place(self, strip, lane):
        """Of a strip among all of a part."""
        return lane * self.per_lane + strip

    def part_rows(self, strip, lane):
        """The rows of a strip in its part."""
        return pl.ds(self.place(strip, lane) * self.block.bm, self.block.bm)


def make_strips(axis, size, kind, rows, w, *, sums):
    """Strips that VMEM holds.

    Args:
        axis, size: of the ring.
        kind: of the ring.
        rows: of a part.
        w: [k, columns] of x's dtype.
        sums: whether a lane keeps two strips of float32 sums.

    Raises:
        ValueError: where VMEM does not hold the smallest strip with all of k.
    """
    chip, item, (k, columns) = CHIPS[here()], w.dtype.itemsize, w.shape
    tile = sublanes(item)
    lanes = 2 if size > 2 and rows > 2 * tile else 1
    # Twice what it takes to multiply a block of w for as long as HBM takes to bring it.
    most = chip.peak(str(w.dtype)) / chip.hbm_bytes_per_second * item
    bm, bn = _even(round(most), 1, LANES), COLUMNS
    wide = _even(k, 1, LANES)
    while True:
        # Two at least, so that one travels while another is multiplied.
        count, blocks = max(pl.cdiv(rows, lanes * bm), 2), pl.cdiv(columns, bn)
        block = BlockSizes(_even(rows, lanes * count, tile), wide, _even(columns, blocks, LANES))
        own = block.vmem_bytes(w.dtype) + sums * lanes * 2 * 4 * block.bm * blocks * block.bn
        if own <= chip.vmem_bytes - RESERVE:
            limit = max(min(own * 3 // 2, chip.vmem_bytes - RESERVE // 2), chip.vmem_limit_bytes)
            ring = make_ring(axis, size, kind, rows, w.dtype)
            return Strips(ring, lanes, count, block, blocks, limit)
        if block.bm <= tile and block.bn <= LANES:
            most = (chip.vmem_bytes - RESERVE) >> 20
            words = f"at most so long that {tile} rows, {LANES} columns and sums fit in {most} MiB"
            checks.fail("w.shape", w.shape, f"{words} of VMEM of a {chip.name}")
        bm, bn = (max(bm // 2, tile), bn) if block.bm >= block.bn else (bm, max(bn // 2, LANES))


def _even(size, pieces, step):
    """The size of equal pieces, in whole steps."""
    return pl.cdiv(size, pieces * step) * step


def _multiply(x, w):
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.dot(x, w, precision=exact, preferred_element_type=jnp.float32)


def gather_matmul_kernel(
    me_ref, x_ref, w_ref, out_ref, gathered, strip, fetched, sent, arrived, free, *, strips
):
    # x_ref [rows, k] and gathered [devices, rows, k] in HBM; w_ref [k, bn], out_ref [bm, bn], strip
    # [2, bm, k]; semaphores fetched [2], sent and arrived [lanes, 2 · strips], free [lanes]
    ring, count = strips.ring, strips.per_lane
    me = me_ref[0]
    step, b, lane, column = (pl.program_id(axis) for axis in range(4))
    turn = (step * count + b) * strips.lanes + lane

    def hop(s, b, lane, way, source=None):
        place = gathered.at[ring.device(me, -way * s), strips.part_rows(b, lane)]
        slot = lax.rem(s * count + b, 2 * count)
        semaphores = sent.at[lane, slot], arrived.at[lane, slot]
        target = ring.device(me, way)
        return send(place if source is None else source, place, *semaphores, ring, target)

    def fetch(turn, source):
        slot = lax.rem(turn, 2)
        return pltpu.make_async_copy(source, strip.at[slot], fetched.at[slot])

    def begin(turn):
        """Fetch the strip of a turn, which is or comes here, and send it on."""
        s, b, lane, way = strips.turn(turn)
        message = s * count + b

        @pl.when(s == 0)
        def _():
            source = x_ref.at[strips.part_rows(b, lane)]
            fetch(turn, source).start()
            hop(s, b, lane, way, source).start()

        @pl.when(s > 0)
        def _():
            before = hop(s - 1, b, lane, way)
            before.wait_recv()

            @pl.when(message + count < strips.messages)
            def _():
                signal(free.at[lane], ring, ring.device(me, -way))

            source = gathered.at[ring.device(me, -way * s), strips.part_rows(b, lane)]
            fetch(turn, source).start()

            @pl.when(message < strips.messages)
            def _():
                onward = hop(s, b, lane, way)

                @pl.when(s > 1)
                def _():  # the semaphores of two steps ago are used again
                    onward.wait_send()
                    pl.semaphore_wait(free.at[lane], 1)

                onward.start()

    @pl.when((turn == 0) & (column == 0))
    def _():
        meet(ring, me)
        begin(turn)

    @pl.when(column == 0)
    def _():
        fetch(turn, x_ref.at[strips.part_rows(b, lane)]).wait()

    last = column == strips.columns - 1

    @pl.when(last & (turn + 1 < ring.size * count * strips.lanes))
    def _():
        begin(turn + 1)

    out_ref[...] = _multiply(strip[lax.rem(turn, 2)], w_ref[...]).astype(out_ref.dtype)

    @pl.when(last & (turn + 1 == ring.size * count * strips.lanes))
    def _():
        for lane in range(strips.lanes):
            for message in range(max(strips.messages - 2 * count, 0), strips.messages):
                hop(message // count, message % count, lane, 1 - 2 * lane).wait_send()


def matmul_scatter_kernel(me_ref, x_ref, w_ref, out_ref, landing, strip, sums, *semaphores, strips):
    # x_ref [devices, rows, k] and landing [2, strips of a part, columns, bm, bn] float32 in HBM;
    # w_ref [k, bn], out_ref [bm, bn], strip [2, bm, k], sums [lanes, 2, columns, bm, bn] float32;
    # semaphores fetched [2] of x, taken [2] of sums, sent [lanes, 2], arrived [lanes, 2 ·
    # strips], free [lanes]
    ring, count = strips.ring, strips.per_lane
    me = me_ref[0]
    step, b, lane, column = (pl.program_id(axis) for axis in range(4))
    turn = (step * count + b) * strips.lanes + lane
    message, turns = step * count + b, ring.size * count * strips.lanes
    fetched, taken, sent, arrived, free = semaphores

    def landed(message, lane):
        place = strips.place(lax.rem(message, count), lane)
        return landing.at[lax.rem(lax.div(message, count), 2), place]

    def hop(message, lane):
        slot, target = lax.rem(message, 2), ring.device(me, 1 - 2 * lane)
        pair = sent.at[lane, slot], arrived.at[lane, lax.rem(message, 2 * count)]
        return send(sums.at[lane, slot], landed(message, lane), *pair, ring, target)

    def fetch(turn):
        s, b, lane, way = strips.turn(turn)
        slot = lax.rem(turn, 2)
        part = x_ref.at[ring.device(me, -way * (s + 1)), strips.part_rows(b, lane)]
        return pltpu.make_async_copy(part, strip.at[slot], fetched.at[slot])

    def take(turn):
        """The sums that arrived as a message of the step before, to where they grow."""
        s, b, lane, _ = strips.turn(turn)
        message, slot = s * count + b, lax.rem(turn, 2)
        grown = sums.at[lane, lax.rem(message, 2)]
        return pltpu.make_async_copy(landed(message - count, lane), grown, taken.at[slot])

    def begin(turn):
        """Fetch what a turn multiplies and adds to."""
        s, b, lane, _ = strips.turn(turn)
        message = s * count + b
        fetch(turn).start()

        @pl.when((message >= 2) & (message < strips.messages + 2))
        def _():
            hop(message - 2, lane).wait_send()

        @pl.when(s > 0)
        def _():
            hop(message - count, lane).wait_recv()
            take(turn).start()

    @pl.when(column == 0)
    def _():
        @pl.when(turn == 0)
        def _():
            meet(ring, me)
            begin(turn)

        @pl.when(turn + 1 < turns)
        def _():
            begin(turn + 1)

        fetch(turn).wait()

        @pl.when(step > 0)
        def _():
            take(turn).wait()

            @pl.when(message + count < strips.messages)
            def _():  # its place may be written again
                signal(free.at[lane], ring, ring.device(me, 2 * lane - 1))

    mine = sums.at[lane, lax.rem(message, 2), column]
    total = _multiply(strip[lax.rem(turn, 2)], w_ref[...])

    @pl.when(step == 0)
    def _():
        mine[...] = total

    @pl.when((step > 0) & (step < ring.size - 1))
    def _():
        mine[...] += total

    @pl.when(step == ring.size - 1)
    def _():
        out_ref[...] = (mine[...] + total).astype(out_ref.dtype)

    @pl.when((column == strips.columns - 1) & (step < ring.size - 1))
    def _():
        @pl.when(step > 1)
        def _():
            pl.semaphore_wait(free.at[lane], 1)

        hop(message, lane).start()


def _padded(x, *sizes):
    return jnp.pad(x, [(0, size - n) for size, n in zip(sizes, x.shape)])


def _call(kernel, strips, x, w, out, place, outside, scratch, interpret, name):
    """A kernel on x in HBM and blocks of w; `outside` is what it keeps in HBM, `scratch` comes
    before the semaphores of its lanes."""
    bm, k, bn = strips.block.bm, strips.block.bk, strips.block.bn
    interpret = interprets(interpret, "tpu")
    me = lax.axis_index(strips.ring.axis).astype(jnp.int32).reshape(1)
    lanes = strips.lanes
    return pl.pallas_call(
        functools.partial(kernel, strips=strips),
        out_shape=[out, outside],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=strips.grid,
            in_specs=[
                pl.BlockSpec(memory_space=pltpu.HBM),
                pl.BlockSpec((k, bn), lambda s, b, lane, j, me: (0, j)),
            ],
            out_specs=[pl.BlockSpec((bm, bn), place), pl.BlockSpec(memory_space=pltpu.HBM)],
            scratch_shapes=[
                pltpu.VMEM((2, bm, k), x.dtype),
                *scratch,
                pltpu.SemaphoreType.DMA((lanes, 2 * strips.per_lane)),
                pltpu.SemaphoreType.REGULAR((lanes,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            collective_id=strips.ring.barrier,
            has_side_effects=True,
            dimension_semantics=("arbitrary",) * 4,
            vmem_limit_bytes=strips.vmem_limit_bytes,
        ),
        # JAX's plain interpreter knows no barrier; its simulated TPU does.
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
        name=name,
    )(me, x, w)[0]


def gather_matmul(x, w, axis, size, *, interpret=None):
    """[rows, k] of each of `size` devices, [k, columns] → [size · rows, columns]."""
    (rows, _), columns = x.shape, w.shape[1]
    strips = make_strips(axis, size, GATHER_MATMUL, rows, w, sums=False)
    block = strips.block
    x = _padded(x, strips.rows, block.bk)
    w = _padded(w, block.bk, strips.columns * block.bn)

    def place(s, b, lane, j, me):
        part = strips.ring.device(me[0], -(1 - 2 * lane) * s)
        return part * strips.lanes * strips.per_lane + strips.place(b, lane), j

    product = _call(
        gather_matmul_kernel,
        strips,
        x,
        w,
        jax.ShapeDtypeStruct((size * strips.rows, w.shape[1]), x.dtype),
        place,
        jax.ShapeDtypeStruct((size, *x.shape), x.dtype),
        [
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((strips.lanes, 2 * strips.per_lane)),
        ],
        interpret,
        "gather_matmul",
    )
    product = product.reshape(size, strips.rows, -1)[:, :rows, :columns]
    return product.reshape(size * rows, columns)


def matmul_scatter(x, w, axis, size, *, interpret=None):
    """[size · rows, k], [k, columns] → this device's [rows, columns] of the sum."""
    rows, columns = x.shape[0] // size, w.shape[1]
    strips = make_strips(axis, size, MATMUL_SCATTER, rows, w, sums=True)
    block, lanes = strips.block, strips.lanes
    x = _padded(x.reshape(size, rows, -1), size, strips.rows, block.bk)
    w = _padded(w, block.bk, strips.columns * block.bn)
    tiles = strips.columns, block.bm, block.bn

    def place(s, b, lane, j, me):
        last = s == size - 1  # before it, nothing is written
        return jnp.where(last, strips.place(b, lane), 0), jnp.where(last, j, 0)

    total = _call(
        matmul_scatter_kernel,
        strips,
        x,
        w,
        jax.ShapeDtypeStruct((strips.rows, w.shape[1]), x.dtype),
        place,
        jax.ShapeDtypeStruct((2, lanes * strips.per_lane, *tiles), jnp.float32),
        [
            pltpu.VMEM((lanes, 2, *tiles), jnp.float32),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((lanes, 2)),
        ],
        interpret,
        "matmul_scatter",
    )
    return total[:rows, :columns]
