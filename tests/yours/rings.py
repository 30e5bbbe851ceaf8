"""Rings that somebody brings: right ones, written in another way than ours, and wrong ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

import kernels

MESH = pl.DeviceIdType.MESH
HBM = pl.BlockSpec(memory_space=pltpu.HBM)


def gather(x, fault=""):
    """Every hop unrolled, with semaphores and a place in the result of its own: nothing is used
    twice, so that nobody has to say what is free."""
    n = lax.axis_size("x")

    def body(x_ref, o_ref, own, sent, arrived):
        me = lax.axis_index("x")
        right, left = lax.rem(me + 1, n), lax.rem(me + n - 1, n)
        if fault not in ("no_barrier", "met_by_xla"):
            barrier = pltpu.get_barrier_semaphore()
            for neighbour in (left, right):
                pl.semaphore_signal(barrier, 1, device_id=neighbour, device_id_type=MESH)
            pl.semaphore_wait(barrier, 2)
        mine = pltpu.make_async_copy(x_ref, o_ref.at[me], own)
        mine.start()
        mine.wait()
        for step in range(n - 1):
            part = o_ref.at[lax.rem(me - step + n, n)]
            hop = pltpu.make_async_remote_copy(
                *(part, part, sent.at[step], arrived.at[0 if fault == "shared" else step]),
                device_id=left if fault == "wrong_neighbour" else right,
                device_id_type=MESH,
            )
            hop.start()
            hop.wait_send()
            if fault == "deadlock":
                hop.wait_send()
            else:
                hop.wait_recv()
        if fault == "last_device":

            @pl.when(me == n - 1)
            def _():
                again = pltpu.make_async_copy(x_ref, o_ref.at[0], own)
                again.start()
                again.wait()

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, *x.shape), x.dtype),
        in_specs=[HBM],
        out_specs=HBM,
        scratch_shapes=[pltpu.SemaphoreType.DMA, *[pltpu.SemaphoreType.DMA((n - 1,))] * 2],
        compiler_params=pltpu.CompilerParams(
            collective_id=None if fault == "met_by_xla" else 5, has_side_effects=True
        ),
    )(x).reshape(n * x.shape[0], -1)


def draw(rng):
    return (rng.standard_normal((24, 128)).astype(np.float32),)


rings = functools.partial(
    kernels.proves, mesh={"x": 3}, in_specs=P("x"), out_specs=P(), values=("given",), chips=("v5e",)
)


def with_gradient(back):
    @jax.custom_vjp
    def ring(x):
        return gather(x)

    ring.defvjp(lambda x: (gather(x), None), lambda _, cotangents: (back(cotangents),))
    return ring


def known(name, ring):
    ring.__name__ = name
    rings(lambda x: x, arguments=draw, differentiable=("x",) * name.endswith("gradient"))(ring)


FAULTS = ("no_barrier", "deadlock", "wrong_neighbour", "last_device")
for fault in ("met_by_xla", "shared", *FAULTS):
    known(fault, lambda x, fault=fault: gather(x, fault))
summed = functools.partial(lax.psum_scatter, axis_name="x", scatter_dimension=0, tiled=True)
known("right_gradient", with_gradient(summed))
known("half_a_gradient", with_gradient(lambda cotangents: cotangents[:8]))  # this device's alone


@kernels.proves(
    lambda x, w, scale: (scale * jnp.dot(x, w), x.sum()),
    arguments=lambda rng: (*draw(rng), np.ones((128, 128), np.float32), 2.0),
    mesh={"x": 2, "y": 2},
    in_specs=(P("x"), P(None, "y"), P()),
    out_specs=(P("x", "y"), P()),
    values=("given",),
    chips=("v5e",),
)
def product(x, w, scale):
    """A part of a product on each of four devices, and a sum over two of them."""

    def body(x_ref, w_ref, o_ref):
        o_ref[...] = scale * jnp.dot(x_ref[...], w_ref[...])

    shape = jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype)
    return pl.pallas_call(body, out_shape=shape)(x, w), lax.psum(x.sum(), "x")
