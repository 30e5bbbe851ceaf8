"""Brick padding in PyTorch: a gather, slices, and the table of coordinates as it was published."""

import torch

from kernels.machines.checks import fail

MOST = 2**24  # whole numbers above it are not all in float32


def brick_pad(tile, plan, out):
    """[h, w] → out [height, width]: for every pixel the place in the bricks, all at once."""
    bricks = plan.laid(tile)
    source, start = (torch.from_numpy(part).to(tile.device) for part in plan.rows())
    column = torch.arange(plan.width, device=tile.device)
    place = source[:, None] * plan.period + (start[:, None] + column) % plan.period
    return torch.take(bricks, place, out=out)


def rows(tile, plan, out):
    """[h, w] → out [height, width], by copying: each row of bricks is one slice of a long one."""
    long = plan.laid(tile).repeat(1, -(-(plan.width + plan.period) // plan.period))
    source, start = (part.tolist() for part in plan.rows())
    first = 0
    while first < plan.height:  # to the last row of this row of bricks
        top, last = source[first], min(first + plan.h - source[first], plan.height)
        part = long[top : top + last - first]
        out[first:last] = part[:, start[first] : start[first] + plan.width]
        first = last
    return out


def table(tile, plan, out):
    """[h, w] → out [height, width] in the published way: a table of coordinates, step by step.

    The coordinates of every pixel become a tensor [height, width, 2], which goes through one
    operation after another; at the end a matrix-vector product in float32 makes them indices. Put
    right: the origin is the tile's corner, no argument is changed, and what float32 cannot count
    is refused.

    Raises:
        ValueError: where indices go beyond MOST.

    Source:
        In our own words, after "Accelerate PyTorch with Taichi", Taichi documentation.
    """
    bricks = plan.laid(tile)
    if max(bricks.numel(), plan.farthest) > MOST:
        fail("tile, border", "so large that float32 loses count", f"indices up to {MOST}")
    rows, columns = (torch.arange(n, device=tile.device) for n in (plan.height, plan.width))
    pixels = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=2)
    y = plan.height - 1 - plan.up - pixels[:, :, 0]
    x = pixels[:, :, 1] + plan.left
    xy = torch.stack((x, y), dim=2)
    v = torch.floor(xy[:, :, 1] / plan.h).to(torch.int32)
    u = torch.floor((xy[:, :, 0] - v * plan.step) / plan.period).to(torch.int32)
    across, up = (torch.stack((count, count), dim=2) for count in (u, v))
    shift_x = torch.tensor([plan.period, 0], device=tile.device)
    shift_y = torch.tensor([plan.step, plan.h], device=tile.device)
    in_tile = xy - across * shift_x - up * shift_y
    in_tile[:, :, 1] = plan.h - 1 - in_tile[:, :, 1]
    places = torch.flip(in_tile, (2,)).reshape(-1, 2).to(torch.float32)
    weights = torch.tensor([plan.period, 1.0], device=tile.device)
    index = places.mv(weights).to(torch.int64)
    return torch.index_select(bricks.reshape(-1), 0, index, out=out.view(-1)).view(out.shape)
