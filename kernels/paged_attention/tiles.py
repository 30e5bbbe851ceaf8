"""New tokens in tiles of rows, each of one sequence: what all ways of writing go through.

attend(q, sequence, first, seen): [tiles, rows, H, D] and int32 [tiles] three times → as q. Row i of
a tile sees the first min(first + i + 1, seen) tokens of its sequence; zeros where seen is 0.

A sequence of one new token is a tile of one row. Those of more go by in larger tiles, which XLA
cuts from q. Their results are laid over each other in order, so what a tile has behind the end of
its sequence is overwritten by the next one. That moves q and the result once more, and in return no
program has to know of two sequences.
"""

import jax
import jax.numpy as jnp
from jax import lax

QUERIES, LEAST, MOST = 512, 8, 128  # that meet a head of the keys at a time; rows of a tile


def decode(attend, q, lengths):
    """[S, H, D], [S] → [S, H, D]; a sequence's new token is its last one."""
    sequence = jnp.arange(len(q), dtype=jnp.int32)
    return attend(q[:, None], sequence, lengths - 1, lengths)[:, 0]


def ragged(attend, q, lengths, starts, group):
    """[T, H, D], [S], [S + 1] → [T, H, D]; `group` heads of queries share one of the keys."""
    new = jnp.diff(starts)
    first = lengths - new  # the position of a sequence's first new token
    at = jnp.where(new == 1, starts[:-1], len(q))
    o = decode(attend, q.at[at].get(mode="clip"), jnp.where(new == 1, lengths, 0))
    tile = _tile(len(q), len(lengths), group)
    most = min(len(lengths), len(q) // 2)  # sequences of more than one
    if not most:
        return jnp.zeros_like(q).at[at].set(o, mode="drop")
    long = jnp.where(new > 1, new, 0)
    ends = jnp.cumsum(-(-long // tile), dtype=jnp.int32)  # of each sequence's tiles

    tiles = jnp.arange(most + (len(q) - most) // tile, dtype=jnp.int32)
    before = (ends[None] <= tiles[:, None]).sum(1, dtype=jnp.int32)  # sequences
    sequence = jnp.minimum(before, len(ends) - 1)
    row = (tiles - jnp.append(0, ends)[sequence]) * tile  # of the sequence, the tile's first
    in_use = jnp.where(tiles < ends[-1], jnp.minimum(long[sequence] - row, tile), 0)
    seen = jnp.where(in_use > 0, first[sequence] + row + in_use, 0)
    place = jnp.where(in_use > 0, starts[sequence] + row, len(q))
    padded = jnp.pad(q, ((0, tile), (0, 0), (0, 0)))
    cut = jax.vmap(lambda place: lax.dynamic_slice_in_dim(padded, place, tile))(place)
    of_tiles = attend(cut, sequence, first[sequence] + row, seen)

    lay = lambda rows, of_tile: (lax.dynamic_update_slice_in_dim(rows, *of_tile, 0), None)
    rows = lax.scan(lay, jnp.zeros_like(padded), (of_tiles, place))[0][: len(q)]
    is_owned = (jnp.arange(len(q)) < starts[-1])[:, None, None]
    return jnp.where(is_owned, rows, 0).at[at].set(o, mode="drop")


def _tile(rows, sequences, group):
    """Rows of a tile: about what a sequence has on average, since the rest of its last is idle."""
    most = min(MOST, max(QUERIES // group, LEAST))
    tile = LEAST
    while tile * 2 <= most and tile < rows // sequences:
        tile *= 2
    return tile
