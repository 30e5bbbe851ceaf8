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

Liu, Zaharia and Abbeel, Ring attention with blockwise transformers, 2023. The cut of a causal
sequence in two pieces for each device: The Llama 3 herd of models, 2024, section 3.3.2.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.collectives.ring import ATTENTION, HBM, Ring, call, make_ring, meet
from kernels.machines.compat import jax_interpreter
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.products import dot

TOKENS = 1024  # of a block at most
QUERIES, KEYS = 256, 128  # of a tile of scores
LANES = 128
LOG2E = math.log2(math.e)  # exp(s) is exp2(s log2 e), and exp2 is what the hardware has
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score that no softmax sees


class AttentionPart(NamedTuple):
    """What a kernel knows of its ring and of its part of the sequence.

    Args:
        ring: whose two directions share the heads.
        pieces: 2 of the sequence if causal, the one before the other; else 1.
        length: tokens of a piece.
        block: tokens of a block; a piece is padded to whole ones.
        blocks: of a piece.
        scale: of the scores.
    """

    ring: Ring
    pieces: int
    length: int
    block: int
    blocks: int
    scale: float

    def source(self, me: Any, step: Any, head: Any) -> Any:
        """The device from which what a head meets at a step came."""
        ways = [self.ring.device(me, -way * step) for way, *_ in self.ring.parts]
        return jnp.where(head >= self.ring.parts[0][1], ways[0], ways[-1])

    def pair(self, p: Any, first: bool, behind: Any) -> tuple[Any, Any]:
        """The pieces of queries and of keys of pair p.

        Of the own ones, each sees itself, and the late one the early one. Keys of a device behind:
        both see its early piece. Of a device ahead: the late one sees both of its pieces, since
        the late pieces stand in the opposite order.
        """
        if self.pieces == 1:
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


