"""int8: the rounding, the sums, and the layer, which the ladder asks only for good arguments."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from close import assert_close, assert_right
from refused import refuses

from kernels.machines.pallas import calls
from kernels.matmul import BlockSizes, matmul, quantize, quantize_weights, quantized_matmul, xla
from kernels.matmul.operator import LONGEST
from kernels.matmul.quantized import WEIGHTS
from kernels.proof.catalog import OPERATORS
from validation import xla_int4

LAYER = OPERATORS["quantized_matmul"]
SMALL = BlockSizes(32, 128, 128)


def floats(shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(dtype)


def layer(m, k, n):
    """Arguments of quantized_matmul."""
    return LAYER.workloads.arguments(LAYER.workloads.find(f"m={m} k={k} n={n} int8"))


GOOD = dict(zip(("x", "y", "x_scale", "y_scale", "bias"), layer(4, 6, 3), strict=True))


class TestQuantize:
    @pytest.mark.parametrize("shape", [(1, 1), (31, 257), (200, 3)])
    @pytest.mark.parametrize("axis", [0, 1])
    @pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
    def test_no_number_moves_by_more_than_half_a_scale(self, shape, axis, dtype):
        x = floats(shape, dtype)
        integers, scale = map(np.asarray, quantize(x, axis))
        assert integers.dtype == np.int8 and scale.dtype == np.float32
        assert integers.shape == shape and scale.shape == (shape[1 - axis],)
        step = np.expand_dims(scale.astype(np.float64), axis)
        moved = np.abs(integers * step - x.astype(np.float64))
        assert (moved <= step * (0.5 + 127 * np.finfo(np.float32).eps)).all()

    @pytest.mark.parametrize("axis", [0, 1])
    def test_the_largest_of_each_row_or_column_is_127(self, axis):
        integers, scale = quantize(floats((9, 13)), axis)
        assert (np.abs(np.asarray(integers, int)).max(axis) == 127).all()
        largest = np.abs(floats((9, 13))).max(axis)
        assert_close(scale, largest.astype(np.float64) / 127, largest / np.float32(127))

    def test_the_negative_has_the_negative_integers(self):
        x = floats((7, 50))
        assert np.array_equal(quantize(-x, 1)[0], -quantize(x, 1)[0])
        assert np.asarray(quantize(x, 1)[0]).min() >= -127

    def test_a_row_of_zeros_stays_zero_and_integers_that_fit_come_back(self):
        x = floats((3, 5))
        x[1] = 0
        integers, scale = quantize(x, 1)
        assert not np.asarray(integers)[1].any() and scale[1] == 1
        assert np.asarray(integers)[[0, 2]].any()
        x = np.random.default_rng(0).integers(-127, 128, (6, 40)).astype(np.float32)
        x[:, 0] = 127
        integers, scale = quantize(x, 1)
        assert np.array_equal(integers, x) and (np.asarray(scale) == 1).all()

    test_refuses = staticmethod(
        refuses(
            quantize,
            (np.ones((2, 2)), 1, "x.dtype is 'float64'"),
            (np.ones((2, 2), np.int8), 1, "x.dtype is 'int8'"),
            (np.ones(2, np.float32), 1, r"x.shape is \(2,\); accepted: 2 dimensions"),
            (np.ones((2, 0), np.float32), 1, "dimensions of at least 1"),
            (np.ones((2, 2), np.float32), 2, "axis is 2; accepted: 0, 1"),
            (np.ones((2, 2), np.float32), None, "axis is None"),
        )
    )


class TestSums:
    @pytest.mark.parametrize("implementation", ["pallas", "xla", "v0", "v3", "v5"])
    @pytest.mark.parametrize(("k", "beyond"), [(3, np.int8), (8, np.int16), (2000, np.int16)])
    def test_sums_that_narrower_integers_cannot_hold_are_exact(self, implementation, k, beyond):
        x, y = np.full((32, k), -128, np.int8), np.full((k, 128), -128, np.int8)
        want = k * 128**2
        assert want > np.iinfo(beyond).max
        assert (np.asarray(matmul(x, y, implementation=implementation)) == want).all()

    def test_the_longest_sum_is_exact(self):
        x = np.full((1, LONGEST), -128, np.int8)
        want = LONGEST * 128**2
        assert want <= np.iinfo(np.int32).max < want + 128**2
        for implementation in ("pallas", "xla"):
            assert np.asarray(matmul(x, x.T, implementation=implementation)) == want

    @pytest.mark.parametrize("implementation", ["pallas", "xla", "v0", "v5"])
    @pytest.mark.parametrize("transpose_rhs", [False, True])
    def test_a_longer_one_is_refused(self, implementation, transpose_rhs):
        x = jax.ShapeDtypeStruct((8, LONGEST + 1), jnp.int8)
        y = jax.ShapeDtypeStruct(x.shape if transpose_rhs else x.shape[::-1], jnp.int8)
        with pytest.raises(ValueError, match="k is 131072; accepted: at most 131071 for int8"):
            matmul(x, y, implementation=implementation, transpose_rhs=transpose_rhs)
        if implementation == "pallas" and not transpose_rhs:
            one = jax.ShapeDtypeStruct((1,), jnp.float32)
            with pytest.raises(ValueError, match="k is 131072"):
                quantized_matmul(x, y, one, one, one)
            floats = (jax.ShapeDtypeStruct(a.shape, jnp.float32) for a in (x, y))
            assert jax.eval_shape(matmul, *floats).shape == (8, 8)


class TestLayer:
    @pytest.mark.parametrize("implementation", ["pallas", "xla"])
    def test_rounded_once_to_the_dtype_asked_for(self, implementation):
        asked = functools.partial(quantized_matmul, *layer(33, 70, 130))
        wide, narrow = (
            asked(implementation=implementation, out_dtype=d) for d in ("float32", "bfloat16")
        )
        assert wide.shape == narrow.shape == (33, 130) and wide.dtype == "float32"
        assert narrow.dtype == "bfloat16" and np.array_equal(narrow, wide.astype("bfloat16"))

    def test_no_int32_leaves_the_kernel(self):
        (call,) = calls(lambda *a: quantized_matmul(*a, out_dtype="bfloat16"), *layer(64, 128, 256))
        assert [o.dtype for o in call.operands if o.role == "output"] == ["bfloat16"]
        assert call.operands[-1].traffic == 2 * 64 * 256

    test_refuses_before_anything_runs = staticmethod(
        refuses(
            lambda change: quantized_matmul(**GOOD | change),
            ({"x": np.ones((4, 6), np.uint8)}, "x.dtype is 'uint8'; accepted: int8, bfloat16"),
            ({"x": np.ones((4, 6), np.float32)}, "x_scale is an array; accepted: None"),
            ({"weights": "int4"}, "weights is 'int4'; accepted: None, int8"),
            ({"y": np.ones((6, 3), np.uint8)}, "y.dtype is 'uint8'; accepted: int8"),
            ({"x": np.ones(6, np.int8)}, r"x.shape is \(6,\); accepted: 2 dimensions"),
            ({"x": np.ones((4, 0), np.int8)}, "dimensions of at least 1"),
            ({"y": np.ones((5, 3), np.int8)}, r"y.shape is \(5, 3\); accepted: 6 in dimension 0"),
            ({"x_scale": np.ones(3, np.float32)}, r"x_scale.shape is \(3,\); accepted: \(4,\)"),
            ({"x_scale": np.ones((4, 1), np.float32)}, "accepted: 1 dimension"),
            ({"x_scale": np.ones(4, np.float64)}, "x_scale.dtype is 'float64'"),
            ({"x_scale": 0.5}, "x_scale is a float"),
            ({"y_scale": np.ones(4, np.float32)}, r"accepted: \(3,\), one for each column of y"),
            ({"y_scale": np.ones(3, np.int8)}, "y_scale.dtype is 'int8'"),
            ({"bias": np.ones(4, np.float32)}, r"bias.shape is \(4,\)"),
            ({"bias": None}, "bias is a NoneType"),
            ({"out_dtype": "int8"}, "out_dtype is 'int8'; accepted: float32, bfloat16"),
            ({"activation": "relu"}, "activation is 'relu'"),
            ({"implementation": "v3"}, "implementation is 'v3'; accepted: xla, pallas"),
            ({"block": (32, 128, 128)}, "block is"),
            ({"block": SMALL, "implementation": "xla"}, "block is 32×128×128"),
        )
    )


def narrow_layer(weights, m=9, k=96, n=130, groups=3, dtype=np.float32):
    """x, stored weights, None, scales and a bias; and the weights as they were."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    y, scale = quantize_weights(w, weights, groups)
    return (x, y, None, scale, rng.standard_normal(n).astype(np.float32)), w


