"""Attention over pages, and the update of the pages.

paged_attention(q, k_pages, v_pages, lengths, page_table): [S, H, D], [Hkv, P, page, D] → [S, H, D]
ragged_paged_attention(…, query_starts): [T, H, D], [Hkv, P, page, D] → [T, H, D]
"""

from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator
from kernels.proof.workload import Workload


def paged_attention(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    lengths: Any,
    page_table: Any,
    *,
    scale: float | None = None,
    implementation: str = "pallas",
    block: int | None = None,
    interpret: Any = None,
) -> Any:
    """Attention of one query per sequence to the keys and values that its pages hold (decode).

    The tokens of sequence s are those of pages page_table[s, 0], page_table[s, 1] …, lengths[s] of
    them. Query head h reads head h // (H // Hkv) of the keys. What a page holds beyond a length,
    and what the table holds beyond its sequence's last page, is never looked at.

    Args:
        q: [S, H, D], float32 or bfloat16. No dimension may be zero.
        k_pages, v_pages: [Hkv, P, page, D] in q's dtype; H is a multiple of Hkv.
        lengths: int32 [S], tokens of each sequence, from 0 to as many as its row of the table has
            room for.
        page_table: int32 [S, pages], from 0 to P - 1 as far as a length reaches; sequences may
            share pages.
        scale: of the products; None is D ** -0.5.
        implementation: "xla" (gathers the pages, then masked attention), "xla_in_turn" (a sequence
            after another, so that XLA gathers its pages into VMEM), "pallas" (ours, for a TPU;
            pages that no tile of rows divides are first padded, which copies all of them),
            "jax_paged" (the kernel that ships with JAX, for the shapes that it takes).
        block: pages that "pallas" fetches at a time; None lets it choose.
        interpret: None interprets a kernel where there is no TPU.

    Returns:
        [S, H, D] in q's dtype, zeros where a length is 0; sums are float32. No gradients.

    Raises:
        ValueError: for another rank, dtype, size, scale, block or implementation; and, where their
            values are known, for the first length and the first page that are out of range.

    Source:
        PagedAttention (Kwon et al., 2023), with the online softmax of FlashAttention.
    """
    chosen = PAGED_ATTENTION[implementation]
    options = _options(q, k_pages, scale, block)
    _check_pages(k_pages, v_pages, lengths, page_table)
    checks.same("lengths.shape", tuple(lengths.shape), "q", tuple(q.shape[:1]))
    return chosen(q, k_pages, v_pages, lengths, page_table, interpret=interpret, **options)


def ragged_paged_attention(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    lengths: Any,
    page_table: Any,
    query_starts: Any,
    *,
    scale: float | None = None,
    implementation: str = "pallas",
    block: int | None = None,
    interpret: Any = None,
) -> Any:
    """Attention of the new tokens of all sequences to their pages: prefill and decode in one call.

    The rows query_starts[s] to query_starts[s + 1] of q are the last tokens of sequence s: none,
    one (decode), or many (a prompt, or a chunk of one). Each sees itself and the tokens before it,
    so the last one is token lengths[s] - 1. Their keys and values are in the pages already.

    Args:
        q: [T, H, D], float32 or bfloat16, sequence after sequence. No dimension may be zero.
        k_pages, v_pages, page_table: as of paged_attention.
        lengths: int32 [S], tokens of each sequence, its new ones included, from as many as those to
            as many as its row of the table has room for.
        query_starts: int32 [S + 1], from 0, never falling, up to T.
        scale, block, interpret: as of paged_attention.
        implementation: "xla" (a tile of rows after another, over the whole row of the table),
            "pallas" (the kernel of paged_attention; one call for sequences of one new token, one
            for those of more, in tiles that XLA gathers from q).

    Returns:
        [T, H, D] in q's dtype, zeros behind query_starts[S]; sums are float32. No gradients.

    Raises:
        ValueError: as paged_attention; and, where its value is known, for the first start that is
            out of range.

    Source:
        As of paged_attention; many rows at a time as the ragged_paged_attention that JAX ships.
    """
    chosen = RAGGED_PAGED_ATTENTION[implementation]
    checks.array("query_starts", query_starts, rank=1, dtypes=("int32",))
    checks.array("lengths", lengths, rank=1, dtypes=("int32",))
    checks.same("query_starts.shape[0] - 1", query_starts.shape[0] - 1, "lengths", len(lengths))
    options = _options(q, k_pages, scale, block)
    least: Any = 0
    starts = checks.known(query_starts)
    if starts is not None:
        before = np.append(0, starts[:-1])
        last = np.append(0, np.full(len(starts) - 1, q.shape[0]))  # the first one is 0
        wrong = np.flatnonzero((starts < before) | (starts > last))
        if wrong.size:
            accepted = f"{before[wrong[0]]} to {last[wrong[0]]}, the rows of q that are left"
            checks.fail(f"query_starts[{wrong[0]}]", starts[wrong[0]], accepted)
        least = np.diff(starts)
    _check_pages(k_pages, v_pages, lengths, page_table, least=least)
    arrays = q, k_pages, v_pages, lengths, page_table, query_starts
    return chosen(*arrays, interpret=interpret, **options)


