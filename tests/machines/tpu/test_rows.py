"""Blocks of rows: what VMEM holds, and one pass where it holds whole rows."""

import itertools

import pytest
from refused import refuses

from kernels.machines.tpu.chips import CHIPS
from kernels.machines.tpu.rows import LARGEST, RESERVE, RowBlocks, candidates, explained, plan

V5E = CHIPS["v5e"]


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_what_is_chosen_fits_and_is_no_larger_than_it_has_to_be(chip):
    sizes = itertools.product((1, 33, 32768), (1, 8192, 50_257, 131_072, 1_000_003), (2, 3))
    for rows, n, arrays in sizes:
        chosen = plan(rows, n, "bfloat16", arrays, 2, chip=chip)
        block, size = chosen.block, chosen.block.vmem_bytes(2, arrays, 2)
        assert size <= chosen.vmem_limit_bytes <= chip.vmem_bytes
        assert block.rows in (rows, 32) or size <= chip.vmem_limit_bytes
        width = max(128, block.columns)  # VMEM holds whole lanes
        assert block.rows <= 32 or block.rows * width * 2 <= LARGEST


def test_whole_rows_where_a_strip_of_them_fits():
    assert plan(4096, 8192, "bfloat16", 2, chip=V5E).block == RowBlocks(128, 8192)
    assert plan(4096, 131_072, "bfloat16", 2, chip=V5E).block.columns == 131_072
    assert plan(4096, 131_073, "bfloat16", 2, chip=V5E).block.columns < 131_073
    assert "two passes" in explained(4096, 131_073, "bfloat16", 2)


test_blocks_are_checked = refuses(
    lambda block: plan(4096, 8192, "float32", 2, block=block, chip=V5E),
    (RowBlocks(24, 8192), "block.rows is 24; accepted: a multiple of 32, or all 4096"),
    (RowBlocks(32, 100), "block.columns is 100; accepted: a multiple of 128, or all 8192"),
    (RowBlocks(2048, 8192), "MiB of VMEM; accepted: at most 112 MiB in all"),
)


WHOLE = "a whole number of at least 1"
test_sizes_are_whole_numbers = refuses(
    RowBlocks, (0, 1, WHOLE), (1, -1, WHOLE), (1.5, 1, WHOLE), (1, True, WHOLE)
)


def test_candidates_fit_and_differ():
    blocks = candidates(4096, 50_257, "float32", V5E.vmem_bytes, 2)
    assert len(set(blocks)) == len(blocks) > 4
    assert {block.columns == 50_257 for block in blocks} == {True, False}
    assert all(block.vmem_bytes(4, 2) <= V5E.vmem_bytes - RESERVE for block in blocks)
    for block in blocks:
        plan(4096, 50_257, "float32", 2, block=block, chip=V5E)
