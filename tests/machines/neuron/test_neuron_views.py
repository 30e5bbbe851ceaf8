"""Views of tiles, and copies by indices, held against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from nkiarrays import RNG, X
from nkikernels import full, into, run, stored
from refused import refuses

from kernels import neuron
from kernels.machines.neuron import NeuronError, modern
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl


def test_transposes_by_dma():
    x = RNG.standard_normal((6, 5, 4)).astype(ml_dtypes.bfloat16)

    @modern.jit
    def kernel(x):
        flat = x.reshape((30, 4))
        two, three = nl.ndarray((4, 30), nl.bfloat16), nl.ndarray((4, 5, 6), nl.bfloat16)
        nisa.dma_transpose(two, flat)
        nisa.dma_transpose(three, x, axes=(2, 1, 0))
        out = [nl.ndarray(t.shape, t.dtype, nl.shared_hbm) for t in (two, three)]
        for to, tile in zip(out, (two, three)):
            nl.store(to, tile)
        return tuple(out)

    two, three = neuron.simulate(kernel, x)
    assert (two == x.reshape(30, 4).T).all() and (three == x.transpose(2, 1, 0)).all()


def test_local_gather():
    index = np.tile(RNG.integers(0, 24, (16, 4)).astype(np.uint16) * 2, (4, 1))

    def body(dst, a, i):
        return into((64, 128), nl.float32, nisa.local_gather, a, i, num_elem_per_idx=2)

    order = index[:16].T.reshape(-1).astype(int)
    assert np.array_equal(run(body, X, index), X[:, np.stack([order, order + 1], 1).reshape(-1)])


def test_indirect_rows():
    rows = RNG.permutation(64)[:32].astype(np.int32).reshape(32, 1)

    @modern.jit
    def kernel(x, rows):
        index = nl.load(rows)
        some = nl.ndarray((32, 48), dtype=nl.float32)
        nisa.dma_copy(some, x.ap(pattern=[[48, 32], [1, 48]], vector_offset=index, indirect_dim=0))
        one = nl.ndarray((1, 48), dtype=nl.float32)
        nisa.dma_copy(one, x.select(0, index[0:1, 0:1]))
        out = nl.ndarray((33, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0:32, :], some)
        nl.store(out[32:33, :], one)
        return out

    got, want = neuron.simulate(kernel, X, rows), X[rows[:, 0]]
    assert np.array_equal(got, np.concatenate([want, want[:1]]))
    rows[3] = 64
    with pytest.raises(NeuronError, match=r"1 of 32 offsets .* are out of bounds; oob_mode.skip"):
        neuron.simulate(kernel, X, rows)


def test_rows_out_of_bounds_are_skipped():
    rows = np.array([[1], [70], [3]], np.int32)

    @modern.jit
    def kernel(x, rows):
        index, some = nl.load(rows), full((3, 48), -1.0)
        source = x.ap([[48, 3], [1, 48]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(some, source, oob_mode=nisa.oob_mode.skip)
        return stored(some)

    assert np.array_equal(neuron.simulate(kernel, X, rows), np.stack([X[1], np.full(48, -1), X[3]]))


VIEWS = {
    "negative index": (lambda t: t[:, -3:-1], X[:, -3:-1]),
    "nl.ds": (lambda t: t[:, nl.ds(4, 8)], X[:, 4:12]),
    "slice": (lambda t: t.slice(1, 2, 10, 2), X[:, 2:10:2]),
    "select": (lambda t: t.reshape((64, 6, 8)).select(1, 2), X.reshape(64, 6, 8)[:, 2]),
    "permute": (lambda t: t.reshape((64, 6, 8)).permute((0, 2, 1)),
        X.reshape(64, 6, 8).transpose(0, 2, 1)),
    "reshape_dim": (lambda t: t.reshape_dim(1, (6, -1)), X.reshape(64, 6, 8)),
    "flatten_dims": (lambda t: t.reshape((64, 2, 3, 8)).flatten_dims(1, 2), X.reshape(64, 6, 8)),
    "expand_dim": (lambda t: t.expand_dim(1), X[:, None]),
    "squeeze_dim": (lambda t: t.expand_dim(1).squeeze_dim(1), X),
    "broadcast": (lambda t: t.expand_dim(1).broadcast(1, 3), np.repeat(X[:, None], 3, 1)),
    "ap": (lambda t: t.ap([[48, 64], [2, 5], [1, 2]], offset=3), X[:, 3:13].reshape(64, 5, 2)),
    "view": (lambda t: t.view(nl.int32).view(nl.float32), X),
    "rearrange": (lambda t: t.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 6}),
        X.reshape(64, 6, 8).swapaxes(1, 2)),
    "rearrange, split": (lambda t: t.rearrange(("p", ("h", "w")), ("p", "h", "w"), {"w": 8}),
        X.reshape(64, 6, 8)),
    "rearrange, as it was": (lambda t: t.rearrange(("p", "f"), ("p", "f")), X),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    view, want = VIEWS[name]

    def body(dst, a):
        part = view(a)
        return into(part.shape, nl.float32, nisa.tensor_copy, part)

    assert np.array_equal(run(body, X), want)


test_rearrange_refuses = refuses(
    lambda source, wanted, sizes: run(lambda dst, a: a.rearrange(source, wanted, sizes), X),
    (("p", ("h", "w")), ("p", "w", "h"), None, "needs all sizes but one"),
    (("p", ("h", "w")), ("p", "w", "h"), {"h": 5}, "needs all sizes but one, and they fit"),
    (("p", "f"), ("p", "g"), None, "each dimension once on either side"),
    (("p", "f"), ("f", "p"), None, "the partitions stay first"),
    error=NeuronError,
)


def test_what_a_view_says_of_itself():
    @modern.jit
    def kernel(x):
        t = nl.load(x)
        assert t.strides == (48, 1) and t[:, 5:].offset == 5 and t.name and t.dtype == nl.float32
        assert t.buffer == nl.sbuf and x.buffer == nl.hbm
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.program_ndim() == 0 and nl.num_programs() == 1 and nl.program_id() == 0
        return stored(t)

    assert np.array_equal(neuron.simulate(kernel, X), X)
