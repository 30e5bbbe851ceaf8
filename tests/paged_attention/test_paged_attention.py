"""Attention over pages: what is refused, what stands beyond a length, and the update of the pages.

That it is right on every workload, the tests of the rungs hold.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refused import refuses

from kernels.paged_attention import (
    paged_attention,
    pallas,
    ragged_paged_attention,
    reference,
    tiles,
    update_pages,
)
from kernels.paged_attention.operator import PAGED_ATTENTION
from kernels.proof import budget
from kernels.proof.workload import Workload

SIZES = {"s": 3, "h": 4, "hkv": 2, "d": 128, "page": 8, "pages": 3, "least": 1}
PROMPTS = {"prompts": 2, "chunk": 11}
INTERPRETED = functools.partial(paged_attention, interpret=True)
RAGGED = functools.partial(ragged_paged_attention, interpret=True)


def arguments(seed=0, dtype="float32", **sizes):
    """Of paged_attention, or, with sizes of prompts, of ragged_paged_attention."""
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


@pytest.mark.parametrize(
    ("function", "implementation"),
    [(INTERPRETED, name) for name in ("xla", "xla_in_turn", "pallas")]
    + [(RAGGED, name) for name in ("xla", "pallas")],
)
def test_right_under_jit_where_no_value_is_known(function, implementation):
    inputs = arguments() if function is INTERPRETED else arguments(**PROMPTS, least=12)
    call = jax.jit(functools.partial(function, implementation=implementation))
    assert verdict(call(*inputs), inputs).passed


@pytest.mark.parametrize(("implementation", "by"), [("xla", "xla_in_turn"), ("pallas", "pallas")])
def test_a_row_for_each_sequence_is_decode(implementation, by):
    inputs = arguments(s=5)
    decoded = INTERPRETED(*inputs, implementation=by)
    o = RAGGED(*inputs, np.arange(6, dtype=np.int32), implementation=implementation)
    np.testing.assert_array_equal(o, decoded)


@pytest.mark.slow
def test_a_prompt_in_chunks_is_the_prompt_and_no_row_is_written_twice():
    """Sequences of every number of new rows from 0 to 18, each alone in what it may touch."""
    lengths = np.full(19, 24, np.int32)
    q, k_pages, v_pages, _, table, _ = arguments(s=19, least=24, prompts=19, chunk=18)
    starts = np.append(0, np.cumsum(np.arange(19))).astype(np.int32)
    o = RAGGED(q, k_pages, v_pages, lengths, table, starts)
    assert verdict(o, (q, k_pages, v_pages, lengths, table, starts)).passed
    assert not np.asarray(o[starts[-1] :]).any() and len(o) > starts[-1]
    rows = slice(starts[18], starts[19])
    for cut in (7, 8, 17):  # the last sequence in two calls, as a server does
        first = RAGGED(
            q[rows][:cut], k_pages, v_pages, lengths[18:] - 18 + cut, table[18:], np.int32([0, cut])
        )
        np.testing.assert_allclose(first, o[rows][:cut], rtol=2e-5, atol=2e-6)


def test_tiles_never_run_out():
    """However new rows are spread, as many tiles as T and S allow are enough, and none is lost."""
    rng, (s, rows) = np.random.default_rng(0), (7, 61)

    def attend(q, sequence, first, seen):  # of each row its number and its position
        place = first[:, None] + jnp.arange(q.shape[1])
        is_seen = (place < seen[:, None])[..., None, None]
        return jnp.where(is_seen, q + 1000 * place[..., None, None], 0)

    call = jax.jit(lambda *arrays: tiles.ragged(attend, *arrays, 1))
    q = np.arange(rows, dtype=np.float32)[:, None, None] + 1
    for draw in range(60):
        most = rows if draw % 2 else 2 * s  # of few rows, many sequences have one
        starts = np.sort(np.append(0, rng.integers(0, most + 1, s))).astype(np.int32)
        lengths = (np.diff(starts) + rng.integers(0, 9, s)).astype(np.int32)
        wanted = np.zeros(rows)
        for new, length in zip(map(np.arange, starts, starts[1:]), lengths):
            wanted[new] = new + 1 + 1000 * (length - len(new) + np.arange(len(new)))
        np.testing.assert_array_equal(call(q, lengths, starts)[:, 0, 0], wanted)


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
        (("query_starts", 2), 10, r"query_starts\[2\] is 10; accepted: 11 to 23, the rows of q"),
        (("query_starts", 3), 24, r"query_starts\[3\] is 24; accepted: 22 to 23"),
        (("query_starts", 0), 1, r"query_starts\[0\] is 1; accepted: 0 to 0"),
        (("new", 1), 10, r"lengths\[1\] is 10; accepted: 11 to 24"),
        (("new", 1), 25, r"lengths\[1\] is 25; accepted: 11 to 24"),
    ],
)
def test_the_first_value_out_of_range_is_named_before_anything_runs(place, value, words):
    *arrays, lengths, table, starts = arguments(least=24, **PROMPTS)
    known = {"lengths": lengths, "page_table": table, "query_starts": starts, "new": lengths}
    name, index = place
    known[name][index] = value
    with pytest.raises(ValueError, match=words):
        if name in ("lengths", "page_table"):
            paged_attention(arrays[0][:3], *arrays[1:], lengths, table)
        else:
            ragged_paged_attention(*arrays, lengths, table, starts)


def test_starts_of_another_number_of_sequences_are_refused():
    *arrays, starts = arguments(**PROMPTS)
    with pytest.raises(ValueError, match=r"query_starts\.shape\[0\] - 1 is 2"):
        ragged_paged_attention(*arrays, starts[:-1])


def test_a_page_that_no_length_reaches_may_be_any_number():
    *arrays, lengths, table = arguments(least=24)
    lengths[1] = 8
    table[1, 1:] = -1, 10**9
    assert verdict(INTERPRETED(*arrays, lengths, table), (*arrays, lengths, table)).passed


KNOWN = dict(zip(("q", "k_pages", "v_pages", "lengths", "page_table"), arguments(), strict=True))
test_bad_arguments_are_named = refuses(
    lambda changed: paged_attention(**KNOWN | changed),
    (dict(q=np.ones((3, 5, 128), np.float32)), r"q.shape\[1\] .heads. is 5; accepted: a multiple"),
    (dict(lengths=np.ones(3, np.int64)), "lengths.dtype is 'int64'; accepted: int32"),
    (dict(scale=float("nan")), "scale is nan"),
    (dict(block=0), "block is 0"),
    (dict(implementation="triton"), "implementation is 'triton'"),
    (dict(implementation="xla", block=2), "block is 2; accepted: None"),
)


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
