"""Wrong answers to the exercises of this chapter, and what is said of each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl


def flash_merge(o1, lse1, o2, lse2, *, start=None):
    largest = np.maximum(lse1, lse2) if start is None else start
    w1, w2 = np.exp(lse1 - largest), np.exp(lse2 - largest)
    return (w1 * o1 + w2 * o2) / (w1 + w2)


def half_and_half(o1, lse1, o2, lse2):
    return (o1 + o2) / 2


def overflowing_powers(*halves):
    with np.errstate(all="ignore"):
        return flash_merge(*halves, start=np.float32(0))


def flash_window(q_ref, k_ref, v_ref, o_ref, *, bk, w, hidden=-1e30, late=0):
    bq, d = q_ref.shape[1:]
    first = pl.program_id(1) * bq

    def step(j, carry):
        m, l, acc = carry
        block = pl.ds(j * bk, bk)
        s = jax.lax.dot_general(q_ref[0], k_ref[0, block], (((1,), (1,)), ((), ()))) * d**-0.5
        query = first + jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)
        key = j * bk + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
        s = jnp.where((key <= query) & (key > query - w), s, hidden)
        m_new = jnp.maximum(m, s.max(1, keepdims=True))
        shrink, p = jnp.exp(m - m_new), jnp.exp(s - m_new)
        l = shrink * l + p.sum(1, keepdims=True)
        return m_new, l, shrink * acc + jnp.dot(p, v_ref[0, block])

    start = jnp.full((bq, 1), hidden), jnp.zeros((bq, 1)), jnp.zeros((bq, d))
    begin = jnp.maximum(first - w + 1 + late, 0) // bk
    _, l, acc = jax.lax.fori_loop(begin, pl.cdiv(first + bq, bk), step, start)
    o_ref[0] = (acc / l).astype(o_ref.dtype)


def visits_every_block(q_ref, k_ref, v_ref, o_ref, *, bk, w):
    flash_window(q_ref, k_ref, v_ref, o_ref, bk=bk, w=w, late=-(10**6))


def transposed_dot(x, y):
    return jax.lax.dot_general(x, y, (((1,), (1,)), ((), ())), precision="highest")


def dq_in_one_piece(
    q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, dq_ref, *, bk, scaled=True, causal=True
):
    scale = q_ref.shape[-1] ** -0.5
    p = jnp.exp(scale * transposed_dot(q_ref[0], k_ref[0]) - lse_ref[0])
    query, key = (jax.lax.broadcasted_iota(jnp.int32, p.shape, axis) for axis in range(2))
    if causal:
        p = jnp.where(key <= query + pl.program_id(1) * q_ref.shape[1], p, 0)
    ds = p * (transposed_dot(do_ref[0], v_ref[0]) - delta_ref[0])
    dq = jnp.dot(ds, k_ref[0], precision="highest")
    dq_ref[0] = scale * dq if scaled else dq


def wrong_scale(*refs, bk):
    dq_in_one_piece(*refs, bk=bk, scaled=False)


def sees_the_future(*refs, bk):
    dq_in_one_piece(*refs, bk=bk, causal=False)


def attend_each(q, k, v, *, interpret, share=True):
    h, n, d = q.shape

    def kernel(q_ref, k_ref, v_ref, o_ref):
        s = transposed_dot(q_ref[0], k_ref[0]) * d**-0.5
        p = jnp.exp(s - s.max(1, keepdims=True))
        o_ref[0] = jnp.dot(p, v_ref[0], precision="highest") / p.sum(1, keepdims=True)

    own = pl.BlockSpec((1, n, d), lambda i: (i, 0, 0))
    groups = len(k)
    shared = pl.BlockSpec((1, n, d), lambda i: (i % groups, 0, 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(h,),
        in_specs=[own, shared, shared],
        out_specs=own,
        interpret=interpret,
    )(q, k, v)


def repeats_in_hbm(q, k, v, *, interpret):
    times = len(q) // len(k)
    return attend_each(q, jnp.repeat(k, times, 0), jnp.repeat(v, times, 0), interpret=interpret)


def online(q_ref, k_ref, v_ref, o_ref, bk=128):
    (bq, d), n = q_ref.shape, k_ref.shape[0]
    last = (((1,), (1,)), ((), ()))
    exact = "highest" if q_ref.dtype == jnp.float32 else None

    def dot(x, y, how):
        return jax.lax.dot_general(x, y, how, precision=exact, preferred_element_type=jnp.float32)

    def block(j, carry):
        m, l, o = carry
        keys = pl.ds(pl.multiple_of(j * bk, bk), bk)
        s = dot(q_ref[...], k_ref[keys, :], last) * d**-0.5
        most = jnp.maximum(m, s.max(1, keepdims=True))
        p, shrink = jnp.exp(s - most), jnp.exp(m - most)
        pv = dot(p.astype(v_ref.dtype), v_ref[keys, :], (((1,), (0,)), ((), ())))
        return most, shrink * l + p.sum(1, keepdims=True), shrink * o + pv

    start = jnp.full((bq, 1), -1e30), jnp.zeros((bq, 1)), jnp.zeros((bq, d))
    _, l, o = jax.lax.fori_loop(0, n // bk, block, start)
    o_ref[...] = (o / l).astype(o_ref.dtype)


def softmax_as_written(q, k, v):
    exact = "highest" if q.dtype == jnp.float32 else None
    s = jnp.einsum("hqd,hkd->hqk", q, k, precision=exact, preferred_element_type=jnp.float32)
    p = jax.nn.softmax(s * q.shape[-1] ** -0.5, axis=-1).astype(v.dtype)
    o = jnp.einsum("hqk,hkd->hqd", p, v, precision=exact, preferred_element_type=jnp.float32)
    return o.astype(v.dtype)


WRONG = (
    ("flash_merge", half_and_half, "interpret", "element [1, 3, 0]"),
    ("flash_merge", overflowing_powers, "interpret", "on large"),
    ("flash_merge", lambda o1, lse1, o2, lse2: o1[0], "interpret", "shape is (8, 4)"),
    ("flash_merge", lambda o1, lse1, o2, lse2: 0 * o2, "interpret", "every element is zero"),
    ("flash_merge", lambda *halves: None, "interpret", "NoneType is returned"),
    ("flash_window", functools.partial(flash_window, hidden=-float("inf")), "interpret", "is nan"),
    ("flash_window", functools.partial(flash_window, late=128), "interpret", "on narrow"),
    ("flash_window", visits_every_block, "interpret", "on unseen"),
    ("flash_window", lambda q, k, v, o, **sizes: None, "interpret", "ever written?"),
    ("flash_backward", dq_in_one_piece, "compile", "has 32768 numbers, at most 16384"),
    ("flash_backward", wrong_scale, "interpret", "on two"),
    ("flash_backward", sees_the_future, "interpret", "on two"),
    ("flash_gqa", attend_each, "interpret", "on four"),
    ("flash_gqa", repeats_in_hbm, "compile", "k is fetched 4 times, 2 would do"),
    ("flash_fast", online, "speed", "the bar is 18,000"),
    ("flash_rival", softmax_as_written, "speed", "the bar is 18,500"),
)
