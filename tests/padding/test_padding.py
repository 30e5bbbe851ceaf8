"""Brick padding: every implementation exact on any wall, and what is no wall refused."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refuses

from kernels import optional, taichi
from kernels.padding import brick_pad, floor, lattice, reference
from kernels.padding.operator import BRICK_PAD, DTYPES
from kernels.padding.workloads import basis
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import values

BRICKS = OPERATORS["brick_pad"]
if not any(map(optional.available, ("taichi", "quadrants"))):
    pytest.skip("taichi is not installed: pip install taichi", allow_module_level=True)
torch = pytest.importorskip("torch")

MOSAIC = np.arange(12, dtype=np.float32).reshape(3, 4)
FITS = np.zeros((5, 6), np.float32)  # its result with a border of one


@st.composite
def walls(draw):
    """A tile, and options that make a wall of it."""
    h, w = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    channels = draw(st.sampled_from([(), (1,), (3,)]))
    mixing = draw(st.lists(st.integers(-3, 3), max_size=3))
    across, step = draw(st.booleans()), draw(st.integers(-9, 20))
    shift_x, shift_y = basis(h, w, step, across, mixing)
    border = draw(st.tuples(st.sampled_from([0, 1, 5, 33]), st.sampled_from([0, 1, 6, 31, 300])))
    border = min(border[0], 12 * h), min(border[1], 40 * w)  # the oracle paints brick by brick
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 9))
    tile = values("normal", (h, w, *channels), dtype, np.random.default_rng(seed))
    return tile, {"border": border, "shift_x": shift_x, "shift_y": shift_y}


def raw(array):
    """The bytes, so that NaNs and signs of zero count."""
    return np.ascontiguousarray(array).view(np.uint8)


# The ladder's walls are enough for JAX, which compiles each of them.
@pytest.mark.parametrize("implementation", [i for i in BRICK_PAD.names if i != "jax"])
@given(wall=walls())
def test_any_wall_is_exact_and_no_argument_changes(implementation, wall):
    tile, options = wall
    before = tile.copy()
    got = brick_pad(tile, implementation=implementation, **options)
    want = reference.brick_pad(tile, **options)
    assert got.dtype == tile.dtype and got.shape == want.shape
    assert np.array_equal(raw(got), raw(want)) and np.array_equal(raw(tile), raw(before))
    again = brick_pad(tile, implementation=implementation, **options)
    assert np.array_equal(raw(again), raw(want))
    rows, cols = options["border"]
    centre = got[rows : rows + tile.shape[0], cols : cols + tile.shape[1]]
    assert np.array_equal(raw(centre), raw(tile))


@st.composite
def lattices(draw):
    """A tile's size, and two vectors that mostly span as many pixels, in whatever way."""
    h, w = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    r = draw(st.sampled_from([n for n in range(1, h * w + 1) if h * w % n == 0]))
    mixing = draw(st.lists(st.integers(-2, 2), max_size=2))
    (a, b), second = basis(r, h * w // r, draw(st.integers(0, 6)), False, mixing)
    return h, w, (a + draw(st.sampled_from([0, 0, 0, 1])), b), second


@settings(max_examples=60)
@given(lattice=lattices())
def test_shifts_are_refused_just_where_the_painted_copies_leave_gaps_or_overlap(lattice):
    """The oracle finds that out by painting; the normal form by arithmetic."""
    h, w, *shifts = lattice
    tile = np.arange(h * w).reshape(h, w)
    # Wide enough for a whole period of the lattice, so that no fault lies outside the picture.
    options = {"border": (h * w, h * w), "shift_x": shifts[0], "shift_y": shifts[1]}
    try:
        want = reference.brick_pad(tile, **options)
    except ValueError:
        want = None
    try:
        got = brick_pad(tile, implementation="numpy", **options)
    except ValueError as error:
        assert "shift_x, shift_y is (" in str(error) and "accepted:" in str(error)
        got = None
    assert (got is None) == (want is None)
    assert want is None or np.array_equal(got, want)


@given(
    h=st.integers(1, 9),
    w=st.integers(1, 9),
    step=st.integers(-20, 20),
    across=st.booleans(),
    mixing=st.lists(st.integers(-4, 4), max_size=4),
)
def test_the_normal_form_is_one_for_all_vectors_of_a_lattice(h, w, step, across, mixing):
    plain = lattice.normal_form(h, w, *basis(h, w, step, across, []))
    assert lattice.normal_form(h, w, *basis(h, w, step, across, mixing)) == plain
    (wide, climb), (moved, high) = plain
    assert (wide, high) == (w, h) and 0 in (climb, moved) and 0 <= climb < h and 0 <= moved < w


@pytest.mark.parametrize("implementation", BRICK_PAD.names)
def test_tensors_and_jax_arrays_come_back_as_they_went_in(implementation):
    import jax.numpy as jnp

    options = {"border": (2, 3), "shift_y": (1, 3), "implementation": implementation}
    want = reference.brick_pad(MOSAIC, border=(2, 3), shift_y=(1, 3))
    tensor = brick_pad(torch.from_numpy(MOSAIC), **options)
    assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor.numpy(), want)
    array = brick_pad(jnp.asarray(MOSAIC), **options)
    assert isinstance(array, jnp.ndarray) and np.array_equal(array, want)
    assert isinstance(brick_pad(MOSAIC, **options), np.ndarray)
    brain = torch.from_numpy(MOSAIC).to(torch.bfloat16)
    assert torch.equal(brick_pad(brain, **options).float(), torch.from_numpy(want))
    bare = brick_pad(MOSAIC, **options | {"border": (0, 0)})
    assert np.array_equal(bare, MOSAIC) and not np.may_share_memory(bare, MOSAIC)