class TestNarrowWeights:
    @pytest.mark.parametrize("weights", WEIGHTS)
    @pytest.mark.parametrize(("k", "groups"), [(96, 3), (45, 3), (7, 1)])
    def test_what_comes_back_is_near(self, weights, k, groups):
        """Rows of the unit matrix show each weight: off by half a step, or half of float8's ulp."""
        (_, y, _, scale, bias), w = narrow_layer(weights, k=k, groups=groups)
        unit = np.eye(k, dtype=np.float32)
        back = np.asarray(quantized_matmul(unit, y, None, scale, 0 * bias, weights=weights))
        step = np.repeat(np.asarray(scale), k // groups, 0)
        if weights in ("int8", "int4"):
            assert (np.abs(back - w) <= 0.501 * step).all()
        else:
            info = ml_dtypes.finfo(weights)
            near = np.maximum(np.abs(w) * float(info.eps), step * float(info.smallest_subnormal))
            assert (np.abs(back - w) <= 0.501 * near).all()
        assert len(np.unique(back / step)) > 10

    def test_int4_stands_in_halves_of_bytes(self):
        w = np.float32([[7, -7], [-3, 2], [1, 7], [-7, 0]])
        y, scale = quantize_weights(w, "int4")
        halves = np.asarray(y, np.int8).view(np.uint8)
        assert (np.asarray(scale) == 1).all() and y.shape == (2, 2)
        assert halves.tolist() == [[0xD7, 0x29], [0x91, 0x07]]

    @pytest.mark.parametrize("swapped", [False, True])
    def test_xla_s_own_int4_gives_what_those_in_bytes_give(self, swapped):
        x, y, _, scale, bias = arguments = LAYER.workloads.arguments(LAYER.workloads["int4"])
        even, odd = xla.in_groups(y, 1, "int4")
        halves = (odd, even) if swapped else (even, odd)
        whole = jnp.stack(halves, 2).reshape(-1, y.shape[1]).astype(jnp.int4)
        result = xla_int4.layer(x, whole, scale, bias)
        with pytest.raises(AssertionError) if swapped else contextlib.nullcontext():
            assert_right("quantized_matmul", result, *arguments, weights="int4")

    def test_the_weights_are_frozen(self):
        (x, y, _, scale, bias), _ = narrow_layer("int4")
        loss = lambda x, scale, bias: quantized_matmul(
            x, y, None, scale, bias, weights="int4", activation=jax.nn.relu
        ).sum()
        dx, dscale, dbias = jax.grad(loss, (0, 1, 2))(x, scale, bias)
        assert np.asarray(dx).any() and not np.asarray(dscale).any() and not np.asarray(dbias).any()

    def test_no_wide_weights_leave_the_kernel(self):
        (x, y, *rest), _ = narrow_layer("int4", 32, 256, 256, 2, ml_dtypes.bfloat16)
        (call,) = calls(lambda *a: quantized_matmul(*a, weights="int4"), x, y, *rest)
        assert call.operands[1].traffic == 256 * 256 // 2

    test_refuses = staticmethod(
        refuses(
            lambda change: quantized_matmul(
                **dict(zip(GOOD, narrow_layer("int4")[0], strict=True), weights="int4") | change
            ),
            ({"weights": "int2"}, "weights is 'int2'; accepted: None, int8, int4"),
            ({"weights": None}, r"y.shape\[0\] is 48; accepted: 96, for 96 rows of int8"),
            ({"x_scale": np.ones(9, np.float32)}, "x_scale is an array; accepted: None"),
            ({"y_scale": np.ones((5, 130), np.float32)}, r"is 5; accepted: a divisor of k, 96"),
            ({"y_scale": np.ones((3, 13), np.float32)}, r"y_scale.shape is \(3, 13\)"),
            ({"y": np.ones((48, 130), np.uint8)}, "y.dtype is 'uint8'"),
            ({"out_dtype": "bfloat16"}, "out_dtype is 'bfloat16'; accepted: float32"),
            ({"block": BlockSizes(8, 32, 128)}, "block.bk is 32"),
            ({"block": BlockSizes(8, 96, 100)}, "block.bn is 100; accepted: a multiple of 128"),
        )
    )

    test_quantize_weights_refuses = staticmethod(
        refuses(
            functools.partial(quantize_weights, np.ones((4, 2), np.float32)),
            ("int2", 1, "weights is 'int2'"),
            ("int4", 5, "a divisor of k, 4"),
            ("int8", 0, "is 0"),
        )
    )
