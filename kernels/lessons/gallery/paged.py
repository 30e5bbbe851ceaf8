"""Wrong attention over pages: one decode kernel that copies by hand, with four faults."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import family
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload

FULL = {"s": 2, "h": 8, "hkv": 1, "d": 128, "page": 8, "pages": 2, "least": 16}  # two whole pages
TWO = Workload("two_pages", FULL)


def decode(q, k_pages, v_pages, lengths, page_table, *, interpret, fault, scale=None):
    """[S, H, D], [1, P, page, D] twice, [S], [S, pages] → [S, H, D]; the next page of a sequence is
    fetched while this one is worked on. Right when repaired; else it has the fault of that name."""
    (sequences, heads, d), page = q.shape, k_pages.shape[2]
    scale = d**-0.5 if scale is None else scale

    def body(lengths_ref, table_ref, q_ref, k_hbm_ref, v_hbm_ref, o_ref, k_ref, v_ref, arrived):
        # k_ref, v_ref [2, page, D]; arrived: a semaphore for each of the two slots
        sequence = pl.program_id(0)
        length = lengths_ref[sequence]
        pages = pl.cdiv(length, page)

        def copies(j, semaphore):
            number, slot = table_ref[sequence, j], lax.rem(j, 2)
            return [
                pltpu.make_async_copy(hbm_ref.at[0, number], ref.at[slot], arrived.at[semaphore])
                for hbm_ref, ref in ((k_hbm_ref, k_ref), (v_hbm_ref, v_ref))
            ]

        def start(j):
            for copy in copies(j, lax.rem(j, 2)):
                copy.start()

        @pl.when(pages > 0)
        def _():
            start(0)

        def step(j, state):
            m_before, l, acc = state
            more = (j + 1 < pages) | (fault == "abandoned_page")
            pl.when(more)(lambda: start(jnp.minimum(j + 1, pages - 1)))
            for copy in copies(j, lax.rem(j + (fault == "wrong_semaphore"), 2)):
                copy.wait()
            k, v = (ref[lax.rem(j, 2)] for ref in (k_ref, v_ref))
            s = scale * dot(q_ref[0], k.T)  # [heads, page]
            if fault != "unmasked_page":
                seen = j * page + lax.broadcasted_iota(jnp.int32, s.shape, 1) < length
                s = jnp.where(seen, s, -1e30)
            m = jnp.maximum(m_before, s.max(1, keepdims=True))
            p, shrink = jnp.exp(s - m), jnp.exp(m_before - m)
            l = shrink * l + p.sum(1, keepdims=True)
            return m, l, (1.0 if fault == "unshrunk_values" else shrink) * acc + dot(p, v)

        rows = (heads, 1)
        nothing = jnp.full(rows, -1e30), jnp.zeros(rows), jnp.zeros((heads, d))
        _, l, acc = lax.fori_loop(0, pages, step, nothing)
        o_ref[0] = jnp.where(pages > 0, acc / l, 0).astype(o_ref.dtype)

    queries = pl.BlockSpec((1, heads, d), lambda sequence, *_: (sequence, 0, 0))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences,),
            in_specs=[queries, *[pl.BlockSpec(memory_space=pl.ANY)] * 2],
            out_specs=queries,
            scratch_shapes=[
                *[pltpu.VMEM((2, page, d), q.dtype)] * 2,
                pltpu.SemaphoreType.DMA((2,)),
            ],
        ),
        interpret=interpret,
    )(lengths, page_table, q, k_pages, v_pages)


_faulty = family(decode)

wrong_semaphore = _faulty("wrong_semaphore", TWO)
abandoned_page = _faulty("abandoned_page", TWO)

unmasked_page = _faulty(
    "unmasked_page", Workload("full", FULL), Workload("ragged", FULL | {"s": 5, "least": 1})
)

unshrunk_values = _faulty(
    "unshrunk_values", Workload("one_page", FULL | {"pages": 1, "least": 8}), TWO
)
