"""Attention over pages: what is refused, what stands beyond a length, and the update of the pages.

That it is right on every workload, the tests of the rungs hold.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.paged_attention import paged_attention, pallas, reference, update_pages
from kernels.paged_attention.operator import PAGED_ATTENTION
from kernels.proof import budget
from kernels.proof.workload import Workload

SIZES = {"s": 3, "h": 4, "hkv": 2, "d": 128, "page": 8, "pages": 3, "least": 1}
INTERPRETED = functools.partial(paged_attention, interpret=True)


def arguments(seed=0, dtype="float32", **sizes):
    return PAGED_ATTENTION.workloads.arguments(Workload("drawn", SIZES | sizes, dtype), seed)


def verdict(result, inputs, **options):
    """By the operator's own budget, the plain form's error left out: that is the strictest."""
    wide = [np.asarray(x, np.float64) for x in inputs[:3]]
    expected, size, rounding = (
        function(*wide, *inputs[3:], **options)
        for function in (
            reference.paged_attention,
            reference.paged_attention_magnitude,
            reference.paged_attention_rounding,
        )
    )
    return budget.compare(result, expected, expected, size, rounding=rounding)


@pytest.mark.parametrize("implementation", ["xla", "xla_in_turn", "pallas"])
def test_right_under_jit_where_no_value_is_known(implementation):
    inputs = arguments()
    call = jax.jit(functools.partial(INTERPRETED, implementation=implementation))
    assert verdict(call(*inputs), inputs).passed


def test_the_budget_refuses_a_token_too_many_and_another_head():
    q, k_pages, v_pages, lengths, table = inputs = arguments(least=8)
    longer = np.minimum(lengths + 1, 24).astype(np.int32)
    table = np.clip(table, 0, len(k_pages[0]) - 1)
    assert not verdict(INTERPRETED(q, k_pages, v_pages, longer, table), inputs).passed
    assert not verdict(INTERPRETED(q[:, ::-1], k_pages, v_pages, lengths, table), inputs).passed
    assert not verdict(np.zeros(q.shape, np.float32), inputs).passed


def test_a_right_kernel_written_in_another_way_passes():
    """All heads at once, pages laid out by NumPy, in float32."""
    q, k_pages, v_pages, _, table = inputs = arguments(h=2, least=24)
    k, v = (x[:, table].reshape(2, 3, 24, 128) for x in (k_pages, v_pages))
    p = np.exp(np.einsum("shd,hstd->sht", q, k) / np.sqrt(np.float32(128)))
    o = np.einsum("sht,hstd->shd", p / p.sum(-1, keepdims=True), v)
    assert verdict(o, inputs).passed


def test_no_sequence_has_a_token():
    q, k_pages, v_pages, lengths, table = arguments()
    for implementation in ("xla", "pallas"):
        o = INTERPRETED(q, k_pages, v_pages, 0 * lengths, table, implementation=implementation)
        assert not np.asarray(o).any()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("lengths", 1), 25, r"lengths\[1\] is 25; accepted: 0 to 24"),
        (("lengths", 2), -1, r"lengths\[2\] is -1; accepted: 0 to 24"),
        (("page_table", (0, 2)), 99, r"page_table\[0, 2\] is 99; accepted: 0 to"),
        (("page_table", (0, 1)), -1, r"page_table\[0, 1\] is -1; accepted: 0 to"),
    ],
)
def test_the_first_value_out_of_range_is_named_before_anything_runs(place, value, words):
    *arrays, lengths, table = arguments(least=24)
    (name, index), known = place, {"lengths": lengths, "page_table": table}
    known[name][index] = value
    with pytest.raises(ValueError, match=words):
        paged_attention(*arrays, lengths, table)


def test_a_page_that_no_length_reaches_may_be_any_number():
    *arrays, lengths, table = arguments(least=24)
    lengths[1] = 8
    table[1, 1:] = -1, 10**9
    assert verdict(INTERPRETED(*arrays, lengths, table), (*arrays, lengths, table)).passed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"h": 5, "hkv": 1, "heads": 2}, "q.shape.1. .heads. is 5; accepted: a multiple of the 2"),
        ({"lengths": np.int64}, "lengths.dtype is 'int64'; accepted: int32"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"block": 0}, "block is 0"),
        ({"implementation": "triton"}, "implementation is 'triton'"),
        ({"implementation": "xla", "block": 2}, "block is 2; accepted: None"),
    ],
)
def test_bad_arguments_are_named(changed, words):
    options = {n: changed[n] for n in ("scale", "block", "implementation") if n in changed}
    q, k_pages, v_pages, lengths, table = arguments(
        **{n: changed[n] for n in ("h", "hkv") if n in changed}
    )
    if "heads" in changed:
        k_pages, v_pages = (np.repeat(x, 2, axis=0) for x in (k_pages, v_pages))
    lengths = lengths.astype(changed.get("lengths", np.int32))
    with pytest.raises(ValueError, match=words):
        paged_attention(q, k_pages, v_pages, lengths, table, **options)


def test_a_block_is_as_large_as_vmem_bears():
    plan = pallas.make_plan(8, 16, 128, 256, "bfloat16")
    assert plan.block == pallas.PageBlocks(pages=64, heads=8)
    assert pallas.make_plan(256, 16, 256, 256, "float32").block.heads < 256
    assert pallas.make_plan(8, 16, 128, 3, "bfloat16").block.pages == 3  # a sequence has no more
    with pytest.raises(ValueError, match="block is 4096 pages of 64 tokens"):
        pallas.make_plan(8, 64, 256, 4096, "float32", block=4096)


def test_the_update_writes_one_token_of_each_sequence_and_nothing_else():
    _, k_pages, v_pages, _, _ = arguments()
    lengths = np.array([0, 7, 8], np.int32)  # into a first page, its last row, the next page
    table = np.arange(9, dtype=np.int32).reshape(3, 3)[::-1].copy() % k_pages.shape[1]
    table[0] = 4
    k, v = np.random.default_rng(1).standard_normal((2, 3, 2, 128)).astype(np.float32)
    expected = k_pages.copy(), v_pages.copy()
    for pages, new in zip(expected, (k, v)):
        for s, length in enumerate(lengths):
            pages[:, table[s, length // 8], length % 8] = new[s]
    result = update_pages(*map(jnp.asarray, (k_pages, v_pages, k, v)), lengths, table)
    for pages, wanted in zip(result, expected):
        np.testing.assert_array_equal(pages, wanted)


def test_the_update_refuses_a_sequence_whose_table_is_full():
    _, k_pages, v_pages, lengths, table = arguments(least=23)
    new = np.zeros((3, 2, 128), np.float32)
    with pytest.raises(ValueError, match=r"lengths\[0\] is 24; accepted: 0 to 23"):
        update_pages(k_pages, v_pages, new, new, lengths, table)
    with pytest.raises(ValueError, match=r"k\.shape is"):
        update_pages(k_pages, v_pages, new[:, :1], new, lengths - 1, table)
