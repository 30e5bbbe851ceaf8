"""What the chapters say of old calls is what the old calls say."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.optional import available

TEXTS = Path(__file__).resolve().parent.parent / "notebooks" / "text"
PAGES = "\n".join(path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.md")))
X = jnp.arange(8)
MOSAIC_GPU = {  # with absl, which optax brings, its own rules speak
    True: "Only copies transferring a number of bytes divisible by the warpgroup size",
    False: "Cannot lower pallas_call on platform: gpu",
}


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def checks_kernel(x_ref, o_ref):
    checkify.check(x_ref[0] > 0, "must be positive")
    o_ref[...] = x_ref[...]


def call(**options):
    return pl.pallas_call(add_kernel, out_shape=X, **options)(X, X)


def old_block_spec():
    spec = pl.BlockSpec(lambda i: (i,), (8,))  # constructs, and fails at the call
    call(grid=(1,), in_specs=[spec, spec], interpret=True)


def mesh_of_names():
    mesh = jax.sharding.Mesh([["cpu:0", "cpu:1"]], ("x", "y"))  # constructs, and fails at the use
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    jax.device_put(jnp.ones(4), whole)


OLD = {
    "pl.load": (lambda: pl.load(X, 0), "module 'jax.experimental.pallas' has no attribute 'load'"),
    "xla_computation": (
        lambda: jax.xla_computation(jnp.sin),
        "module 'jax' has no attribute 'xla_computation'",
    ),
    "jax.pjit": (lambda: jax.pjit, "module 'jax' has no attribute 'pjit'"),
    "Mesh of names": (mesh_of_names, "'numpy.str_' object has no attribute 'platform'"),
    "lax.PartitionSpec": (
        lambda: jax.lax.PartitionSpec,
        "module 'jax.lax' has no attribute 'PartitionSpec'",
    ),
    "randint": (
        lambda: jax.random.randint(jax.random.key(0), (1024, 512), jnp.int8),
        "randint() missing 1 required positional argument: 'maxval'",
    ),
    "TPUMemorySpace": (
        lambda: pltpu.TPUMemorySpace.SMEM,
        "module 'jax.experimental.pallas.tpu' has no attribute 'TPUMemorySpace'",
    ),
    "pltpu.ANY": (
        lambda: pltpu.ANY,
        "module 'jax.experimental.pallas.tpu' has no attribute 'ANY'",
    ),
    "TPUCompilerParams": (
        lambda: pltpu.TPUCompilerParams(),
        "module 'jax.experimental.pallas.tpu' has no attribute 'TPUCompilerParams'",
    ),
    "TPUInterpretParams": (
        lambda: pltpu.TPUInterpretParams(),
        "module 'jax.experimental.pallas.tpu' has no attribute 'TPUInterpretParams'",
    ),
    "compiler_params=dict": (
        lambda: call(
            compiler_params=dict(mosaic=dict(dimension_semantics=("parallel",))), interpret=True
        ),
        "unhashable type: 'dict'",
    ),
    "BlockSpec order": (old_block_spec, "'function' object is not iterable"),
    "pl.Unblocked": (
        lambda: pl.Unblocked(),
        "module 'jax.experimental.pallas' has no attribute 'Unblocked'",
    ),
    "checkify": (
        lambda: pl.pallas_call(checks_kernel, out_shape=X, interpret=True)(X),
        "Cannot abstractly evaluate a checkify.check which was not functionalized",
    ),
    "GPU default": (
        lambda: jax.jit(call).trace().lower(lowering_platforms=("cuda",)),
        MOSAIC_GPU[available("absl")],
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_the_old_line_says_what_the_page_says(name):
    line, message = OLD[name]
    with pytest.raises(Exception, match=re.escape(message)):
        line()
    assert f"`{message}`" in PAGES


def test_randint_ends_where_int8_does():
    key = jax.random.key(0)
    drawn = jax.random.randint(key, (4096,), dtype=jnp.int8, minval=0, maxval=255)
    assert drawn.min() >= 0 and drawn.max() == 127


def test_checkify_does_not_see_into_a_kernel():
    """It reports no error, although the kernel makes a NaN."""

    def log_kernel(x_ref, o_ref):
        o_ref[...] = jnp.log(x_ref[...])

    def log(x):
        return pl.pallas_call(log_kernel, out_shape=x, interpret=True)(x)

    error, result = checkify.checkify(log, errors=checkify.nan_checks)(jnp.array([-1.0]))
    assert jnp.isnan(result).all() and error.get() is None


def test_no_message_in_the_pages_goes_untested():
    boxes = "".join(re.findall(r":class: then-and-now\n(.*?)```", PAGES, re.S))
    cells = re.findall(r"^\| .* \| .* \| (.*) \|$", boxes, re.M)
    told = {m for cell in cells for m in re.findall(r"`([^`]* [^`]*)`", cell)}
    assert told <= {message for _, message in OLD.values()} | {*MOSAIC_GPU.values()}