@pytest.mark.parametrize("implementation", BRICK_PAD.names)
def test_bricks_wider_than_a_table(implementation):
    """The kernels with words fall back where the phases would leave the cache."""
    tile = values("normal", (40, 1023), "uint8", np.random.default_rng(0))
    options = {"border": (3, 2000), "shift_y": (7, 40)}
    want = reference.brick_pad(tile, **options)
    assert np.array_equal(brick_pad(tile, implementation=implementation, **options), want)


@pytest.mark.parametrize("implementation", [i for i in BRICK_PAD.names if i != "jax"])
@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_it_writes_to_out(implementation, make):
    tile, out = make(MOSAIC.copy()), make(np.full((7, 10), -1, np.float32))
    assert brick_pad(tile, border=(2, 3), out=out, implementation=implementation) is out
    assert np.array_equal(np.asarray(out), reference.brick_pad(MOSAIC, border=(2, 3)))


def test_memory_that_begins_between_two_words():
    for skip in range(8):
        out = np.zeros(21 * 27 + 8, np.uint8)[skip : skip + 21 * 27].reshape(21, 27)
        tile = values("normal", (5, 7), "uint8", np.random.default_rng(skip))
        brick_pad(tile, border=(8, 10), shift_y=(3, 5), out=out)
        assert np.array_equal(out, reference.brick_pad(tile, border=(8, 10), shift_y=(3, 5)))


def test_it_can_be_traced():
    import jax

    call = jax.jit(lambda tile: brick_pad(tile, border=(2, 2), implementation="jax"))
    assert np.array_equal(call(MOSAIC), reference.brick_pad(MOSAIC, border=(2, 2)))
    with pytest.raises(ValueError, match="tile is traced by JAX; accepted: a concrete array"):
        jax.jit(lambda tile: brick_pad(tile, border=(2, 2), implementation="taichi"))(MOSAIC)


def test_a_tile_that_is_not_contiguous_is_read_right():
    wide = np.arange(48, dtype=np.int16).reshape(6, 8)
    for tile in (wide[::2, ::2], wide.T, torch.from_numpy(wide)[::2, 1::2]):
        for implementation in BRICK_PAD.names:
            got = np.asarray(brick_pad(tile, border=(4, 5), implementation=implementation))
            assert np.array_equal(got, reference.brick_pad(np.asarray(tile), border=(4, 5)))


