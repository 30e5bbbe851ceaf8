"""A kernel is compiled and estimated as it runs on a TPU, whatever it does on this machine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import shape
from test_tpu_values import COUNTS, X, prefetching, rounds_of_data

from kernels import gpu, tpu
from kernels.attention import attention, block_sparse_attention, vit_attention
from kernels.giou import giou
from kernels.machines.gpu.export import export as gpu_export
from kernels.machines.tpu.export import export
from kernels.matmul import block_sparse_matmul, matmul, quantized_matmul
from kernels.nms import nms
from kernels.vector import add_vectors

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((128, 128)).astype(np.float32)
HEADS = RNG.standard_normal((1, 2, 128, 64)).astype(np.float32)
QKV = RNG.standard_normal((2, 64, 3 * 2 * 64)).astype(np.float32)
BOXES = np.sort(RNG.uniform(0, 1, (8, 128, 2, 2)), 2).reshape(8, 128, 4).astype(np.float32)
BYTES = RNG.integers(-9, 9, (128, 128)).astype(np.int8)
ROW = np.ones(128, np.float32)
PLACES = np.arange(2, dtype=np.int32)
ALL = np.ones((1, 1), bool)

ATTENDED = ["flash_attention_forward"]


def narrow(x, y, scale, bias, **options):
    return quantized_matmul(x, y, None, scale, bias, **options)


# Each function that may interpret itself, its arguments, its options, and its kernels.
STACKS = np.stack([MATRIX] * 2), np.concatenate([MATRIX] * 2)
FUNCTIONS = {
    "matmul": (matmul, (MATRIX, MATRIX), {}, ["matmul"]),
    "v0": (matmul, (MATRIX, MATRIX), {"implementation": "v0"}, ["matmul_v0"]),
    "v3": (matmul, (MATRIX, MATRIX), {"implementation": "v3"}, ["matmul_v3"]),
    "quantized_matmul": (quantized_matmul, (BYTES, BYTES, ROW, ROW, ROW), {}, ["matmul"]),
    "narrow_weights": (narrow, (MATRIX, BYTES, ROW, ROW), {}, ["narrow_matmul"]),
    "block_sparse": (block_sparse_matmul, (*STACKS, PLACES, PLACES), {}, ["block_sparse_matmul"]),
    "attention": (attention, (HEADS,) * 3, {}, ATTENDED),
    "jax_flash": (attention, (HEADS,) * 3, {"implementation": "jax_flash"}, None),
    "block_sparse_attention": (block_sparse_attention, (HEADS,) * 3, {"mask": ALL}, ATTENDED),
    "vit_attention": (vit_attention, (QKV,), {"num_heads": 2}, None),
    "giou": (giou, (BOXES, BOXES[::-1]), {}, ["giou_forward"]),
    "giou_v2": (giou, (BOXES, BOXES[::-1]), {"implementation": "v2"}, None),
    "nms": (nms, (BOXES[0], BOXES[0, :, 0]), {"iou_threshold": 0.5}, None),
    "add_vectors": (add_vectors, (ROW, ROW), {}, None),
}


def shapes(arrays):
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kernel_that_was_traced_to_be_interpreted_is_exported_as_compiled(name):
    function, arrays, options, names = FUNCTIONS[name]
    function = functools.partial(function, **options)
    jitted = jax.jit(function)
    before = np.asarray(jitted(*arrays))  # interpreted, and traced so
    program = export(jitted, *shapes(arrays))
    compiled = export(jax.jit(functools.partial(function, interpret=False)), *shapes(arrays))
    assert program.calls and program.fingerprint == compiled.fingerprint
    if names:
        assert [call.name for call in program.calls] == names
    # And the way back: what was traced for the TPU is not what runs here.
    np.testing.assert_array_equal(np.asarray(jitted(*arrays)), before)
    np.testing.assert_array_equal(np.asarray(function(*arrays)), before)


@pytest.mark.parametrize("name", ["matmul", "attention", "vit_attention", "giou"])
def test_so_is_a_gradient(name):
    function, arrays, options, _ = FUNCTIONS[name]
    gradient = jax.jit(jax.grad(lambda *arrays: function(*arrays, **options).sum()))
    before = np.asarray(gradient(*arrays))
    calls = export(gradient, *shapes(arrays)).calls
    assert len(calls) >= 2 and (name == "matmul" or any("backward" in call.name for call in calls))
    np.testing.assert_array_equal(np.asarray(gradient(*arrays)), before)


def test_every_chip_is_traced_for_itself():
    jitted = jax.jit(matmul)
    large = [shape(4096, 4096)] * 2
    programs = [export(jitted, *large, chip=chip) for chip in ("v5e", "v6e")]
    blocks = [program.calls[0].inputs[0].block for program in programs]
    assert blocks[0] != blocks[1]


def by_hand(x):
    """A stranger's kernel, which is always interpreted."""

    def double(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    return pl.pallas_call(double, out_shape=shape(*x.shape, dtype=x.dtype), interpret=True)(x)


@pytest.mark.parametrize("function", [by_hand, jax.jit(by_hand), jax.vmap(by_hand)])
@pytest.mark.parametrize(
    "ask",
    [
        *(export, gpu_export, tpu.lower, gpu.lower),
        *(pytest.param(f, marks=pytest.mark.libtpu) for f in (tpu.compile, tpu.schedule)),
        pytest.param(tpu.estimate, marks=pytest.mark.libtpu),
    ],
)
def test_a_kernel_that_insists_on_being_interpreted_is_refused(ask, function):
    with pytest.raises(ValueError, match=r"interprets its kernel double.*; accepted: one that"):
        ask(function, shape(8, 128, dtype=jnp.float32))


def test_so_is_one_beside_a_kernel_that_does_not():
    with pytest.raises(ValueError, match="interprets its kernel double"):
        export(lambda x: by_hand(x) + add_vectors(x[0], x[0]), shape(8, 128, dtype=jnp.float32))


def test_an_estimate_is_that_of_the_compiled_kernel(scratch):
    """The packed attention of a ViT layer once took 30 times as long, as it is interpreted."""
    qkv, packed = shape(8, 256, 3 * 12 * 64), functools.partial(vit_attention, num_heads=12)
    estimate = tpu.estimate(jax.jit(packed), qkv)
    assert [op.kind for op in estimate.ops if op.cycles] == ["kernel"]
    assert estimate.seconds < 0.1e-3
    # The same program, which is estimated once.
    assert tpu.estimate(jax.jit(functools.partial(packed, interpret=False)), qkv) is estimate


def test_an_array_is_its_value_where_that_decides():
    counts = [np.full(8, 10), np.full(8, 11), COUNTS]
    ten, eleven, unknown = programs = [export(prefetching(rounds_of_data), c, X) for c in counts]
    assert len({program.data for program in programs}) == 1  # it stays an argument
    assert len({program.fingerprint for program in programs}) == 3
    assert len({program.fingerprint.split()[0] for program in programs}) == 1  # compiled once
    assert [*ten.values] == [*eleven.values] == [0] and not unknown.values
    numbers = np.ones((128, 128), np.int8)
    product, other = (export(lambda x, y: x @ y, x, x) for x in (numbers, numbers * 2))
    assert not product.values and product.fingerprint == other.fingerprint

    def function(x, double, n, tree):
        y = jax.lax.fori_loop(tree["first"], n, lambda i, y: y * x, x)
        return y * 2 if double else y

    of_a_tree = jax.jit(function, static_argnums=1)
    named = jax.jit(function, static_argnames="double")
    for program in (
        export(of_a_tree, numbers, True, 9, {"first": np.int32(2)}),
        export(named, numbers, double=True, tree={"first": np.int32(2)}, n=jnp.int32(9)),
    ):
        assert program.rounds == 7 and len(program.values) == 2
    size = {"first": shape(dtype=jnp.int32)}
    assert export(of_a_tree, numbers, True, 9, size).rounds is None


def test_a_kernel_that_interprets_itself_is_refused_however_it_is_made():
    if hasattr(pltpu, "TensorCoreMesh"):  # since JAX 0.12
        mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=1)
    else:
        mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)

    def function(x):
        def kernel(x, o):
            pltpu.sync_copy(x, o)

        return pl.kernel(kernel, out_type=X, mesh=mesh, interpret=True, name="stand_in")(x)

    with pytest.raises(ValueError, match="interprets its kernel stand_in"):
        export(function, X)


VECTOR = jax.ShapeDtypeStruct((1000,), jnp.float32)


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_the_kernel_reaches_the_program(chip):
    lowered = tpu.lower(functools.partial(add_vectors, interpret=False), VECTOR, VECTOR, chip=chip)
    assert lowered.machine == chip and "tpu_custom_call" in lowered.text
    (kernel,) = lowered.kernels
    assert "vector.load" in kernel and "#tpu.memory_space<vmem>" in kernel


def test_the_triton_kernel_carries_triton_ir():
    f = functools.partial(add_vectors, implementation="triton", interpret=False)
    lowered = gpu.lower(f, VECTOR, VECTOR)
    assert "__gpu$xla.gpu.triton" in lowered.text
    (kernel,) = lowered.kernels
    assert all(word in kernel for word in ("tt.make_range", "tt.addptr", "tt.store"))
