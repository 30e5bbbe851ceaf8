"""ring_attention: how the sequence is cut, what is refused, and what faults the rungs see."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from kernels import ladder, tpu
from kernels.collectives import reference, ring_attention, zigzag
from kernels.proof.backends.xla_mesh import XLA_MESH
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

SIZES = {"devices": 3, "b": 1, "h": 2, "n": 8, "d": 16}
CAUSAL = Workload("causal", SIZES, options={"causal": True})


@pytest.mark.parametrize("devices", [1, 2, 7])
def test_zigzag_gives_each_device_as_many_pairs_and_leads_back(devices):
    tokens = np.arange(devices * 6)
    cut = zigzag(tokens, devices, axis=0)
    assert np.array_equal(zigzag(cut, devices, axis=0, back=True), tokens)
    seen = (cut + 1).reshape(devices, 6).sum(1)  # token i sees i + 1 keys
    assert len(set(seen)) == 1
    assert np.array_equal(zigzag(jnp.asarray(tokens), devices, axis=0), cut)


def test_uneven_parts_are_refused():
    with pytest.raises(ValueError, match=r"x\.shape\[2\] is 6; accepted: a multiple of 4"):
        zigzag(np.zeros((1, 1, 6, 8)), 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 3, "causal": True}, r"q\.shape\[2\] \(tokens\) is 3; accepted: an even number"),
        ({"d": 257}, r"q\.shape\[3\] \(head_dim\) is 257; accepted: at most 256"),
        ({"dtype": "int32"}, r"q\.dtype is 'int32'; accepted: float32, bfloat16"),
        ({"m": 5}, r"k\.shape is \(1, 1, 5, 8\); accepted: \(1, 1, 4, 8\), as q has it"),
        ({"causal": 2}, "causal is 2; accepted: False, True"),
        ({"scale": float("nan")}, "scale is nan; accepted: None or a finite number"),
        ({"block": 100}, "block is 100; accepted: None or a multiple of 128"),
        ({"axis_name": "z"}, "axis_name is 'z'; accepted: one axis of the mesh"),
        ({"axis_name": ("x",)}, r"axis_name is \('x',\); accepted: one axis of the mesh"),
        ({"implementation": "ring"}, "implementation is 'ring'; accepted: xla, gathered, pallas"),
    ],
)
def test_what_is_refused_before_anything_runs(change, words):
    options = {"axis_name": "x", **change}
    n, d = options.pop("n", 4), options.pop("d", 8)
    m, dtype = options.pop("m", n), options.pop("dtype", "float32")
    q, k = (np.zeros((2, 1, 1, tokens, d), dtype) for tokens in (n, m))
    with pytest.raises(ValueError, match=words):
        jax.vmap(lambda q, k: ring_attention(q, k, k, **options), axis_name="x")(q, k)


def other(q, k, v, axis_name, *, causal, fault=None):
    """Attention of all keys, gathered; right without a fault."""
    names = {"axis_name": axis_name, "axis": 2, "tiled": True}
    devices, me, tokens = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name), q.shape[2]
    if fault == "own":  # what the others hold never arrives
        k, v = (jnp.tile(x, (1, 1, devices, 1)) for x in (k, v))
    else:
        k, v = (jax.lax.all_gather(x, **names) for x in (k, v))
    place = np.arange(devices * tokens)
    if fault != "order":  # as if the parts stood one after another
        place = zigzag(place, devices, axis=0)
    mine = jax.lax.dynamic_slice_in_dim(jnp.asarray(place), me * tokens, tokens)
    s = q.shape[3] ** -0.5 * jnp.einsum("bhnd,bhmd->bhnm", q, k, precision="highest")
    s = jnp.where(place <= mine[:, None] + (fault == "one later"), s, -jnp.inf)
    o = jnp.einsum("bhnm,bhmd->bhnd", jax.nn.softmax(s), v, precision="highest")
    return o * 0 if fault == "zeros" else o


@pytest.mark.parametrize("fault", [None, "zeros", "own", "order", "one later"])
def test_a_planted_fault_falls_and_another_way_of_writing_passes(fault):
    function = XLA_MESH.spread(functools.partial(other, fault=fault))
    operator = OPERATORS["ring_attention"]
    subject = ladder.Subject(operator, "planted", XLA_MESH, function)
    [check] = ladder.climb(subject, "interpret", [CAUSAL])
    assert check.status == (ladder.FAILED if fault else ladder.PASSED), check


def cut(q, k, v, names):
    spec = P(*names)
    local = lambda q, k, v: ring_attention(q, k, v, "y", causal=True)
    return jax.shard_map(local, in_specs=spec, out_specs=spec, check_vma=False)(q, k, v)


def test_a_ring_along_one_axis_of_two():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 1, 16, 16)).astype(np.float32) for _ in range(3))
    own = functools.partial(cut, names=("x", None, "y"))
    runs = [tpu.simulate(own, q, k, v, mesh={"x": 2, "y": 2}, seed=seed) for seed in (1, 2)]
    parts = [x.reshape(2, 1, 2, 8, 16).transpose(2, 0, 1, 3, 4) for x in (q, k, v)]
    wanted = reference.ring_attention(*(x.astype(np.float64) for x in parts), causal=True)
    assert runs[0].races == runs[1].races == ()
    assert np.array_equal(runs[0].result, runs[1].result)
    result = runs[0].result.reshape(2, 1, 2, 8, 16).transpose(2, 0, 1, 3, 4)
    assert np.abs(result - wanted).max() < 1e-6 * np.abs(v).max()
