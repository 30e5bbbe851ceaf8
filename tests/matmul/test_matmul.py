"""matmul: what the ladder does not ask; its levels, and the blocks that the last one chooses."""

import functools
import re
from collections import defaultdict

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from close import assert_close, assert_right
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refused import refuses

from kernels import neuron
from kernels.figures import read
from kernels.machines.gpu.simulator import interprets
from kernels.machines.pallas import calls
from kernels.machines.tpu import CHIPS, lower, simulate
from kernels.machines.tpu.export import abstract_device
from kernels.matmul import BlockSizes, matmul, mosaic_gpu, nki
from kernels.matmul.blocks import RESERVE, TUNED, nearest

RNG = np.random.default_rng(0)
FLOAT = functools.partial(np.ones, dtype=np.float32)


def operands(m, k, n, dtype):
    rng = np.random.default_rng((m, k, n))
    if dtype == "int8":
        return tuple(rng.integers(-128, 128, s, dtype=np.int8) for s in ((m, k), (k, n)))
    dtype = getattr(ml_dtypes, dtype, dtype)
    return tuple(rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))


@given(
    shape=st.tuples(*[st.integers(1, 300)] * 3),
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_any_shape_with_any_legal_block(shape, blocks, dtype):
    x, y = operands(*shape, dtype)
    block = BlockSizes(32 * blocks[0], 128 * blocks[1], 128 * blocks[2])
    assert_right("matmul", matmul(x, y, block=block), x, y)


@pytest.mark.parametrize("block", [None, BlockSizes(16, 128, 128)])
def test_vmap_over_either_or_both(block):
    x = RNG.standard_normal((3, 17, 200)).astype(np.float32)
    y = RNG.standard_normal((3, 200, 33)).astype(np.float32)
    f = functools.partial(matmul, activation=jax.nn.relu, block=block)
    for axes in ((0, 0), (0, None), (None, 0)):
        args = [a if axis == 0 else a[0] for a, axis in zip((x, y), axes, strict=True)]
        wide = [a.astype(np.float64) for a in args]
        assert_close(
            jax.vmap(f, axes)(*args),
            np.maximum(wide[0] @ wide[1], 0),
            np.maximum(args[0] @ args[1], 0),
            abs(wide[0]) @ abs(wide[1]),
        )


def test_vmap_lowers_for_a_tpu_with_a_parallel_batch():
    x = jax.ShapeDtypeStruct((3, 64, 128), jnp.float32)
    y = jax.ShapeDtypeStruct((3, 128, 128), jnp.float32)
    f = jax.vmap(functools.partial(matmul, interpret=False))
    assert len(lower(f, x, y).kernels) == 1
    (call,) = calls(f, x, y)
    assert call.grid == (3, 1, 1, 1)
    assert call.semantics == ("parallel", "parallel", "parallel", "arbitrary")


def test_the_simulator_cannot_take_vmap_yet():
    """A limit of JAX's, stated in its chapter: when this fails, rung 2 can take vmap as well."""
    x, y = np.ones((2, 8, 128), np.float32), np.ones((2, 128, 128), np.float32)

    def batched(x, y, *, interpret):
        return jax.vmap(functools.partial(matmul, interpret=interpret))(x, y)

    with pytest.raises(ValueError, match="length"):
        simulate(batched, x, y)


test_refuses_before_anything_runs = refuses(
    lambda change: matmul(**dict(x=FLOAT((2, 3)), y=FLOAT((3, 5))) | change),
    (dict(y=FLOAT((4, 5))), r"y.shape is \(4, 5\); accepted: 3 in dimension 0"),
    (dict(transpose_rhs=True), "accepted: 3 in dimension 1"),
    (dict(x=FLOAT(3)), r"x.shape is \(3,\); accepted: 2 dimensions"),
    (dict(y=FLOAT((1, 3, 5))), "y.shape"),
    (dict(x=FLOAT((0, 3))), "dimensions of at least 1"),
    (dict(x=FLOAT((2, 0)), y=FLOAT((0, 5))), "dimensions of at least 1"),
    (dict(implementation="cublas"), "accepted: xla, pallas"),
    (dict(activation="relu"), "activation is 'relu'"),
    (dict(block=(8, 128, 128)), r"block is \(8, 128, 128\)"),
    (dict(implementation="xla", block=BlockSizes(8, 128, 128)), "block is 8×128×128"),
    (dict(y=np.ones((3, 5), np.int8)), "y.dtype is int8; accepted: float32"),
    *(
        (dict(x=np.ones((2, 3), dtype)), f"x.dtype is '{dtype}'")
        for dtype in ("float64", "float16", "int32", "uint8")
    ),
)


class TestBlockSizes:
    @pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 1.5)])
    def test_refuses_what_is_no_size(self, sizes):
        with pytest.raises(ValueError, match="whole number"):
            BlockSizes(*sizes)

    test_refuses_what_no_register_tiles = staticmethod(
        refuses(
            lambda block, dtype: matmul(*operands(256, 256, 256, dtype), block=block),
            (BlockSizes(4, 128, 128), "float32", "block.bm is 4; accepted: a multiple of 8"),
            (BlockSizes(8, 128, 128), "bfloat16", "block.bm is 8; accepted: a multiple of 16"),
            (BlockSizes(16, 128, 128), "int8", "block.bm is 16; accepted: a multiple of 32"),
            (BlockSizes(32, 64, 128), "float32", "block.bk is 64; accepted: a multiple of 128"),
            (BlockSizes(32, 128, 100), "float32", "block.bn is 100"),
        )
    )

    def test_a_block_as_large_as_the_matrix_may_have_any_size(self):
        assert BlockSizes(999, 999, 999).fitted(5, 123, 77, np.float32) == BlockSizes(5, 123, 77)

    @settings(max_examples=200)
    @given(
        shape=st.tuples(*[st.integers(1, 70_000)] * 3),
        dtype=st.sampled_from(["float32", "bfloat16", "int8", "float8_e4m3fn"]),
        chip=st.sampled_from(sorted(CHIPS)),
    )
    @example(shape=(1, 1, 1), dtype="float32", chip="v5p")
    @example(shape=(65536, 32768, 65536), dtype="float32", chip="v5p")
    def test_the_default_is_legal_and_fits_every_chip(self, shape, dtype, chip):
        dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        block = BlockSizes.default(*shape, dtype, CHIPS[chip])
        with abstract_device(chip):
            assert BlockSizes.default(*shape, dtype) == block
        assert block.fitted(*shape, dtype) == block
        assert block.vmem_bytes(dtype) <= CHIPS[chip].vmem_bytes - RESERVE