class RingPass(NamedTuple):
    """One ring: what stays, what travels, what is added up.

    Args:
        name: of the kernel.
        body: (part, hides, refs of what stays, of what travels, of the sums), of one block each.
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


class ScoreTile(NamedTuple):
    """A tile of scores in a block: queries and keys as slices, and which of them count."""

    part: AttentionPart
    queries: Any
    keys: Any
    hides: Any  # None, or (first key of the block in its piece, whether the diagonal runs here)

    def scores(self, q_ref, k_ref):
        """log2(e) scale k qᵀ, [keys, queries], hidden where a key is none or comes too late."""
        s = dot(k_ref[self.keys], q_ref[self.queries], (1, 1)) * (self.part.scale * LOG2E)
        if self.hides is None:
            return s
        start, diagonal = self.hides
        keys = self.keys.start + lax.broadcasted_iota(jnp.int32, s.shape, 0)
        queries = self.queries.start + lax.broadcasted_iota(jnp.int32, s.shape, 1)
        seen = (start + keys < self.part.length) & ((keys <= queries) | jnp.logical_not(diagonal))
        return jnp.where(seen, s, HIDDEN)


def _tiles(part, hides, start):
    """The tiles of a block with start(tile), which is called for the next one before that: the MXU
    works on the next scores while the vector units are busy with the softmax of these."""

    def cut(size):
        return [slice(i, min(i + size, part.block)) for i in range(0, part.block, size)]

    tiles = [ScoreTile(part, q, k, hides) for q in cut(QUERIES) for k in cut(KEYS)]
    started = start(tiles[0])
    for tile, following in zip(tiles, [*tiles[1:], None], strict=True):
        current = started
        if following:
            started = start(following)
        yield tile, current


def forward_body(part, hides, stay, travel, sums):
    # q_ref [queries, D]; k_ref, v_ref [keys, D]; acc_ref [D, queries], m_ref, l_ref [1, queries]
    (q_ref,), (k_ref, v_ref) = stay, travel
    for tile, s in _tiles(part, hides, lambda tile: tile.scores(q_ref, k_ref)):
        if tile.keys.start == 0:
            acc, before, l = (ref[:, tile.queries] for ref in sums)
        m = jnp.maximum(before, jnp.max(s, axis=0, keepdims=True))
        p, shrink = jnp.exp2(s - m), jnp.exp2(before - m)
        l = l * shrink + jnp.sum(p, axis=0, keepdims=True)
        v = v_ref[tile.keys]
        acc = acc * shrink + dot(v, p.astype(v.dtype), (0, 0))
        before = m
        if tile.keys.stop == part.block:
            for ref, value in zip(sums, (acc, m, l), strict=True):
                ref[:, tile.queries] = value


def _gradients(part, hides, q_ref, do_ref, rows_ref, k_ref, v_ref):
    """Each tile with p and ds, [keys, queries] in the dtype of the arguments.

    rows_ref [2, queries] holds lse and delta.
    """

    def start(tile):
        return tile.scores(q_ref, k_ref), dot(v_ref[tile.keys], do_ref[tile.queries], (1, 1))

    for tile, (s, dp) in _tiles(part, hides, start):
        lse, delta = (rows_ref[row : row + 1, tile.queries] for row in (0, 1))
        p = jnp.exp2(s - lse)
        yield tile, p.astype(q_ref.dtype), (p * (dp - delta)).astype(q_ref.dtype)


def queries_body(part, hides, stay, travel, sums):
    # q_ref, do_ref [queries, D], rows_ref [2, queries]; k_ref, v_ref [keys, D]; dq_ref [D, queries]
    k_ref, (dq_ref,) = travel[0], sums
    for tile, _, ds in _gradients(part, hides, *stay, *travel):
        dq_ref[:, tile.queries] += dot(k_ref[tile.keys], ds, (0, 0))


def keys_body(part, hides, stay, travel, sums):
    # k_ref, v_ref, dk_ref, dv_ref [keys, D]; q_ref, do_ref [queries, D], rows_ref [2, queries]
    (q_ref, do_ref, _), (dk_ref, dv_ref) = travel, sums
    for tile, p, ds in _gradients(part, hides, *travel, *stay):
        dv_ref[tile.keys] += dot(p, do_ref[tile.queries], (1, 0))
        dk_ref[tile.keys] += dot(ds, q_ref[tile.queries], (1, 0))


FORWARD = RingPass(
    *("ring_attention_forward", forward_body, True, (0,), (0, 0)),
    (Sum(1), Sum(1, HIDDEN, row=True), Sum(1, row=True)),
)
QUERY_GRADIENT = RingPass("ring_attention_dq", queries_body, True, (0, 0, 1), (0, 0), (Sum(1),))
KEY_GRADIENT = RingPass(
    "ring_attention_dkdv", keys_body, False, (0, 0), (0, 0, 1), (Sum(0), Sum(0))
)


def _blocks_meet(part, way, me, step, first, stay, travel, sums):
    """All that is here at a step meets what stays: a pipeline over blocks in VMEM."""

    def pieces(h, p):
        """Of what stays and of what travels, in pair p."""
        other = part.source(me, step, h)
        queries, keys = part.pair(p, first, other < me if way.keys_travel else me < other)
        return (queries, keys) if way.keys_travel else (keys, queries)

    diagonals = first and part.pieces == 2  # of pairs 0 and 2, the pieces that see themselves
    padded = part.block * part.blocks > part.length
    pairs = 1 if part.pieces == 1 else 3 if first else 2  # of pieces that see each other

    def spec(ref, axis, stays):
        def index(h, i, p, j):
            if diagonals:  # a block that is not looked at is not fetched either
                j = jnp.where(p == 1, j, (jnp.minimum if way.keys_travel else jnp.maximum)(i, j))
            places = (i, 0) if stays else (j, 0)
            return (h, pieces(h, p)[not stays], *places[:: -1 if axis else 1])

        shape = list(ref.shape[-2:])
        shape[axis] = part.block
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
            way.body(part, hides, mine, others, after)

        if not diagonals and not padded:
            return run(None)
        query, key = (i, j) if way.keys_travel else (j, i)
        diagonal = (p != 1) & diagonals
        seen = jnp.logical_not(diagonal) | (key <= query)
        hides = (diagonal & (key == query)) | ((key == part.blocks - 1) & padded)
        pl.when(seen & hides)(lambda: run((key * part.block, diagonal & (key == query))))
        pl.when(seen & jnp.logical_not(hides))(lambda: run(None))

    sum_specs = [spec(ref, s.tokens, True) for ref, s in zip(sums, way.sums, strict=True)]
    pipeline = pltpu.emit_pipeline(
        body,
        grid=(stay[0].shape[0], part.blocks, pairs, part.blocks),
        in_specs=[
            *(spec(ref, axis, True) for ref, axis in zip(stay, way.stay, strict=True)),
            *(spec(ref, axis, False) for ref, axis in zip(travel, way.travel, strict=True)),
            *([] if first else sum_specs),
        ],
        out_specs=sum_specs,
    )
    pipeline(*stay, *travel, *([] if first else sums), *sums)


def kernel(*refs, part, way):
    # all in HBM: what stays and travels [heads, pieces, …]; the sums, float32; for what travels,
    # slots [2, heads, pieces, …]. Semaphores: sent and arrived [arrays, directions, 2] of copies,
    # free [directions] of signals
    *refs, sent, arrived, free = refs
    counts = (len(way.stay), len(way.travel), len(way.sums))
    refs = iter(refs)
    stay, travel, sums = ([next(refs) for _ in range(count)] for count in counts)
    slots, size = list(refs), part.ring.size
    if size == 1:
        return _blocks_meet(part, way, 0, 0, True, stay, travel, sums)
    me = lax.axis_index(part.ring.axis)
    meet(part.ring, me)
    lanes = part.ring.lanes(me, free)

    def step(s, first=False):
        held = travel if first else [slot.at[(s - 1) % 2] for slot in slots]

        def hops(lane):
            _, start, count = part.ring.parts[lane.number]
            heads = pl.ds(start, count)
            for place, (source, slot) in enumerate(zip(held, slots, strict=True)):
                pair = (x.at[place, lane.number, s % 2] for x in (sent, arrived))
                yield lane.hop(source.at[heads], slot.at[s % 2, heads], *pair)

        @pl.when(s < size - 1)
        def _():
            for lane in lanes:
                lane.wait_free(s >= 2)
                for hop in hops(lane):
                    hop.start()

        _blocks_meet(part, way, me, s, first, stay, held, sums)

        @pl.when(s < size - 1)
        def _():
            for lane in lanes:
                for hop in hops(lane):
                    hop.wait()
                lane.raise_free((s >= 1) & (s < size - 2))

    step(0, first=True)
    lax.fori_loop(1, size, lambda s, _: step(s), None)


def _run(way, part, stay, travel, interpret):
    """The sums over a ring, [heads, pieces, …] float32."""
    heads, pieces, tokens, head_dim = stay[0].shape
    ring, lanes = part.ring, len(part.ring.parts)
    shapes = [(heads, pieces, *s.shape(tokens, head_dim)) for s in way.sums]
    slots = [jax.ShapeDtypeStruct((2, *x.shape), x.dtype) for x in travel] * (ring.size > 1)
    copies = pltpu.SemaphoreType.DMA((len(travel), lanes, 2))
    run = call(
        functools.partial(kernel, part=part, way=way),
        ring,
        interpret,
        out_shape=[*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes), *slots],
        in_specs=[HBM] * len([*stay, *travel]),
        out_specs=[HBM] * len([*shapes, *slots]),
        scratch_shapes=[copies, copies, pltpu.SemaphoreType.REGULAR((lanes,))],
        vmem_limit_bytes=CHIPS[here()].vmem_bytes // 2,
        name=way.name,
    )
    with jax_interpreter.as_a_chip(here()):  # emit_pipeline asks, and a CPU has no answer
        return run(*stay, *travel)[: len(shapes)]


def _in_pieces(part, *arrays):
    """[B, H, N, D] → [B·H, pieces, whole blocks, D]."""
    padding = ((0, 0), (0, 0), (0, part.block * part.blocks - part.length), (0, 0))
    for x in arrays:
        yield jnp.pad(x.reshape(-1, part.pieces, part.length, x.shape[-1]), padding)


def _whole(part, x, like):
    """Back."""
    return x[:, :, : part.length].reshape(like.shape).astype(like.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(q, k, v, part, interpret):
    return _forward(q, k, v, part, interpret)[0]


def _forward(q, k, v, part, interpret):
    mine, *others = _in_pieces(part, q, k, v)
    acc, m, l = _run(FORWARD, part, [mine], others, interpret)
    o = _whole(part, (acc / l).swapaxes(2, 3), q)
    return o, (q, k, v, o, m + jnp.log2(l))


def _backward(part, interpret, saved, do):
    *arguments, o, lse = saved
    q, k, v, do_pieces, o_pieces = _in_pieces(part, *arguments, do, o)
    delta = (o_pieces.astype(jnp.float32) * do_pieces.astype(jnp.float32)).sum(-1)[:, :, None]
    queries, keys = [q, do_pieces, jnp.concatenate([lse, delta], 2)], [k, v]
    (dq,) = _run(QUERY_GRADIENT, part, queries, keys, interpret)
    dk, dv = _run(KEY_GRADIENT, part, keys, queries, interpret)
    gradients = part.scale * dq.swapaxes(2, 3), part.scale * dk, dv
    return tuple(_whole(part, g, x) for g, x in zip(gradients, arguments, strict=True))


_attention.defvjp(_forward, _backward)


def ring_attention(q, k, v, axis_name, *, causal, scale, block=None, interpret=None):
    """[B, H, N, D] each → [B, H, N, D]; the ring of this device's axis."""
    batch, heads, tokens, _ = q.shape
    pieces = 1 + causal
    length = tokens // pieces
    blocks = pl.cdiv(length, block or TOKENS)
    block = pl.cdiv(length, blocks * LANES) * LANES if blocks > 1 else length
    ring = make_ring(axis_name, lax.axis_size(axis_name), ATTENTION, batch * heads)
    part = AttentionPart(ring, pieces, length, block, blocks, scale)
    return _attention(q, k, v, part, interprets(interpret, "tpu"))
