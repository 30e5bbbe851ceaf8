"""Partial sums that a kernel rounds are counted, and held to what its reference does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.compat import jaxprs
from kernels.proof import ladder
from kernels.proof.backends.base import Job
from kernels.proof.backends.pallas_tpu import Brought
from kernels.yours import answers
from kernels.yours.claim import Claim
from kernels.yours.declared import Declared
from kernels.yours.partial_sums import most_rounded

BF16, F32 = jnp.bfloat16, jnp.float32
# How five terms are added up → the partial sums that it rounds, and what proving it says.
ADDED = {
    "in float32": (1, "passed", lambda t: sum(t[1:], t[0]).astype(BF16)),
    "in pairs": (1, "passed", lambda t: ((t[4] + t[0]) + (t[1] + (t[2] + t[3]))).astype(BF16)),
    "each rounded": (1, "passed", lambda t: sum(
        x.astype(BF16).astype(F32) for x in t).astype(BF16)),
    "in bfloat16": (4, "failed", lambda t: sum((x.astype(BF16) for x in t[1:]), t[0].astype(BF16))),
    "in float32, rounded at once": (5, "failed", lambda t: functools.reduce(
        lambda sum_, x: (sum_.astype(F32) + x).astype(BF16), t, jnp.zeros(t[0].shape, BF16))),
}  # fmt: skip


def added_in_memory(x_ref, o_ref, total):
    """Over a grid, in a scratch of bfloat16."""
    total[...] = jnp.where(pl.program_id(0) == 0, 0, total[...]) + x_ref[0]
    o_ref[...] = total[...]


@pytest.mark.slow
@pytest.mark.parametrize("how", ADDED)
def test_five_terms_are_added_up_in_float32_and_rounded_once(how, monkeypatch):
    """What holds them to that is the reference: against one that adds in bfloat16 all pass."""
    count, status, add = ADDED[how]
    scales = (0.7, 1.3, -0.9, 1.1, 0.6)

    def summed(x):
        def body(x_ref, o_ref):
            o_ref[...] = add([x_ref[i].astype(F32) * scale for i, scale in enumerate(scales)])

        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape[1:], x.dtype))(x)

    def reference(x):
        return sum(x[i].astype(F32) * scale for i, scale in enumerate(scales)).astype(x.dtype)

    def narrow(x):
        return sum((x[i] * BF16(scale) for i, scale in enumerate(scales)), BF16(0))

    draws = lambda rng: (rng.standard_normal((5, 64, 128)).astype(BF16),)
    assert most_rounded(jaxprs.trace(summed, *draws(np.random.default_rng(0)))).count == count
    for of_reference, expected in ((reference, status), (narrow, "passed")):
        claim = Claim(Declared(summed, of_reference, draws, name="summed"))
        monkeypatch.setitem(answers._claims, "summed", claim)
        climbed = answers.climb("summed", "interpret", 0, ("v5e",), 0)
        assert climbed["status"] == expected
        lines = "rounded after each term (test_partial_sums.py:" in climbed["message"]
        assert lines == (expected == "failed")


def test_sums_are_followed_through_memory_loops_and_branches():
    """A grid, a loop, and what pl.when sets to zero; a copy makes a term of a sum."""

    def looped(x_ref, o_ref, total):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total[...] = jnp.zeros(total.shape, total.dtype)

        total[...] += jax.lax.fori_loop(0, 9, lambda i, t: t + x_ref[0], x_ref[0])
        pl.run_scoped(
            lambda own: own.__setitem__(..., total[...]), pltpu.VMEM((8, 128), x_ref.dtype)
        )

    def copied(x_ref, o_ref, total):
        pltpu.sync_copy(x_ref.at[0], total)
        o_ref[...] = total[...] + x_ref[0]

    narrow = (added_in_memory, BF16, 4, 4), (looped, BF16, 5, 40), (copied, BF16, 1, 1)
    wide = (added_in_memory, F32, 0, 0), (looped, F32, 0, 0)
    for body, dtype, low, high in (*narrow, *wide):
        x = jnp.zeros((9, 8, 128), dtype)
        called = lambda x, body=body, dtype=dtype: pl.pallas_call(
            body,
            grid=(9,),
            in_specs=[pl.BlockSpec((1, 8, 128), lambda i: (i, 0, 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i: (0, 0)),
            out_shape=jax.ShapeDtypeStruct((8, 128), dtype),
            scratch_shapes=[pltpu.VMEM((8, 128), dtype)],
        )(x)
        assert low <= most_rounded(jaxprs.trace(called, x)).count <= high


@pytest.mark.parametrize("early", [False, True])
def test_a_slot_refilled_early_is_found_where_no_watch_for_races_runs(early):
    """Simulated copies take place when they are waited for: the refilled slot is what is sent."""

    def body(x_ref, o_ref, slots, done):
        copies = [
            pltpu.make_async_copy(slots.at[i % 2], o_ref.at[i], done.at[i % 2]) for i in range(4)
        ]
        for i, copy in enumerate(copies):
            if i >= 2 and not early:
                copies[i - 2].wait()
            slots[i % 2] = x_ref[i] * 2
            copy.start()
            if i >= 2 and early:
                copies[i - 2].wait()
        copies[2].wait()
        copies[3].wait()

    def sent_in_turn(x):
        spec = pl.BlockSpec(memory_space=pl.ANY)
        slots = [pltpu.VMEM((2, 8, 128), F32), pltpu.SemaphoreType.DMA((2,))]
        return pl.pallas_call(body, out_shape=x, out_specs=spec, scratch_shapes=slots)(x)

    x = np.arange(4 * 8 * 128, dtype=np.float32).reshape(4, 8, 128)
    run = Brought(("v5e",)).simulate(Job(sent_in_turn, [x], {}), 0, watched=False)
    assert "without a watch" in run.note and np.array_equal(run.result, 2 * x) == (not early)


CHUNK, DECAY = 32, 0.9


def token_by_token(q, k, v):
    """Linear attention with a decay, whose state is float32 whatever its arguments are."""

    def step(state, token):
        q, k, v = token
        state = DECAY * state + jnp.einsum("i,j->ij", k, v, preferred_element_type=F32)
        return state, jnp.einsum("i,ij->j", q, state, preferred_element_type=F32)

    return jax.lax.scan(step, jnp.zeros((128, 128), F32), (q, k, v))[1]


def chunk_by_chunk(q, k, v, decay=DECAY, chunks=4, accumulator=F32):
    """The same, a product for all tokens of a chunk; only so many chunks are added to the state."""

    def body(q_ref, k_ref, v_ref, o_ref, state):
        product = functools.partial(jnp.dot, precision="highest")
        token = jax.lax.broadcasted_iota(F32, (CHUNK, 1), 0)
        age = token - token.T
        seen = jnp.where(age >= 0, decay ** jnp.maximum(age, 0), 0)
        q, k, v = q_ref[...], k_ref[...], v_ref[...]
        before = jnp.where(pl.program_id(0) == 0, 0, state[...]).astype(F32)
        old = decay ** (token + 1) * product(q, before)
        o_ref[...] = old + product(product(q, k.T) * seen, v)

        @pl.when(pl.program_id(0) < chunks)
        def _():
            young = (k * decay ** (CHUNK - 1 - token)).T
            state[...] = (decay**CHUNK * before + product(young, v)).astype(accumulator)

    spec = pl.BlockSpec((CHUNK, 128), lambda i: (i, 0))
    scratch, grid = [pltpu.VMEM((128, 128), accumulator)], (q.shape[0] // CHUNK,)
    specs = {"in_specs": [spec] * 3, "out_specs": spec}
    return pl.pallas_call(body, out_shape=q, grid=grid, scratch_shapes=scratch, **specs)(q, k, v)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [{}, {"decay": DECAY + 1e-5}, {"chunks": 2}, {"accumulator": BF16}]
)
def test_against_a_loop_that_adds_up_only_a_right_kernel_passes(fault):
    arguments = lambda rng: tuple(rng.standard_normal((3, 128, 128)).astype(np.float32))
    kernel = functools.partial(chunk_by_chunk, **fault)
    claim = Claim(Declared(kernel, token_by_token, arguments, name="chunked"))
    subject = answers._subject(claim, Brought(("v5e",)))
    problems = claim.workloads.named[:1] if fault else claim.workloads.named
    checks = [*ladder.climb(subject, "interpret", problems)]
    assert {check.status for check in checks} == {"failed" if fault else "passed"}, checks
