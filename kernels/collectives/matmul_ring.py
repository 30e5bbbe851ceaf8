"""Products whose factor or sums travel a ring, on a TPU: the transfer hides behind the product.

    gather and multiply, n devices, step s of n, for each strip of rows of the part of me − s:
        wait until the strip is here; send it on to the right, from step 1 to n − 2 too
        multiply it by w, a block of columns at a time, while the next strip is on its way
    multiply and scatter, step s of n, for each strip of rows of chunk me − s − 1:
        take the sums of the left neighbour's strip, from step 1 on
        add x w to them, a block of columns at a time, and send them to the right; at last they stay

A part is cut into strips, so that the first can be multiplied while the last still travels. Where
three devices or more are in the ring, half of the strips go the other way, in turn with the others.
Strips and what neighbours send have two places each, and are written again only after the neighbour
raised `free`. Sums have four, of both ways together, so that some leave while others grow.

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
    HBM,
    MATMUL_SCATTER,
    Lane,
    Ring,
    call,
    make_ring,
    meet,
)
from kernels.machines import checks
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.products import product
from kernels.matmul import BlockSizes, sublanes

LANES = 128  # columns of a register tile
COLUMNS = 512  # of a block of w
RESERVE = 16 << 20  # bytes of VMEM that XLA keeps
STRIPS = 48  # of a lane at most: with a pair of semaphores for each, they are few enough for a chip


class Strips(NamedTuple):
    """How the rows of a part are cut, and go round.

    Args:
        ring: its devices.
        lanes: 2 where half of the strips go the other way, else 1.
        per_lane: strips of a part that go one way.
        block: rows of a strip, all of k, columns of a block of w.
        columns: blocks of w.
        late: the block of columns beside which the sums of the next strip are taken.
        vmem_limit_bytes: what the kernel asks for.
    """

    ring: Ring
    lanes: int
    per_lane: int
    block: BlockSizes
    columns: int
    late: int
    vmem_limit_bytes: int

    @property
    def rows(self):
        """Of a part, in whole strips."""
        return self.lanes * self.per_lane * self.block.bm

    @property
    def places(self):
        """Of the sums of a lane; as many as a step's strips at most, so that all leave in time."""
        return min(4 // self.lanes, self.per_lane)

    @property
    def messages(self):
        """That a device sends in each direction."""
        return (self.ring.size - 1) * self.per_lane

    @property
    def turns(self):
        """Strips that a device multiplies: of a step, of each lane in turn."""
        return self.ring.size * self.per_lane * self.lanes

    def turn(self, number, me, free):
        """The step of a turn, the strip, its number as a message, and its lane."""
        message, lane = lax.div(number, self.lanes), lax.rem(number, self.lanes)
        strip = lax.rem(message, self.per_lane)
        return lax.div(message, self.per_lane), strip, message, self.lane(lane, me, free)

    def lane(self, number, me, free):
        return Lane(self.ring, me, number, 1 - 2 * number, free)

    def place(self, strip, lane):
        """Of a strip among all of a part."""
        return lane * self.per_lane + strip

    def part_rows(self, strip, lane):
        """The rows of a strip in its part."""
        return pl.ds(self.place(strip, lane.number) * self.block.bm, self.block.bm)


def make_strips(axis, size, kind, rows, w):
    """Strips that VMEM holds.

    Args:
        axis, size: of the ring.
        kind: of the ring; MATMUL_SCATTER keeps four strips of float32 sums.
        rows: of a part.
        w: [k, columns] of x's dtype.

    Raises:
        ValueError: where VMEM does not hold the smallest strip with all of k.
    """
    chip, item, (k, columns) = CHIPS[here()], w.dtype.itemsize, w.shape
    tile = sublanes(item)
    lanes = 2 if size > 2 and rows > 2 * tile else 1
    # Twice what it takes to multiply a block of w for as long as HBM takes to bring it.
    most = chip.peak(str(w.dtype)) / chip.hbm_bytes_per_second * item
    bm = _even(max(round(most), rows // (lanes * STRIPS)), 1, LANES)
    bn, sums = COLUMNS, kind == MATMUL_SCATTER
    wide = _even(k, 1, LANES)
    while True:
        # Two at least, so that one travels while another is multiplied.
        count, blocks = max(pl.cdiv(rows, lanes * bm), 2), pl.cdiv(columns, bn)
        block = BlockSizes(_even(rows, lanes * count, tile), wide, _even(columns, blocks, LANES))
        own = block.vmem_bytes(w.dtype)
        need = own + sums * 4 * min(lanes * count, 4) * block.bm * blocks * block.bn
        if need <= chip.vmem_bytes - RESERVE:
            limit = max(min(need + own // 2, chip.vmem_bytes - RESERVE // 2), chip.vmem_limit_bytes)
            ring = make_ring(axis, size, kind, rows, w.dtype)
            # Float32 sums come from HBM beside the products of the blocks behind it.
            late = max(blocks - 1 - pl.cdiv(round(2 * most / item * blocks), wide), 0)
            return Strips(ring, lanes, count, block, blocks, late, limit)
        if block.bm <= tile and block.bn <= LANES:
            most = (chip.vmem_bytes - RESERVE) >> 20
            words = f"at most so long that {tile} rows, {LANES} columns and sums fit in {most} MiB"
            checks.fail("w.shape", w.shape, f"{words} of VMEM of a {chip.name}")
        bm, bn = (max(bm // 2, tile), bn) if block.bm >= block.bn else (bm, max(bn // 2, LANES))


def _even(size, pieces, step):
    """The size of equal pieces, in whole steps."""
    return pl.cdiv(size, pieces * step) * step


def gather_matmul_kernel(
    me_ref, x_ref, w_ref, out_ref, gathered, strip, fetched, sent, arrived, free, *, strips
):
    # x_ref [1, rows, k] and gathered [devices, rows, k] in HBM; w_ref [k, bn], out_ref [bm, bn],
    # strip [2, bm, k]; semaphores fetched [2], sent and arrived [lanes, 2 · strips], free [lanes]
    count, me, column = strips.per_lane, me_ref[0], pl.program_id(3)
    step, b, number = (pl.program_id(axis) for axis in range(3))
    turn = (step * count + b) * strips.lanes + number

    def hop(message, lane, source=None):
        s, b = lax.div(message, count), lax.rem(message, count)
        place = gathered.at[lane.device(-s), strips.part_rows(b, lane)]
        slot = lane.number, lax.rem(message, 2 * count)
        return lane.hop(place if source is None else source, place, sent.at[slot], arrived.at[slot])

    def fetch(turn, source):
        slot = lax.rem(turn, 2)
        return pltpu.make_async_copy(source, strip.at[slot], fetched.at[slot])

    def begin(turn):
        """Fetch the strip of a turn, which is or comes here, and send it on."""
        s, b, message, lane = strips.turn(turn, me, free)
        rows = strips.part_rows(b, lane)

        @pl.when(s == 0)
        def _():
            fetch(turn, x_ref.at[0, rows]).start()
            hop(message, lane, x_ref.at[0, rows]).start()

        @pl.when(s > 0)
        def _():
            hop(message - count, lane).wait_recv()
            lane.raise_free(message + count < strips.messages)
            fetch(turn, gathered.at[lane.device(-s), rows]).start()

            @pl.when(message < strips.messages)
            def _():
                onward = hop(message, lane)

                # The semaphores of two steps ago are used again.
                pl.when(s > 1)(onward.wait_send)
                lane.wait_free(s > 1)
                onward.start()

    @pl.when(column == 0)
    def _():
        @pl.when(turn == 0)
        def _():
            meet(strips.ring, me)
            begin(turn)

        fetch(turn, x_ref.at[0, pl.ds(0, strips.block.bm)]).wait()

    last = column == strips.columns - 1
    pl.when(last & (turn + 1 < strips.turns))(lambda: begin(turn + 1))
    out_ref[...] = product(strip[lax.rem(turn, 2)], w_ref[...]).astype(out_ref.dtype)

    @pl.when(last & (turn + 1 == strips.turns))
    def _():
        for lane in (strips.lane(number, me, free) for number in range(strips.lanes)):
            for message in range(max(strips.messages - 2 * count, 0), strips.messages):
                hop(message, lane).wait_send()


def matmul_scatter_kernel(
    me_ref, x_ref, w_ref, out_ref, mail, strip, sums, fetched, taken, sent, arrived, free, *, strips
):
    # x_ref [devices, rows, k] and mail [2, strips of a part, columns, bm, bn] float32 in HBM;
    # w_ref [k, bn], out_ref [bm, bn], strip [2, bm, k], sums [lanes, places, columns, bm, bn]
    # float32; semaphores fetched [2] of x, taken [2] of sums, sent [lanes, places], arrived
    # [lanes, 2 · strips], free [lanes]
    count, places, me, column = strips.per_lane, strips.places, me_ref[0], pl.program_id(3)
    step, b, number = (pl.program_id(axis) for axis in range(3))
    message, lane = step * count + b, strips.lane(number, me, free)
    turn, final = message * strips.lanes + number, step == strips.ring.size - 1

    def landed(message, lane):
        place = strips.place(lax.rem(message, count), lane.number)
        return mail.at[lax.rem(lax.div(message, count), 2), place]

    def grown(message, lane):
        return sums.at[lane.number, lax.rem(message, places)]

    def hop(message, lane):
        left = sent.at[lane.number, lax.rem(message, places)]
        came = arrived.at[lane.number, lax.rem(message, 2 * count)]
        return lane.hop(grown(message, lane), landed(message, lane), left, came)

    def fetch(turn):
        s, b, _, lane = strips.turn(turn, me, free)
        slot = lax.rem(turn, 2)
        part = x_ref.at[lane.device(-s - 1), strips.part_rows(b, lane)]
        return pltpu.make_async_copy(part, strip.at[slot], fetched.at[slot])

    def take(turn):
        """The sums that arrived as a message of the step before, to where they grow."""
        _, _, message, lane = strips.turn(turn, me, free)
        came, slot = landed(message - count, lane), lax.rem(turn, 2)
        return pltpu.make_async_copy(came, grown(message, lane), taken.at[slot])

    def make_room(turn):
        """Where the sums of a turn grow: what was there leaves, what they start from comes."""
        s, _, message, lane = strips.turn(turn, me, free)
        leaving = (message >= places) & (message < strips.messages + places)
        pl.when(leaving)(lambda: hop(message - places, lane).wait_send())

        @pl.when(s > 0)
        def _():
            hop(message - count, lane).wait_recv()
            take(turn).start()

    @pl.when(column == 0)
    def _():
        @pl.when(turn == 0)
        def _():
            meet(strips.ring, me)
            fetch(turn).start()

        pl.when(turn + 1 < strips.turns)(lambda: fetch(turn + 1).start())
        fetch(turn).wait()

        @pl.when(step > 0)
        def _():
            take(turn).wait()
            lane.raise_free(message + count < strips.messages)

    # As late as may be: what one neighbour waits for, the other waits for next.
    pl.when((turn + 1 < strips.turns) & (column == strips.late))(lambda: make_room(turn + 1))
    mine = grown(message, lane).at[column]
    total = product(strip[lax.rem(turn, 2)], w_ref[...])

    @pl.when(step == 0)
    def _():
        mine[...] = total

    @pl.when((step > 0) & jnp.logical_not(final))
    def _():
        mine[...] += total

    @pl.when(final)
    def _():
        out_ref[...] = (mine[...] + total).astype(out_ref.dtype)

    @pl.when((column == strips.columns - 1) & jnp.logical_not(final))
    def _():
        lane.wait_free(step > 1)
        hop(message, lane).start()


def _run(kernel, strips, x, w, parts, place, outside, scratch, interpret, name):
    """A kernel on parts of x, in HBM, and blocks of w.

    Args:
        x: [parts, rows, k].
        parts: of the result.
        place: the block of the result that a turn writes.
        outside: shape and dtype of what the kernel keeps in HBM.
        scratch: what comes before the semaphores of its lanes.
    """
    bm, k, bn = strips.block.bm, strips.block.bk, strips.block.bn
    (_, rows, depth), columns = x.shape, w.shape[1]
    x = jnp.pad(x, ((0, 0), (0, strips.rows - rows), (0, k - depth)))
    w = jnp.pad(w, ((0, k - depth), (0, strips.columns * bn - columns)))
    result, _ = call(
        functools.partial(kernel, strips=strips),
        strips.ring,
        interpret,
        out_shape=[
            jax.ShapeDtypeStruct((parts * strips.rows, w.shape[1]), x.dtype),
            jax.ShapeDtypeStruct(*outside),
        ],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(strips.ring.size, strips.per_lane, strips.lanes, strips.columns),
            in_specs=[HBM, pl.BlockSpec((k, bn), lambda s, b, lane, j, me: (0, j))],
            out_specs=[pl.BlockSpec((bm, bn), place), HBM],
            scratch_shapes=[
                pltpu.VMEM((2, bm, k), x.dtype),
                *scratch,
                pltpu.SemaphoreType.DMA((strips.lanes, 2 * strips.per_lane)),
                pltpu.SemaphoreType.REGULAR((strips.lanes,)),
            ],
        ),
        semantics=("arbitrary",) * 4,
        vmem_limit_bytes=strips.vmem_limit_bytes,
        name=name,
    )(lax.axis_index(strips.ring.axis).astype(jnp.int32).reshape(1), x, w)
    return result.reshape(parts, strips.rows, -1)[:, :rows, :columns].reshape(-1, columns)


def gather_matmul(x, w, axis, size, *, interpret=None):
    """[rows, k] of each of `size` devices, [k, columns] → [size · rows, columns]."""
    strips = make_strips(axis, size, GATHER_MATMUL, len(x), w)
    copies = pltpu.SemaphoreType.DMA((strips.lanes, 2 * strips.per_lane))
    scratch = [pltpu.SemaphoreType.DMA((2,)), copies]
    outside = (size, strips.rows, strips.block.bk), x.dtype

    def place(s, b, lane, j, me):
        part = strips.lane(lane, me[0], None).device(-s)
        return part * strips.lanes * strips.per_lane + strips.place(b, lane), j

    options = (outside, scratch, interpret, "gather_matmul")
    return _run(gather_matmul_kernel, strips, x[None], w, size, place, *options)


def matmul_scatter(x, w, axis, size, *, interpret=None):
    """[size · rows, k], [k, columns] → this device's [rows, columns] of the sum."""
    x = x.reshape(size, -1, x.shape[1])
    strips = make_strips(axis, size, MATMUL_SCATTER, x.shape[1], w)
    tiles = strips.columns, strips.block.bm, strips.block.bn
    places = strips.lanes, strips.places
    copies = [pltpu.SemaphoreType.DMA(shape) for shape in ((2,), (2,), places)]
    scratch = [pltpu.VMEM((*places, *tiles), jnp.float32), *copies]
    outside = (2, strips.lanes * strips.per_lane, *tiles), jnp.float32

    def place(s, b, lane, j, me):
        last = s == size - 1  # before it, nothing is written
        return jnp.where(last, strips.place(b, lane), 0), jnp.where(last, j, 0)

    options = (outside, scratch, interpret, "matmul_scatter")
    return _run(matmul_scatter_kernel, strips, x, w, 1, place, *options)
