"""grouped_matmul: what the ladder does not ask."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refused import refuses

from kernels.grouped_matmul import GroupedBlocks, grouped_matmul
from kernels.grouped_matmul.blocks import RESERVE, candidates, plan
from kernels.grouped_matmul.pallas import make_visits
from kernels.machines.tpu.chips import CHIPS

FLOAT = functools.partial(np.ones, dtype=np.float32)


def whole(*values):
    return np.array(values, np.int32)


def sizes_of(seed, groups, rows):
    """Some empty, some long, rows left over or not."""
    rng = np.random.default_rng(seed)
    shares = rng.random(groups) * (rng.random(groups) < 0.6)
    total = rows if seed % 2 else rng.integers(rows + 1)
    return np.diff(np.floor(np.cumsum(shares) / max(shares.sum(), 1e-9) * total), prepend=0).astype(
        np.int32
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_row_is_visited_by_its_own_group_and_every_group_by_a_visit(seed):
    rows, bm, groups = (130, 64, 5) if seed % 3 else (300, 32, 17)
    sizes = sizes_of(seed, groups, rows)
    owner = np.repeat(np.arange(groups + 1), [*sizes, rows - sizes.sum()])
    for empty in (False, True):
        group, block, starts, count = make_visits(jnp.asarray(sizes), rows, bm, empty=empty)
        assert int(count) <= len(group) == len(block)
        visits = list(zip(group.tolist(), block.tolist()))[: int(count)]
        wanted = {(int(owner[row]), row // bm) for row in range(rows)}
        if empty:
            wanted = {(g, b) for g, b in wanted if g < groups}
            assert {g for g, _ in visits} == set(range(groups))
            visits = [(g, b) for g, b in visits if sizes[g]]
        assert visits == sorted(wanted)
        assert int(block.min()) >= 0 and int(block.max()) < -(-rows // bm)
        assert starts[0] == 0 and starts[-1] == rows and starts[-2] == sizes.sum()


def test_traced_sizes_beyond_the_rows_are_cut_off():
    x, w = FLOAT((8, 3)), FLOAT((3, 3, 2)) * whole(1, 2, 4)[:, None, None]
    z = jax.jit(grouped_matmul)(x, w.astype(np.float32), whole(3, 9, 5))
    assert np.array_equal(z, np.repeat([[3.0], [6.0]], [3, 5], axis=0) * np.ones(2))


@pytest.mark.parametrize("chip", ["v5e", "v6e", "v7x"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (131072, 7168, 2048, 256), (300, 129, 5000, 7)])
def test_the_rule_s_blocks_fit_and_are_whole_tiles(shape, transposed, dtype, chip):
    decided = plan(*shape, np.dtype(jnp.dtype(dtype)), chip=CHIPS[chip], transposed=transposed)
    own = decided.block.vmem_bytes(jnp.dtype(dtype), transposed=transposed)
    assert own <= CHIPS[chip].vmem_bytes - RESERVE and own <= decided.vmem_limit_bytes


def test_candidates_are_legal_and_fit():
    shape, dtype = (8192, 4096, 1792), jnp.dtype("bfloat16")
    tried = candidates(*shape, 8, dtype, CHIPS["v5e"].vmem_bytes)
    assert len(tried) > 4 and len(set(tried)) == len(tried)
    assert all(block.fitted(*shape, dtype) == block for block in tried)


RIGHT = dict(x=FLOAT((8, 3)), w=FLOAT((2, 3, 2)), group_sizes=whole(3, 5))
test_refuses_before_anything_runs = refuses(
    lambda wrong: grouped_matmul(**RIGHT | wrong),
    (dict(x=FLOAT(8)), r"x.shape is \(8,\)"),
    (dict(x=np.ones((8, 3), np.int8)), "x.dtype is 'int8'"),
    (dict(w=FLOAT((3, 2))), r"w.shape is \(3, 2\)"),
    (dict(w=FLOAT((2, 4, 2))), r"w.shape\[1\] is 4; accepted: 3"),
    (dict(group_sizes=np.zeros(2)), "group_sizes.dtype is 'float64'"),
    (dict(group_sizes=whole(1, 2, 3)), r"group_sizes.shape\[0\] is 3"),
    (dict(group_sizes=whole(-1, 2)), r"group_sizes\[0\] is -1; accepted: 0 to 8"),
    (dict(group_sizes=whole(3, 6)), r"group_sizes\[1\] is 6; accepted: 0 to 5"),
    (dict(block=(8, 128, 128)), "accepted: None or GroupedBlocks"),
    (dict(block=GroupedBlocks(5, 128, 128)), "block.bm is 5; accepted: a multiple of 8"),
    (dict(implementation="xla", block=GroupedBlocks(8, 8, 8)), "chooses its own"),
    (dict(implementation="jax_megablox"), "multiple of 128, for megablox"),
    (dict(implementation="cusparse"), "xla, xla_dense, pallas, jax_megablox"),
)
