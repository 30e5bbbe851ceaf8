"""block_sparse_matmul: what the ladder does not ask."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refuses

from kernels.machines.pallas import calls
from kernels.matmul import BlockSparse, block_sparse_matmul
from kernels.matmul.block_sparse import MOST_STEPS, _steps, make_plan


def sparse(m, k, block, keep, dtype="float32", seed=0):
    """A dense matrix with only some blocks, of which `keep` is the share."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, (m, k)).astype(getattr(ml_dtypes, dtype, dtype))
    rows, columns = -(-m // block[0]), -(-k // block[1])
    mask = np.kron(rng.random((rows, columns)) < keep, np.ones(block, bool))[:m, :k]
    return np.where(mask, x, np.zeros_like(x))


@pytest.mark.slow
@given(
    shape=st.tuples(*[st.integers(1, 200)] * 3),
    block=st.tuples(st.sampled_from([32, 64]), st.sampled_from([32, 64, 128])),
    keep=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_whole_numbers_are_exact_for_any_shape_and_any_blocks(shape, block, keep, dtype):
    m, k, n = shape
    x = sparse(m, k, block, keep, dtype)
    y = np.random.default_rng(n).integers(-1, 2, (k, n)).astype(x.dtype)
    z = BlockSparse.from_dense(x, block) @ y
    want = x.astype(np.int64) @ y.astype(np.int64)
    assert z.shape == (m, n) and z.dtype == (np.int32 if dtype == "int8" else x.dtype)
    assert np.array_equal(np.asarray(z), want.astype(z.dtype))


@pytest.mark.slow
@settings(max_examples=6)
@given(
    shape=st.tuples(*[st.integers(1, 300)] * 2),
    block=st.tuples(*[st.integers(1, 150)] * 2),
    keep=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_from_dense_and_back(shape, block, keep):
    x = sparse(*shape, block, keep)
    stored = BlockSparse.from_dense(x, block)
    assert np.array_equal(stored.to_dense(), x)
    assert len(stored.blocks) <= -(-shape[0] // block[0]) * -(-shape[1] // block[1])
    assert (np.diff(stored.rows) >= 0).all()
    for b, r, c in zip(*map(np.asarray, jax.tree.leaves(stored)), strict=True):
        part = x[r * block[0] : (r + 1) * block[0], c * block[1] : (c + 1) * block[1]]
        assert part.any() and np.array_equal(b[: part.shape[0], : part.shape[1]], part)


def test_it_is_a_pytree_that_jit_takes_and_a_factor_that_does_not_fit_is_refused():
    x = sparse(96, 256, (32, 128), 0.5)
    stored, y = BlockSparse.from_dense(x, (32, 128)), np.ones((256, 3), np.float32)
    assert np.array_equal(jax.jit(lambda x, y: x @ y)(stored, y), x @ y)
    with pytest.raises(ValueError, match=r"y.shape\[0\] is 257; accepted: 256"):
        _ = stored @ np.ones((257, 3), np.float32)


def test_what_a_block_holds_beyond_the_matrix_is_ignored():
    blocks = jnp.full((4, 32, 128), jnp.nan).at[:, :9, :72].set(1.0)
    blocks = blocks.at[:3, :, :72].set(1.0).at[0].set(1.0).at[2, :9].set(1.0)
    rows, columns = (np.array(a, np.int32) for a in ((0, 0, 1, 1), (0, 1, 0, 1)))
    z = block_sparse_matmul(blocks, np.ones((200, 5), np.float32), rows, columns, m=41)
    assert np.array_equal(z, np.full((41, 5), 200.0))


def test_columns_of_a_row_come_in_any_order():
    x = BlockSparse.from_dense(sparse(64, 512, (32, 128), 1.0), (32, 128))
    y = np.random.default_rng(0).integers(-4, 5, (512, 7)).astype(np.float32)
    order = np.array([2, 0, 3, 1, 7, 6, 5, 4])
    z = block_sparse_matmul(x.blocks[order], y, x.rows[order], x.columns[order], m=64)
    assert np.array_equal(z, x @ y)


def test_no_block_has_no_gradient_and_none_reaches_what_lies_beyond_the_matrix():
    y = np.ones((20, 3), np.float32)

    def gradients(number):
        zeros = np.zeros(number, np.int32)
        f = lambda b, y: block_sparse_matmul(b, y, zeros, zeros, m=10).sum()
        return map(np.asarray, jax.grad(f, (0, 1))(np.ones((number, 32, 64), np.float32), y))

    of_none, of_y = gradients(0)
    assert of_none.shape == (0, 32, 64) and not of_y.any()
    (of_one,), of_y = gradients(1)
    assert (of_one[:10, :20] == 3).all() and (of_y == 10).all()
    assert not of_one[10:].any() and not of_one[:, 20:].any()


def test_a_step_for_every_block_and_one_for_every_row():
    rows, columns = jnp.array([1, 1, 3], jnp.int32), jnp.array([5, 6, 7], jnp.int32)
    block, row, column = _steps(jnp.arange(3), rows, columns, 5)
    assert row.tolist() == [0, 1, 1, 1, 2, 3, 3, 4]
    # Each first step names the block that comes next: nothing is fetched that is not used.
    assert block.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert column.tolist() == [5, 5, 5, 6, 7, 7, 7, 7]


def test_the_grid_holds_no_more():
    x = BlockSparse.from_dense(sparse(128, 512, (32, 128), 0.5), (32, 128))
    f = functools.partial(block_sparse_matmul, m=128, interpret=False)
    (call,) = calls(f, x.blocks, jax.ShapeDtypeStruct((512, 256), jnp.float32), x.rows, x.columns)
    assert call.grid == (1, len(x.blocks) + 4)
    assert call.semantics == ("parallel", "arbitrary")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("block", [(128, 128), (512, 512), (2048, 2048)])
@pytest.mark.parametrize("n", [1, 129, 5000])
def test_width_is_all_or_whole_lanes(n, block, dtype):
    bn = make_plan(n, block, np.dtype(getattr(ml_dtypes, dtype, dtype))).block.bn
    assert bn == n or (bn < n and bn % 128 == 0)


FLOAT = functools.partial(np.ones, dtype=np.float32)
TWO = FLOAT((2, 8, 64))


def whole(*values):
    return np.array(values, np.int32)


RIGHT = dict(blocks=FLOAT((1, 8, 64)), y=FLOAT((64, 3)), rows=whole(0), columns=whole(0))
test_refuses_before_anything_runs = refuses(
    lambda wrong: block_sparse_matmul(**RIGHT | wrong),
    (dict(blocks=FLOAT((32, 64))), r"accepted: \[number, bm, bk\]"),
    (dict(blocks=FLOAT((1, 0, 64))), r"accepted: \[number, bm, bk\]"),
    (dict(blocks=FLOAT((1, 12, 64))), "accepted: multiples of 8"),
    (dict(y=FLOAT(64)), r"y.shape is \(64,\)"),
    (dict(blocks=np.ones((1, 8, 64), np.int8)), "blocks.dtype is int8"),
    (dict(blocks=TWO), r"rows.shape is \(1,\)"),
    (dict(rows=[0]), "rows is a list"),
    (dict(rows=np.zeros(1, np.int64)), "rows.dtype is 'int64'"),
    (dict(rows=whole(8)), "rows is one with 8; accepted: 0 to 7"),
    (dict(columns=whole(-1)), "columns is one with -1"),
    (dict(blocks=TWO, rows=whole(1, 0), columns=whole(0, 0)), "rows is one that descends"),
    (dict(blocks=TWO, rows=whole(0, 0), columns=whole(0, 0)), "two blocks in the same place"),
    (dict(m=0), "m is 0"),
    (dict(y=FLOAT((64, 300)), bn=100), "bn is 100; accepted: a mult"),
    (dict(implementation="cusparse"), "xla, pallas"),
    (dict(implementation="xla", bn=3), "bn is 3; accepted: None"),
    (dict(m=8 * MOST_STEPS), "scalar memory"),
)


test_from_dense_refuses = refuses(
    BlockSparse.from_dense,
    (np.ones(3), (8, 8), "2 dimensions"),
    (np.ones((3, 0)), (8, 8), "at least 1"),
    (np.ones((3, 3)), (0, 8), "block.bm is 0"),
    (np.ones((3, 3)), (8,), r"accepted: \(bm, bk\)"),
)