def _options(q: Any, k_pages: Any, scale: float | None, block: int | None) -> dict[str, Any]:
    """The scale and the block, after q and they are found to fit the pages."""
    checks.array("q", q, rank=3)
    checks.array("k_pages", k_pages, rank=4, like=("q", q))
    checks.same("k_pages.shape[3] (head_dim)", k_pages.shape[3], "q", q.shape[2])
    if q.shape[1] % k_pages.shape[0]:
        accepted = f"a multiple of the {k_pages.shape[0]} heads of k_pages"
        checks.fail("q.shape[1] (heads)", q.shape[1], accepted)
    if block is not None:
        checks.positive_int("block", block)
    return {"scale": checks.finite("scale", scale, q.shape[2] ** -0.5), "block": block}


def update_pages(
    k_pages: Any, v_pages: Any, k: Any, v: Any, lengths: Any, page_table: Any
) -> tuple[Any, Any]:
    """Write one new token of each sequence behind its last one.

    Plain JAX. The pages are donated, so that XLA writes into them and moves S · Hkv · D elements
    instead of all pages: do not use them again. Sequences must not share the page that is written.

    Args:
        k_pages, v_pages: [Hkv, P, page, D], float32 or bfloat16.
        k, v: [S, Hkv, D], the same dtype.
        lengths: int32 [S], tokens before the new one; each has to leave room for it in the table.
        page_table: int32 [S, pages].

    Returns:
        k_pages and v_pages, with the new tokens; attend to them with lengths + 1.

    Raises:
        ValueError: for another rank, dtype or size; and, where their values are known, for the
            first length and the first page that are out of range.
    """
    from kernels.paged_attention import xla

    checks.array("k_pages", k_pages, rank=4)
    _check_pages(k_pages, v_pages, lengths, page_table, new=1)
    for name, x in (("k", k), ("v", v)):
        checks.array(name, x, rank=3, like=("k_pages", k_pages))
        wanted = (lengths.shape[0], k_pages.shape[0], k_pages.shape[3])
        checks.same(f"{name}.shape", tuple(x.shape), "lengths and k_pages", wanted)
    return xla.update_pages(k_pages, v_pages, k, v, lengths, page_table)


def _check_pages(
    k_pages: Any, v_pages: Any, lengths: Any, page_table: Any, new: int = 0, least: Any = 0
) -> None:
    """Refuse what does not fit k_pages, and values out of range where they are known: lengths under
    `least` (a number, or one for each sequence), and what has no room for `new` tokens more."""
    checks.array("v_pages", v_pages, rank=4, like=("k_pages", k_pages))
    checks.same("v_pages.shape", tuple(v_pages.shape), "k_pages", tuple(k_pages.shape))
    checks.array("lengths", lengths, rank=1, dtypes=("int32",))
    checks.array("page_table", page_table, rank=2, dtypes=("int32",))
    checks.same("page_table.shape[0]", page_table.shape[0], "lengths", lengths.shape[0])
    lengths, table = checks.known(lengths), checks.known(page_table)
    if lengths is None:
        return
    (_, number, page, _), width = k_pages.shape, page_table.shape[1]
    wrong = np.flatnonzero((lengths < least) | (lengths > width * page - new))
    if wrong.size:
        least = np.broadcast_to(least, lengths.shape)[wrong[0]]
        accepted = f"{least} to {width * page - new}, what {width} pages of {page} tokens hold"
        accepted += ", less the new one" * new
        checks.fail(f"lengths[{wrong[0]}]", lengths[wrong[0]], accepted)
    if table is None:
        return
    read = np.arange(width) * page < lengths[:, None] + new
    rows, columns = np.nonzero(read & ((table < 0) | (table >= number)))
    if rows.size:
        place = f"page_table[{rows[0]}, {columns[0]}]"
        accepted = f"0 to {number - 1}, the pages that k_pages has"
        checks.fail(place, table[rows[0], columns[0]], accepted)


def _as_shipped(workload: Workload) -> bool:
    """What JAX's kernel takes: it rounds k and v to bfloat16, and hides no NaN in v."""
    sizes = workload.sizes
    whole = sizes["d"] % 128 == sizes["page"] % 16 == sizes["h"] // sizes["hkv"] % 8 == 0
    return workload.dtype == "bfloat16" and whole and workload.values != "nonfinite"


PAGED_ATTENTION = Operator(
    paged_attention,
    summary="attention of one new token per sequence over a cache in pages",
    chapter="paged_attention",
    implementations=(
        Implementation("xla", XLA, "xla:paged_attention", lacks=OWN_BLOCKS),
        Implementation("xla_in_turn", XLA, "xla:in_turn", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:paged_attention"),
        Implementation(
            "jax_paged",
            PALLAS_TPU,
            "shipped:jax_paged",
            accepts=_as_shipped,
            rungs=("compile",),  # the interpreters take minutes for it
            lacks=OWN_BLOCKS,
            shipped_with="JAX",
        ),
    ),
)

RAGGED_PAGED_ATTENTION = Operator(
    ragged_paged_attention,
    summary="attention of the new tokens of all sequences, many or one each, over a cache in pages",
    chapter="paged_attention",
    implementations=(
        Implementation("xla", XLA, "xla:ragged_paged_attention", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:ragged_paged_attention"),
    ),
)