def test_the_rule_for_a_hopper_gpu_takes_the_tile_that_was_fastest_there():
    measured = defaultdict(dict)
    for row in read("measured.csv"):
        if row.operator == "matmul" and "tile" in row.tuning and row.implementation == "mosaic_gpu":
            m, n = row.sizes["m"], row.sizes["n"]
            measured[m, row.sizes["k"], n][row.tuning["tile"]] = row.value
    compared = {shape: times for shape, times in measured.items() if len(times) == 3}
    assert len(compared) >= 10
    for (m, k, n), times in compared.items():
        tile = mosaic_gpu.tile_for(m, n, sms=132)
        assert times[f"{tile.bm}x{tile.bn}"] == min(times.values()), (m, k, n)


SHARED_OUT = (*((tile, 1) for tile in mosaic_gpu.TILES), *((mosaic_gpu.TALL, n) for n in (1, 3)))


@pytest.mark.parametrize("tile, parts", SHARED_OUT, ids=str)
def test_each_tile_for_a_hopper_gpu_multiplies(tile, parts):
    x, y = operands(256, 192, 256, "bfloat16")
    spec = mosaic_gpu.HopperSpec(None, False, interprets(True), 1)  # its SM takes several tiles
    z = mosaic_gpu.product(jnp.asarray(x), jnp.asarray(y), spec, tile, parts)
    assert_right("matmul", z, x, y)


def test_blocks_of_k_are_added_up():
    x, y = (
        np.round(np.random.default_rng(0).standard_normal(s) * 4).astype(np.float32)
        for s in ((1300, 140), (1300, 530))
    )
    got = neuron.simulate(nki.matmul_kernel, x, y, rows=1, columns=1, depth=2)
    assert np.array_equal(got, x.T @ y)


def test_each_block_is_fetched_as_often_as_it_says():
    """Of two blocks of rows and two of columns, x and y come in twice."""
    x, y = np.zeros((256, 512), np.float32), np.zeros((256, 2048), np.float32)
    found = neuron.estimate(nki.matmul_kernel, x, y, rows=2, columns=2, depth=2)
    assert found.dma_bytes == 2 * (x.nbytes + y.nbytes) + 512 * 2048 * 4


BIG = BlockSizes(4096, 8192, 4096)
LEVELS = ("v0", "v1", "v2", "v3", "v4", "v5")
SQUARE = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)


def call(implementation, shape=SQUARE, **options):
    (found,) = calls(
        lambda x, y: matmul(x, y, implementation=implementation, interpret=False, **options),
        shape,
        shape,
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("k", [1000, 1025, 2048])
def test_every_number_of_steps_is_exact(level, k):
    """One step of k, two, and a last one cut short; small integers leave no rounding."""
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-8, 8, s).astype(np.int8) for s in ((33, k), (k, 130)))
    want = x.astype(int) @ y.astype(int)
    assert (np.asarray(matmul(x, y, implementation=level)) == want).all()
    x, y = (a.astype(ml_dtypes.bfloat16) for a in (x, y))
    got = np.asarray(matmul(x, y, implementation=level))
    assert (got == want.astype(ml_dtypes.bfloat16)).all()


