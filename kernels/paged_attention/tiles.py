"""New tokens in tiles of rows, each of one sequence: what all ways of writing go through.

attend(q, sequence, first, seen): [tiles, rows, H, D] and int32 [tiles] three times → as q. Row i of
a tile sees the first min(first + i + 1, seen) tokens of its sequence; zeros where seen is 0.

A sequence of one new token is a tile of one row. Those of more go by in larger tiles, which XLA
gathers from q, and whose results it gathers back. That moves q and the result once more, and in
return no tile writes a row of another sequence.
"""

import jax.numpy as jnp

QUERIES, LEAST, MOST = 512, 8, 128  # that meet a head of the keys at a time; rows of a tile


def decode(attend, q, lengths):
    """[S, H, D], [S] → [S, H, D]; a sequence's new token is its last one."""
    sequence = jnp.arange(len(q), dtype=jnp.int32)
    return attend(q[:, None], sequence, lengths - 1, lengths)[:, 0]


def ragged(attend, q, lengths, starts, group):
    """[T, H, D], [S], [S + 1] → [T, H, D]; `group` heads of queries share one of the keys."""
    rows, new = jnp.arange(len(q), dtype=jnp.int32), jnp.diff(starts)
    first = lengths - new  # the position of a sequence's first new token
    at = jnp.where(new == 1, starts[:-1], len(q))
    alone = jnp.where(new == 1, lengths, 0)
    o = decode(attend, q.at[at].get(mode="clip"), alone)
    tile = _tile(len(q), len(lengths), group)
    most = min(len(lengths), len(q) // 2)  # sequences of more than one
    number = most + (len(q) - most) // tile
    if not most:
        return jnp.zeros_like(q).at[at].set(o, mode="drop")
    long = jnp.where(new > 1, new, 0)
    ends = jnp.cumsum(-(-long // tile), dtype=jnp.int32)  # of each sequence's tiles
    begins = jnp.append(jnp.int32(0), ends)

    tiles = jnp.arange(number, dtype=jnp.int32)
    sequence = _owner(ends, tiles)
    row = (tiles - begins[sequence]) * tile  # of the sequence, the tile's first
    in_use = jnp.clip(long[sequence] - row, 0, tile) * (tiles < ends[-1])
    seen = jnp.where(in_use > 0, first[sequence] + row + in_use, 0)
    places = (starts[sequence] + row)[:, None] + jnp.arange(tile)
    of_tiles = attend(q.at[places].get(mode="clip"), sequence, first[sequence] + row, seen)

    owner = _owner(starts[1:], rows)
    place = begins[owner] * tile + rows - starts[owner]
    back = of_tiles.reshape(number * tile, *q.shape[1:]).at[place].get(mode="clip")
    return jnp.where((rows < starts[-1])[:, None, None], back, 0).at[at].set(o, mode="drop")


def _tile(rows, sequences, group):
    """Rows of a tile: about what a sequence has on average, since the rest of its last is idle."""
    most = min(MOST, max(QUERIES // group, LEAST))
    tile = LEAST
    while tile * 2 <= most and tile < rows // sequences:
        tile *= 2
    return tile


def _owner(ends, places):
    """Of each place the first sequence that ends behind it; the last one for places behind all."""
    return jnp.minimum((ends[None] <= places[:, None]).sum(1, dtype=jnp.int32), len(ends) - 1)
