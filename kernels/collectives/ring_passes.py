"""Ring attention by remote DMA, on a TPU: what is mine stays, what travels meets it.

    forward: q stays, k and v travel; step s of n:
        send on the k and v of device me − s, which I hold, to the right
        the queries meet them: m, l, acc of the online softmax go on
        receive those of device me − s − 1 from the left
    backward, in two such rings, since p is made again of q, k and lse:
        q, do stay, k, v travel:  dq += ds k
        k, v stay, q, do travel:  dk += dsᵀ q, dv += pᵀ do

Half of the heads go round the other way, where there are two, so that both directions of each link
work. A slot is written again only after its owner raised `free`. The scores are kept as [keys,
queries]: the softmax then reduces over sublanes, and its statistics are rows.

Liu, Zaharia and Abbeel, Ring attention with blockwise transformers, 2023; the balance of a causal
one is that of Brandon et al., Striped attention, 2023, by two pieces a device.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.compat import jax_interpreter
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here

TOKENS = 1024  # of a block at most
QUERIES, KEYS = 256, 128  # of a tile of scores
LANES = 128
LOG2E = math.log2(math.e)  # exp(s) is exp2(s log2 e), and exp2 is what the hardware has
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score that no softmax sees
BARRIER = 16  # collective_ids from here on; those of the other rings lie below


class Ring(NamedTuple):
    """What a kernel knows of its ring and of its part of the sequence.

    Args:
        axis: of the mesh.
        size: devices along it.
        barrier: its collective_id.
        lanes: for each direction, 1 or −1, the first head and how many.
        parts: 2 pieces of the sequence if causal, the one before the other; else 1.
        length: tokens of a piece.
        block: tokens of a block; a piece is padded to whole ones.
        blocks: of a piece.
        scale: of the scores.
    """

    axis: str
    size: int
    barrier: int
    lanes: tuple[tuple[int, int, int], ...]
    parts: int
    length: int
    block: int
    blocks: int
    scale: float

    def device(self, me: Any, steps: Any) -> Any:
        """The device so many steps from this one."""
        return lax.rem(me + steps + 2 * self.size, self.size)

    def source(self, me: Any, step: Any, head: Any) -> Any:
        """The device from which what a head meets at a step came."""
        ways = [self.device(me, -way * step) for way, *_ in self.lanes]
        return jnp.where(head < self.lanes[0][2], ways[0], ways[-1])

    def pairs(self, first: bool) -> int:
        """How many pairs of pieces meet at a step: those that see each other."""
        return 1 if self.parts == 1 else 3 if first else 2

    def pair(self, p: Any, first: bool, behind: Any) -> tuple[Any, Any]:
        """The pieces of queries and of keys of pair p.

        Of the own ones, each sees itself, and the late one the early one. Keys of a device behind:
        both see its early piece. Of a device ahead: the late one sees both of its pieces, since
        the late pieces stand in the opposite order.
        """
        if self.parts == 1:
            return 0, 0
        if first:
            return jnp.minimum(p, 1), jnp.maximum(p - 1, 0)
        return jnp.where(behind, p, 1), jnp.where(behind, 0, p)


class Sum(NamedTuple):
    """An array that is added up over the ring, float32: its tokens' axis in a block, its first
    value, and whether it is a row, not D wide."""

    tokens: int
    initial: float = 0.0
    row: bool = False

    def shape(self, tokens, head_dim):
        width = 1 if self.row else head_dim
        return (width, tokens) if self.tokens else (tokens, width)


class Pass(NamedTuple):
    """One ring: what stays, what travels, what is added up.

    Args:
        name: of the kernel.
        body: (ring, hides, refs of what stays, of what travels, of the sums), of one block each.
        keys_travel: whether keys do, and not queries.
        stay, travel: for each array the axis of its tokens in a block, 0 or 1.
        sums: of the kind that stays.
    """

    name: str
    body: Any
    keys_travel: bool
    stay: tuple[int, ...]
    travel: tuple[int, ...]
    sums: tuple[Sum, ...]


def dot(x, y, x_axis, y_axis):
    """The product over these axes, in float32."""
    if 1 in x.shape + y.shape:  # no product of matrices: Mosaic takes it in float32 alone
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    axes = (((x_axis,), (y_axis,)), ((), ()))
    return lax.dot_general(x, y, axes, precision=precision, preferred_element_type=jnp.float32)


class Tile(NamedTuple):
    """A tile of scores in a block: queries and keys as slices, and which of them count."""

    ring: Ring
    queries: Any
    keys: Any
    hides: Any  # None, or (first key of the block in its piece, whether the diagonal runs here)

    def scores(self, q_ref, k_ref):
        """log2(e) scale k qᵀ, [keys, queries], hidden where a key is none or comes too late."""
        s = dot(k_ref[self.keys], q_ref[self.queries], 1, 1) * (self.ring.scale * LOG2E)
        if self.hides is None:
            return s
        start, diagonal = self.hides
        keys = self.keys.start + lax.broadcasted_iota(jnp.int32, s.shape, 0)
        queries = self.queries.start + lax.broadcasted_iota(jnp.int32, s.shape, 1)
        seen = (start + keys < self.ring.length) & ((keys <= queries) | jnp.logical_not(diagonal))
        return jnp.where(seen, s, HIDDEN)


def _tiles(ring, hides, start):
    """The tiles of a block with start(tile), which is called for the next one before that: the MXU
    works on the next scores while the vector units are busy with the softmax of these."""

    def cut(size):
        return [slice(i, min(i + size, ring.block)) for i in range(0, ring.block, size)]

    tiles = [Tile(ring, q, k, hides) for q in cut(QUERIES) for k in cut(KEYS)]
    started = start(tiles[0])
    for tile, following in zip(tiles, [*tiles[1:], None], strict=True):
        current = started
        if following:
            started = start(following)
        yield tile, current


def forward_body(ring, hides, stay, travel, sums):
    # q_ref [queries, D]; k_ref, v_ref [keys, D]; acc_ref [D, queries], m_ref, l_ref [1, queries]
    (q_ref,), (k_ref, v_ref) = stay, travel
    for tile, s in _tiles(ring, hides, lambda tile: tile.scores(q_ref, k_ref)):
        if tile.keys.start == 0:
            acc, before, l = (ref[:, tile.queries] for ref in sums)
        m = jnp.maximum(before, jnp.max(s, axis=0, keepdims=True))
        p, shrink = jnp.exp2(s - m), jnp.exp2(before - m)
        l = l * shrink + jnp.sum(p, axis=0, keepdims=True)
        v = v_ref[tile.keys]
        acc = acc * shrink + dot(v, p.astype(v.dtype), 0, 0)
        before = m
        if tile.keys.stop == ring.block:
            for ref, value in zip(sums, (acc, m, l), strict=True):
                ref[:, tile.queries] = value


def _gradients(ring, hides, q_ref, do_ref, rows_ref, k_ref, v_ref):
    """Each tile with p and ds, [keys, queries] in the dtype of the arguments.

    rows_ref [2, queries] holds lse and delta.
    """

    def start(tile):
        return tile.scores(q_ref, k_ref), dot(v_ref[tile.keys], do_ref[tile.queries], 1, 1)

    for tile, (s, dp) in _tiles(ring, hides, start):
        lse, delta = (rows_ref[row : row + 1, tile.queries] for row in (0, 1))
        p = jnp.exp2(s - lse)
        yield tile, p.astype(q_ref.dtype), (p * (dp - delta)).astype(q_ref.dtype)


def queries_body(ring, hides, stay, travel, sums):
    # q_ref, do_ref [queries, D], rows_ref [2, queries]; k_ref, v_ref [keys, D]; dq_ref [D, queries]
    k_ref, (dq_ref,) = travel[0], sums
    for tile, _, ds in _gradients(ring, hides, *stay, *travel):
        dq_ref[:, tile.queries] += dot(k_ref[tile.keys], ds, 0, 0)


def keys_body(ring, hides, stay, travel, sums):
    # k_ref, v_ref, dk_ref, dv_ref [keys, D]; q_ref, do_ref [queries, D], rows_ref [2, queries]
    (q_ref, do_ref, _), (dk_ref, dv_ref) = travel, sums
    for tile, p, ds in _gradients(ring, hides, *travel, *stay):
        dv_ref[tile.keys] += dot(p, do_ref[tile.queries], 1, 0)
        dk_ref[tile.keys] += dot(ds, q_ref[tile.queries], 1, 0)


FORWARD = Pass(
    *("ring_attention_forward", forward_body, True, (0,), (0, 0)),
    (Sum(1), Sum(1, HIDDEN, row=True), Sum(1, row=True)),
)
QUERY_GRADIENT = Pass("ring_attention_dq", queries_body, True, (0, 0, 1), (0, 0), (Sum(1),))
KEY_GRADIENT = Pass("ring_attention_dkdv", keys_body, False, (0, 0), (0, 0, 1), (Sum(0), Sum(0)))


def _meet(ring, way, me, step, first, stay, travel, sums):
    """All that is here at a step meets what stays: a pipeline over blocks in VMEM."""

    def pieces(h, p):
        """Of what stays and of what travels, in pair p."""
        other = ring.source(me, step, h)
        queries, keys = ring.pair(p, first, other < me if way.keys_travel else me < other)
        return (queries, keys) if way.keys_travel else (keys, queries)

    diagonals = first and ring.parts == 2  # of pairs 0 and 2, the pieces that see themselves
    padded = ring.block * ring.blocks > ring.length

    def spec(ref, axis, stays):
        def index(h, i, p, j):
            if diagonals:  # a block that is not looked at is not fetched either
                j = jnp.where(p == 1, j, (jnp.minimum if way.keys_travel else jnp.maximum)(i, j))
            places = (i, 0) if stays else (j, 0)
            return (h, pieces(h, p)[not stays], *places[:: -1 if axis else 1])

        shape = list(ref.shape[-2:])
        shape[axis] = ring.block
        return pl.BlockSpec((None, None, *shape), index)

    def body(*refs):
        h, i, p, j = map(pl.program_id, range(4))
        inputs, after = refs[: -len(sums)], refs[-len(sums) :]
        mine, others = inputs[: len(stay)], inputs[len(stay) :][: len(travel)]
        before = inputs[len(stay) + len(travel) :]

        @pl.when((j == 0) & ((p == 0) | (pieces(h, p)[0] != pieces(h, p - 1)[0])))
        def _():
            for place, ref in enumerate(after):
                initial = jnp.full(ref.shape, way.sums[place].initial, ref.dtype)
                ref[...] = initial if first else before[place][...]

        def run(hides):
            way.body(ring, hides, mine, others, after)

        if not diagonals and not padded:
            return run(None)
        query, key = (i, j) if way.keys_travel else (j, i)
        diagonal = (p != 1) & diagonals
        seen = jnp.logical_not(diagonal) | (key <= query)
        hides = (diagonal & (key == query)) | ((key == ring.blocks - 1) & padded)
        pl.when(seen & hides)(lambda: run((key * ring.block, diagonal & (key == query))))
        pl.when(seen & jnp.logical_not(hides))(lambda: run(None))

    sum_specs = [spec(ref, s.tokens, True) for ref, s in zip(sums, way.sums, strict=True)]
    pipeline = pltpu.emit_pipeline(
        body,
        grid=(stay[0].shape[0], ring.blocks, ring.pairs(first), ring.blocks),
        in_specs=[
            *(spec(ref, axis, True) for ref, axis in zip(stay, way.stay, strict=True)),
            *(spec(ref, axis, False) for ref, axis in zip(travel, way.travel, strict=True)),
            *([] if first else sum_specs),
        ],
        out_specs=sum_specs,
    )
    pipeline(*stay, *travel, *([] if first else sums), *sums)


def kernel(*refs, ring, way):
    # all in HBM: what stays and travels [heads, parts, …]; the sums, float32; for what travels,
    # slots [2, heads, parts, …]. Semaphores: sent and arrived [arrays, directions, 2] of copies,
    # free [directions] of signals
    *refs, sent, arrived, free = refs
    counts = (len(way.stay), len(way.travel), len(way.sums))
    refs = iter(refs)
    stay, travel, sums = ([next(refs) for _ in range(count)] for count in counts)
    slots = list(refs)
    if ring.size == 1:
        return _meet(ring, way, 0, 0, True, stay, travel, sums)
    me = lax.axis_index(ring.axis)
    mesh = pl.DeviceIdType.MESH

    def signal(semaphore, device):
        pl.semaphore_signal(semaphore, 1, device_id={ring.axis: device}, device_id_type=mesh)

    # Who sends hears from who receives, and hears no second time before it has sent.
    barrier = pltpu.get_barrier_semaphore()
    for direction, *_ in ring.lanes:
        signal(barrier, ring.device(me, -direction))
    pl.semaphore_wait(barrier, len(ring.lanes))

    def step(s, first=False):
        held = travel if first else [slot.at[(s - 1) % 2] for slot in slots]

        def hops(lane):
            direction, start, heads = ring.lanes[lane]
            return [
                pltpu.make_async_remote_copy(
                    src_ref=source.at[pl.ds(start, heads)],
                    dst_ref=slot.at[s % 2, pl.ds(start, heads)],
                    send_sem=sent.at[place, lane, s % 2],
                    recv_sem=arrived.at[place, lane, s % 2],
                    device_id={ring.axis: ring.device(me, direction)},
                    device_id_type=mesh,
                )
                for place, (source, slot) in enumerate(zip(held, slots, strict=True))
            ]

        @pl.when(s < ring.size - 1)
        def _():
            for lane in range(len(ring.lanes)):

                @pl.when(s >= 2)
                def _(lane=lane):  # the neighbour needs no more what it has in this slot
                    pl.semaphore_wait(free.at[lane], 1)

                for hop in hops(lane):
                    hop.start()

        _meet(ring, way, me, s, first, stay, held, sums)

        @pl.when(s < ring.size - 1)
        def _():
            for lane, (direction, *_) in enumerate(ring.lanes):
                for hop in hops(lane):
                    hop.wait()

                @pl.when((s >= 1) & (s < ring.size - 2))
                def _(lane=lane, direction=direction):
                    signal(free.at[lane], ring.device(me, -direction))

    step(0, first=True)
    lax.fori_loop(1, ring.size, lambda s, _: step(s), None)


def _call(way, ring, stay, travel, interpret):
    """The sums over a ring, [heads, parts, …] float32."""
    heads, parts, _, head_dim = stay[0].shape
    tokens, size = ring.block * ring.blocks, ring.size
    shapes = [(heads, parts, *s.shape(tokens, head_dim)) for s in way.sums]
    slots = [jax.ShapeDtypeStruct((2, *x.shape), x.dtype) for x in travel] * (size > 1)
    copies = pltpu.SemaphoreType.DMA((len(travel), len(ring.lanes), 2))
    call = pl.pallas_call(
        functools.partial(kernel, ring=ring, way=way),
        out_shape=[*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes), *slots],
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)] * len([*stay, *travel]),
        out_specs=[pl.BlockSpec(memory_space=pltpu.HBM)] * len([*shapes, *slots]),
        scratch_shapes=[copies, copies, pltpu.SemaphoreType.REGULAR((len(ring.lanes),))],
        compiler_params=pltpu.CompilerParams(
            collective_id=ring.barrier if size > 1 else None,
            has_side_effects=True,
            vmem_limit_bytes=CHIPS[here()].vmem_bytes // 2,
        ),
        # JAX's plain interpreter knows no barrier; its simulated TPU does.
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
        name=way.name,
    )
    with jax_interpreter.as_a_chip(here()):  # emit_pipeline asks, and a CPU has no answer
        results = call(*stay, *travel)
    return results[: len(shapes)]


def make_ring(axis, size, shape, causal, scale):
    """The ring of q, k and v [B, H, N, D] along an axis.

    Args:
        axis: of the mesh.
        size: devices along it.
        shape: of each device's q.
        causal: whether the sequence is cut in two pieces for each device.
        scale: of the scores.
    """
    mesh = jax.sharding.get_abstract_mesh()
    place = mesh.axis_names.index(axis) if axis in mesh.axis_names else 0
    batch, heads, tokens, _ = shape
    heads *= batch
    half = heads // 2
    lanes = ((1, 0, heads - half), (-1, heads - half, half)) if half else ((1, 0, heads),)
    parts = 1 + causal
    length = tokens // parts
    blocks = pl.cdiv(length, TOKENS)
    block = pl.cdiv(length, blocks * LANES) * LANES if blocks > 1 else length
    return Ring(axis, size, BARRIER + place, lanes, parts, length, block, blocks, scale)


def _in_pieces(ring, *arrays):
    """[B, H, N, D] → [B·H, parts, whole blocks, D]."""
    for x in arrays:
        x = x.reshape(-1, ring.parts, ring.length, x.shape[-1])
        padding = ring.block * ring.blocks - ring.length
        yield jnp.pad(x, ((0, 0), (0, 0), (0, padding), (0, 0))) if padding else x


def _whole(ring, x, like):
    """Back."""
    return x[:, :, : ring.length].reshape(like.shape).astype(like.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(q, k, v, ring, interpret):
    return _forward(q, k, v, ring, interpret)[0]


def _forward(q, k, v, ring, interpret):
    mine, *others = _in_pieces(ring, q, k, v)
    acc, m, l = _call(FORWARD, ring, [mine], others, interpret)
    o = _whole(ring, (acc / l).swapaxes(2, 3), q)
    return o, (q, k, v, o, m + jnp.log2(l))


def _backward(ring, interpret, saved, do):
    *arguments, o, lse = saved
    q, k, v, do_pieces, o_pieces = _in_pieces(ring, *arguments, do, o)
    delta = (o_pieces.astype(jnp.float32) * do_pieces.astype(jnp.float32)).sum(-1)[:, :, None]
    queries, keys = [q, do_pieces, jnp.concatenate([lse, delta], 2)], [k, v]
    (dq,) = _call(QUERY_GRADIENT, ring, queries, keys, interpret)
    dk, dv = _call(KEY_GRADIENT, ring, keys, queries, interpret)
    gradients = ring.scale * dq.swapaxes(2, 3), ring.scale * dk, dv
    return tuple(_whole(ring, g, x) for g, x in zip(gradients, arguments, strict=True))


_attention.defvjp(_forward, _backward)


def ring_attention(q, k, v, axis_name, *, causal, scale, interpret=None):
    """[B, H, N, D] each → [B, H, N, D]; the ring of this device's axis."""
    ring = make_ring(axis_name, lax.axis_size(axis_name), q.shape, causal, scale)
    return _attention(q, k, v, ring, interprets(interpret, "tpu"))