def test_each_change_is_the_one_that_is_told():
    v1, v2, v3, v4, v5 = (call(level) for level in LEVELS[1:])
    assert v1.grid == v2.grid == (32, 32, 32)
    assert v1.outputs[0].dtype == "float32" and v2.outputs[0].dtype == "bfloat16"
    assert v3.grid == v4.grid == (8, 4, 4) and v3.traffic < v2.traffic / 4
    assert v5.grid == (8, 8, 1)
    # The sums move from the result into a scratch of their own, and at last they need none.
    assert [len(v.scratch) for v in (v1, v2, v3, v4, v5)] == [0, 1, 1, 1, 0]


test_what_an_implementation_cannot_do_it_refuses = refuses(
    lambda name, dtype, options: matmul(
        *[np.ones((4, 4), dtype)] * 2, implementation=name, **options
    ),
    ("v3", "float32", {"activation": jax.nn.relu}, "activation is .*only multiplies"),
    ("v3", "float32", {"prologue": jnp.tanh}, "prologue is .*only multiplies"),
    ("v3", "float32", {"transpose_rhs": True}, "transpose_rhs is True; accepted: False"),
    ("v3", "float32", {"block": BlockSizes(128, 128, 128)}, "chooses its own"),
    ("nki", "float32", {"activation": np.tanh}, "activation is .*None, since .nki. only mult"),
    ("nki", "float32", {"prologue": np.tanh}, "prologue is .* only multiplies"),
    ("nki", "int8", {}, "x.dtype is 'int8'; accepted: float32, bfloat16"),
    ("pallas", "int8", {"prologue": jnp.tanh}, "prologue is .*; accepted: None for int8"),
)


def test_float8_has_no_gradient():
    x = jnp.ones((4, 4), jnp.float8_e4m3fn)
    with pytest.raises(ValueError, match="gradient, is 'float8_e4m3fn'; accepted: float32"):
        jax.grad(lambda x: matmul(x, x).sum())(x)


class TestBlocks:
    def test_what_vmem_cannot_hold_is_refused_with_the_arithmetic(self):
        says = r"2 × \(x 64 \+ y 64 \+ z 32\) \+ 64 for sums = 384 MiB .*at most 112 MiB in all on"
        with pytest.raises(ValueError, match=says):
            call("pallas", jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16), block=BIG)
        with pytest.raises(ValueError, match=r"1 × .* MiB of VMEM"):
            call("v0")

    def test_the_arithmetic_adds_up(self):
        """Sums apart from the parts that float32 is split into."""
        block = BlockSizes(512, 4096, 512)
        assert block.vmem_bytes("bfloat16") == 2 * (4 + 4 + 0.5) * 2**20 + 2**20
        words = {name: block.arithmetic(name) for name in ("float32", "bfloat16", "int8")}
        parts = "+ 2 for sums + 24 for bfloat16 parts of x and y = 60 MiB"
        assert parts in words["float32"] and words["bfloat16"].endswith("= 18 MiB of VMEM")
        assert "parts" not in words["bfloat16"] + words["int8"]
        numbers = lambda text: sum(float(n) for n in re.findall(r"(?<![\w.])[\d.]+", text))
        for sums in words.values():
            terms = re.match(r"(\d+) × \((.+)\) \+ (.+) = ([\d.]+) MiB", sums)
            buffers, held, rest, total = terms.groups()
            assert int(buffers) * numbers(held) + numbers(rest) == float(total), sums

    def test_rows_are_shared_out_evenly(self):
        block = BlockSizes.default(4100, 4096, 4096, np.dtype(ml_dtypes.bfloat16))
        count = -(-4100 // block.bm)
        assert count * block.bm - 4100 < 16 * count

    def test_a_record_of_the_shape_itself_is_the_nearest(self):
        for (chip, dtype), table in TUNED.items():
            kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
            for shape, block in table.items():
                assert nearest(*shape, kind, CHIPS[chip]) == (shape, block)

    @pytest.mark.parametrize(("chip", "dtype"), [key for key in TUNED if key[0] in ("v5e", "v6e")])
    def test_the_table_is_the_tuners_best(self, chip, dtype):
        for (m, k, n), block in TUNED[chip, dtype].items():
            tried = {
                record.tuning["block"]: record.value
                for record in read("tuned.csv")
                if (record.operator, record.chip, record.dtype) == ("matmul", chip, dtype)
                and record.sizes == {"m": m, "k": k, "n": n}
                and "block" in record.tuning
            }
            assert tried, f"nothing was tuned for {m}×{k}×{n} {dtype} on {chip}"
            assert tried[str(block)] == min(tried.values())
