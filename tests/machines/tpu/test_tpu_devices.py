"""Several simulated devices: orders of arrival, deadlocks, what is left behind."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from kernels import tpu

X = np.arange(3 * 8 * 128, dtype=np.float32).reshape(3, 8, 128)
MESH = pl.DeviceIdType.MESH


def meet(neighbours):
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in neighbours:
        pl.semaphore_signal(barrier, 1, device_id=neighbour, device_id_type=MESH)
    pl.semaphore_wait(barrier, len(neighbours))


def on_devices(body, x):
    """A kernel on one row of x each, with two copies' semaphores and one of signals."""

    def local(x):
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
            out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
            scratch_shapes=[pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.REGULAR],
            compiler_params=pltpu.CompilerParams(collective_id=3, has_side_effects=True),
        )(x)

    return jax.shard_map(local, in_specs=P("x"), out_specs=P("x"), check_vma=False)(x)


def hop_to(device, x_ref, o_ref, copied):
    semaphores = copied.at[0], copied.at[1]
    to = {"device_id": device, "device_id_type": MESH}
    hop = pltpu.make_async_remote_copy(x_ref, o_ref, *semaphores, **to)
    hop.start()
    return hop


def shift(x, fault=""):
    """Each device's row goes to the next one."""

    def body(x_ref, o_ref, copied, raised):
        n, me = lax.axis_size("x"), lax.axis_index("x")
        right, left = lax.rem(me + 1, n), lax.rem(me + n - 1, n)
        meet((left, right))
        target = lax.min(me + 1, n - 1) if fault == "wrap" else right
        hop = hop_to(target, x_ref, o_ref, copied)
        if fault == "raised":
            pl.semaphore_signal(raised, 1)
        if fault == "outside":
            o_ref[...] = x_ref[:, pl.ds(me * 4, 8)]
        hop.wait_send()
        if fault == "wrong semaphore":
            hop.wait_send()
        elif fault != "no wait":
            hop.wait_recv()

    return on_devices(body, x)


def arrivals(x):
    """Whoever comes first writes into device 0's memory last: the order shows."""

    def body(x_ref, o_ref, copied, raised):
        me, n = lax.axis_index("x"), lax.axis_size("x")
        meet((lax.rem(me + 1, n), lax.rem(me + n - 1, n)))
        hop = hop_to(0, x_ref, o_ref, copied)
        hop.wait_send()

        @pl.when(me == 0)
        def _():
            for _ in range(3):
                hop.wait_recv()

        @pl.when(me > 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

    return on_devices(body, x)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_every_order_gives_the_same_bits(seed):
    run = tpu.simulate(shift, X, mesh={"x": 3}, seed=seed)
    assert np.array_equal(run.result, X[[2, 0, 1]]) and run.races == ()


def test_a_seed_is_an_order_the_same_each_time():
    """Where the result depends on the order: so seeds do differ, and the next tests mean it."""
    simulate = functools.partial(tpu.simulate, arrivals, X, mesh={"x": 3})
    first, again = ([simulate(seed=seed) for seed in range(4)] for _ in range(2))
    results = [run.result[0, 0, 0] for run in first]
    assert len(set(results)) > 1 and results == [run.result[0, 0, 0] for run in again]
    assert first[0].races


DEADLOCK = (  # and who raised the semaphore last
    r"deadlock: device 0 waits at test_tpu_devices\.py:\d+, `hop\.wait_.*semaphore 0 of the "
    "kernel, which has 0 of 4096 and was raised last by the bytes .*device 1 waits"
)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong semaphore", DEADLOCK),
        # Too little for one device, and who should have raised it; or too much for another.
        ("wrap", r"semaphore 1 .*(nobody raised here; on device 1 it was .*device 0|to 4096)"),
        ("no wait", r"(nobody waits for|the bytes of a copy from device \d) .*hop\.start"),
        ("raised", r"semaphore 2 of the kernel raised to 1 by device \d at test_tpu_devices"),
        ("outside", "[Oo]ut-of-bounds|out of bounds"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_wrong_is_told_in_every_order(fault, words, seed):
    with pytest.raises(tpu.SimulationError, match=words):
        tpu.simulate(functools.partial(shift, fault=fault), X, mesh={"x": 3}, seed=seed)


@pytest.mark.slow
def test_what_has_no_end_is_ended():
    def forever(x):
        return lax.while_loop(lambda x: x.sum() != np.inf, lambda x: x * 0 + 1, x)

    with pytest.raises(tpu.SimulationError, match="2 devices had not finished after 3 s"):
        tpu.simulate(forever, X, mesh={"x": 2}, timeout=3)


@pytest.mark.parametrize("mesh", [{}, {"x": 0}, {"x": 1.5}])
def test_an_impossible_mesh_is_refused(mesh):
    with pytest.raises(ValueError, match=r"mesh.* is .*accepted: "):
        tpu.simulate(shift, X, mesh=mesh)


def test_a_function_s_own_words_come_through():
    def refuses(x):
        raise ValueError("x is 3; accepted: 4")

    with pytest.raises(ValueError, match="x is 3; accepted: 4"):
        tpu.simulate(refuses, X, mesh={"x": 3})
