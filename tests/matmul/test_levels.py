"""The levels, and the blocks that the last one chooses."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from refused import refuses

from kernels.figures import read
from kernels.machines.pallas import calls
from kernels.machines.tpu import CHIPS
from kernels.matmul import BlockSizes, matmul
from kernels.matmul.blocks import TUNED, nearest

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


BIG = BlockSizes(4096, 8192, 4096)
