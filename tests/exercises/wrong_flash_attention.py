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


def every_block(n, bq, bk, w):
    return (n // bq) * (n // bk)


def visits_every_block(q_ref, k_ref, v_ref, o_ref, *, bk, w):
    flash_window(q_ref, k_ref, v_ref, o_ref, bk=bk, w=w, late=-(10**6))


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
    ("flash_window_blocks", every_block, "interpret", "the result is 16, the reference 7"),
    ("flash_window_blocks", lambda *sizes: 0, "interpret", "every element is zero"),
    ("flash_balance", lambda d: 2 * d, "interpret", "the result is 128, the reference 256"),
)