test_what_is_refused = refuses(
    lambda tile, options: brick_pad(tile, **{"border": (1, 1), **options}),
    ([[1, 2]], {}, r"tile is a list; accepted: an array \[h, w\]"),
    (MOSAIC[0], {}, r"tile.shape is \(4,\)"),
    (MOSAIC[:0], {}, r"tile.shape is \(0, 4\); accepted: .* each at least 1"),
    (MOSAIC > 3, {}, "tile.dtype is 'bool'; accepted: int8"),
    (MOSAIC.astype(complex), {}, "tile.dtype is 'complex128'"),
    (MOSAIC.astype(ml_dtypes.float8_e4m3fn), {}, "tile.dtype is 'float8_e4m3fn'"),
    (MOSAIC, {"border": (-1, 2)}, r"border is \(-1, 2\); accepted: two whole numbers of at"),
    (MOSAIC, {"border": 3}, "border is 3; accepted: two whole numbers"),
    (MOSAIC, {"border": (1.5, 2)}, r"border is \(1.5, 2\)"),
    (MOSAIC, {"border": (True, 2)}, r"border is \(True, 2\)"),
    (MOSAIC, {"shift_x": (4, 0, 0)}, r"shift_x is \(4, 0, 0\); accepted: two whole numbers"),
    (MOSAIC, {"shift_y": "up"}, "shift_y is 'up'"),
    (MOSAIC, {"shift_y": (8, 0)}, r"\(4, 0\), \(8, 0\), which are parallel; accepted: two vec"),
    (MOSAIC, {"shift_y": (0, 4)}, r"span 16 pixels and leave gaps; accepted: .* h · w = 12 pi"),
    (MOSAIC, {"shift_y": (0, 2)}, "span 8 pixels and leave overlaps"),
    (MOSAIC, {"shift_x": (2, 0), "shift_y": (0, 6)}, r"overlap; accepted: .* is \(4, 0\), or"),
    (MOSAIC, {"implementation": "cuda"}, "implementation is 'cuda'; accepted: numpy, torch"),
    (MOSAIC, {"out": np.zeros((5, 7), "f4")}, r"out.shape is \(5, 7\); accepted: \(5, 6\)"),
    (MOSAIC, {"out": np.zeros((5, 6), np.float64)}, "out.dtype is float64; accepted: float32"),
    (MOSAIC, {"out": np.zeros((6, 5), np.float32).T}, "out is not contiguous"),
    (MOSAIC, {"out": torch.zeros(5, 6)}, "out is a Tensor; accepted: a ndarray"),
    (MOSAIC, {"out": FITS, "implementation": "jax"}, "out is a ndarray; accepted: None"),
    (MOSAIC, {"border": (0, 0), "out": MOSAIC}, "out is in the tile's memory; accepted"),
    (MOSAIC, {"out": np.broadcast_to(np.float32(0), (5, 6))}, "out is not contiguous"),
)


@pytest.mark.parametrize("implementation", BRICK_PAD.names)
def test_a_tensor_that_requires_grad_is_refused(implementation):
    tile = torch.from_numpy(MOSAIC.copy()).requires_grad_()
    with pytest.raises(ValueError, match=r"tile.requires_grad is True; accepted: False"):
        brick_pad(tile, border=(1, 1), implementation=implementation)


def test_what_float32_cannot_count_is_refused_where_it_counts():
    tile = np.zeros((1, 2**24 + 1), np.uint8)
    for implementation in ("v0", "torch_table"):
        with pytest.raises(ValueError, match="float32 loses count"):
            brick_pad(tile, border=(0, 0), implementation=implementation)
    long = values("normal", (1, 2**20 - 70), "uint8", np.random.default_rng(0))
    got = brick_pad(long, border=(2, 3), shift_y=(1, 1), implementation="v0")
    assert np.array_equal(got, reference.brick_pad(long, border=(2, 3), shift_y=(1, 1)))


def test_a_result_beyond_32_bits_is_refused_and_not_written(monkeypatch):
    from kernels.machines.taichi import runtime

    monkeypatch.setattr(runtime, "MOST", 100)
    with pytest.raises(ValueError, match=r"out.shape is .*; accepted: 1 to 2³¹ - 1 elements"):
        brick_pad(MOSAIC, border=(10, 10))


def test_the_floor_writes_as_much_as_the_result_holds():
    workload = BRICKS.workloads["rgb_small"]
    written = floor(workload)()
    (tile,) = BRICKS.workloads.arguments(workload)
    result = brick_pad(tile, **workload.options)
    assert written.shape == result.shape and str(written.dtype) == f"torch.{result.dtype}"
    assert (written == 1).all()
    for name, bytes_ in (("published", 4), ("rgb", 3)):
        out = floor(BRICKS.workloads[name])()
        assert out.shape[:2] == (4144, 8224) and out.nbytes == 4144 * 8224 * bytes_


@pytest.mark.full
def test_quadrants_runs_the_same_kernels(monkeypatch):
    if not optional.available("quadrants"):
        pytest.skip("quadrants is not installed: pip install quadrants")
    monkeypatch.setenv("KERNELS_TAICHI", "quadrants")
    for name in ("small", "rgb_small", "columns", "primes", "bytes", "brain_float", "long_ints"):
        (tile,) = BRICKS.workloads.arguments(BRICKS.workloads[name])
        options = BRICKS.workloads[name].options
        want = reference.brick_pad(tile, **options).tobytes()
        for implementation in ("taichi", "v0", "v1", "v2", "v3", "v4"):
            got = taichi.run(brick_pad, tile, implementation=implementation, **options)
            assert got.tobytes() == want, (name, implementation)
