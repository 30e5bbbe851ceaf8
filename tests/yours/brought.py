"""Kernels that somebody could bring: right ones, and wrong ones with the rung that finds each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import kernels


def rows(rng):
    return (rng.standard_normal((64, 256)).astype(np.float32),)


def softmax_reference(x):
    return jax.nn.softmax(x, axis=-1)


def normalise(x_ref, o_ref):
    e = jnp.exp(x_ref[...] - x_ref[...].max(-1, keepdims=True))
    o_ref[...] = e / e.sum(-1, keepdims=True)


def by_rows(body, x, out=lambda i: (i, 0), semantics="parallel", rows=8, shape=None, **more):
    spec = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    params = pltpu.CompilerParams(dimension_semantics=(semantics,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(shape or x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], rows),),
        in_specs=[spec],
        out_specs=pl.BlockSpec((rows, x.shape[1]), out),
        **{"compiler_params": params} | more,
    )(x)


@kernels.proves(softmax_reference, arguments=rows)
@jax.jit
def softmax(x):
    return by_rows(normalise, x)


def norm_arguments(rng):
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    return draw(9, 128), {"weight": draw(128), "bias": draw(128)}


def norm_reference(x, parameters):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + 1e-6)
    return scaled * parameters["weight"] + parameters["bias"], {"mean": mean}


def norm(variance, x, parameters):
    def body(x_ref, w_ref, b_ref, o_ref, mean_ref):
        x = x_ref[...]
        mean = x.mean(-1, keepdims=True)
        o_ref[...] = (x - mean) * jax.lax.rsqrt(variance(x, mean) + 1e-6) * w_ref[...] + b_ref[...]
        mean_ref[...] = mean

    shapes = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in (x.shape, (x.shape[0], 1))]
    weight, bias = (parameters[name].reshape(1, -1) for name in ("weight", "bias"))
    out, mean = pl.pallas_call(body, out_shape=shapes)(x, weight, bias)
    return out, {"mean": mean}


@kernels.proves(norm_reference, arguments=norm_arguments)
def layer_norm(x, parameters):
    return norm(lambda x, mean: ((x - mean) ** 2).mean(-1, keepdims=True), x, parameters)


@kernels.proves(norm_reference, arguments=norm_arguments)
def naive_norm(x, parameters):
    return norm(lambda x, mean: (x * x).mean(-1, keepdims=True) - mean * mean, x, parameters)


@jax.custom_vjp
def scaled(x):
    return by_rows(lambda x_ref, o_ref: o_ref.__setitem__(..., 3 * x_ref[...]), x)


scaled.defvjp(lambda x: (scaled(x), None), lambda _, g: (3 * g,))


@jax.custom_vjp
def missing_factor(x):
    return scaled(x)


missing_factor.defvjp(lambda x: (scaled(x), None), lambda _, g: (g,))

kernels.proves(lambda x: 3 * x, arguments=rows, differentiable=("x",))(scaled)
kernels.proves(lambda x: 3 * x, arguments=rows, differentiable=("x",))(missing_factor)


@kernels.proves(softmax_reference, arguments=rows)
def unwritten(x):
    """Half of the blocks are written by nobody."""
    return by_rows(normalise, x, out=lambda i: (i // 2, 0), semantics="arbitrary")


@kernels.proves(lambda x: x.reshape(8, 8, 256).sum(0), arguments=rows)
def racing(x, **more):
    """Programs that may run side by side add to one block."""

    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    return by_rows(body, x, out=lambda i: (0, 0), shape=(8, 256), **more)


@kernels.proves(softmax_reference, arguments=rows)
def odd_blocks(x):
    """Blocks of 4 rows are no whole number of tiles, which only the compiler minds."""
    return by_rows(normalise, x, rows=4)


@kernels.proves(softmax_reference, arguments=rows, chips=("h100",))
def on_a_gpu(x, rows=16):
    return by_rows(normalise, x, rows=rows, compiler_params=pltriton.CompilerParams(num_warps=4))


@kernels.proves(softmax_reference, arguments=rows, chips=("h100",))
def over_the_end(x):
    """A block of twice the array's rows, which nothing cuts on a GPU."""
    return on_a_gpu(x, 128)


@kernels.proves(lambda x: x.reshape(8, 8, 256).sum(0), arguments=rows, chips=("h100",))
def racing_on_a_gpu(x):
    return racing(x, compiler_params=pltriton.CompilerParams())


@kernels.proves(softmax_reference, arguments=rows)
def raising(x):
    return by_rows(normalise, x[:, :, None])


@kernels.proves(jnp.exp, arguments=rows, values=("given",))
def pipelined(x):
    """A pipeline inside a kernel, over what lies in HBM."""

    def power(x_ref, o_ref):
        o_ref[...] = jnp.exp(x_ref[...])

    def body(x_hbm, o_hbm):
        spec = pl.BlockSpec((32, 128), lambda i, j: (i, j))
        pltpu.emit_pipeline(power, grid=(2, 2), in_specs=[spec], out_specs=[spec])(x_hbm, o_hbm)

    whole = pl.BlockSpec(memory_space=pltpu.HBM)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, in_specs=[whole], out_specs=whole, out_shape=shape)(x)


@kernels.proves(lambda x: 2 * x, arguments=rows, values=("given",))
def in_place(x):
    """The result takes the argument's memory."""
    body = lambda x_ref, o_ref: o_ref.__setitem__(..., 2 * x_ref[...])
    return by_rows(body, x, input_output_aliases={0: 0})


@kernels.proves(lambda x: 2 * x, arguments=rows, values=("given",))
def by_pl_kernel(x):
    """A kernel without a grid, over the chip's cores."""

    def body(x_ref, o_ref):
        def inside(scratch, semaphore):
            pltpu.async_copy(x_ref, scratch, semaphore).wait()
            scratch[...] = 2 * scratch[...]
            pltpu.async_copy(scratch, o_ref, semaphore).wait()

        pl.run_scoped(inside, pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA)

    if hasattr(pltpu, "TensorCoreMesh"):  # since JAX 0.12
        mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=1)
    else:
        mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)
    return pl.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)(x)
