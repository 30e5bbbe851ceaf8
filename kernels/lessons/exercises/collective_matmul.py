"""Exercises of the chapter "Collective matmul and ring attention"."""

import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.lessons.exercises.sharding import CHIPS, SHARE, on_chips, sending, sent
from kernels.proof.backends.pallas_tpu_mesh import IN_LESSONS_MESH
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

BF16 = {"dtype": "bfloat16"}  # a product in float32 would take several passes
DMA = pltpu.SemaphoreType.DMA
WIDTH, QUERIES = 128, 16
PRODUCT = bars.at("bfloat16", chips=CHIPS, rows=64, k=WIDTH, columns=256)
KEYS = bars.at(chips=CHIPS, queries=QUERIES, tokens=128, d=WIDTH)
WINDOW = bars.at("bfloat16", chips=CHIPS, tokens=128, d=WIDTH)
ON_FOUR = bars.at("bfloat16", chips=4, rows=256, k=256, columns=2304)
FAST_CYCLES = 29_000  # with XLA's copy of the result; one way takes some 31,600


def _weight_gradient(x, dy):
    """[chips, rows, k], [chips, chips · rows, columns] → [chips, k, columns]."""
    return x.reshape(-1, x.shape[2]).T @ dy


def _passed_on(tried):
    """Parts that a chip sends, all of them to a neighbour."""
    kinds = sent(tried.answer, tried.arguments)
    if other := {kind for kind, _ in kinds} - {"collective-permute"}:
        raise Refused(f"{', '.join(other)}: one after the other; wanted are permutes alone")
    return sum(size for _, size in kinds) / tried.arguments[0][0].nbytes


def _attention(q, keys, v, seen):
    """[queries, d], [tokens, d] each: the result of each query."""
    scores = np.where(seen, q @ keys.T / q.shape[-1] ** 0.5, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


def _split_keys(q, k, v):
    return np.stack([_attention(q[0], *[x.reshape(-1, x.shape[2]) for x in (k, v)], True)] * len(q))


def _query_and_keys(workload, rng):
    q, k, v = drawn("queries d", "chips tokens d", "chips tokens d")(workload, rng)
    return np.stack([q] * len(k)), k, v


def _window(q, k, v):
    whole = [x.reshape(-1, x.shape[2]) for x in (q, k, v)]
    place = np.arange(len(whole[0]))
    behind = place[:, None] - place
    return _attention(*whole, (behind >= 0) & (behind < q.shape[1])).reshape(q.shape)


def _gather_matmul(kernel, x, w, *, interpret):
    def part(x, w, axis, interpret):
        n, (rows, k), columns = lax.axis_size(axis), x.shape, w.shape[1]
        lanes = DMA((2, n - 1))
        product = launch(
            *(kernel, x, w),
            shape=(n, rows, columns),
            scratch_shapes=[pltpu.VMEM((2, n, rows // 2, k), x.dtype), lanes, lanes],
            compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
            interpret=interpret,
            name="answer",
        )
        return product.reshape(n * rows, columns)

    return IN_LESSONS_MESH.spread(part)(x, w, interpret=interpret)


def _product(x, w):
    return x.reshape(1, -1, x.shape[2]) @ w


EXERCISES = (
    on_chips(
        "ring_weight_gradient",
        _weight_gradient,
        drawn("chips rows k", "chips chips*rows columns"),
        cases("chips rows k columns", several=(4, 3, 2, 5), two=(2, 8, 4, 3)),
        magnitude=lambda x, dy: _weight_gradient(abs(x), abs(dy)),
        bar=bars.Bar("parts sent by a chip", _passed_on, CHIPS - 1, CHIPS - 1, ",.4g", PRODUCT),
    ),
    on_chips(
        "split_keys",
        _split_keys,
        _query_and_keys,
        cases(
            "chips queries tokens d",
            several=(4, 3, 5, 8),
            one_key=(8, 2, 1, 4),
            large=(2, 4, 8, 16, {"values": "wide"}, "an exponential overflows"),
        ),
        magnitude=lambda q, k, v: _split_keys(q, k, abs(v)) + abs(v).max(),
        bar=sending(
            "bytes sent by a chip for each query",
            *(KEYS, QUERIES, 2 * SHARE * 4 * (WIDTH + 3), 2 * SHARE * 4 * (WIDTH + 2)),
        ),
    ),
    on_chips(
        "window_attention",
        _window,
        drawn("chips tokens d", "chips tokens d", "chips tokens d"),
        cases("chips tokens d", one_token=(4, 1, 3), several=(4, 5, 8), two=(2, 16, 4)),
        magnitude=lambda q, k, v: _window(q, k, abs(v)) + abs(v).max(),
        bar=sending("times the bytes of k, sent by a chip", WINDOW, 2 * 128 * WIDTH, 2, 2),
    ),
    Exercise(
        "ring_matmul_fast",
        _product,
        drawn("chips rows k", "chips k columns"),
        cases("chips rows k columns", four=(4, 32, 128, 128, BF16), three=(3, 64, 128, 256, BF16)),
        call=_gather_matmul,
        rungs=("interpret", "simulate"),
        backend=IN_LESSONS_MESH,
        magnitude=lambda x, w: _product(abs(x), abs(w)),
        bar=bars.cycles(FAST_CYCLES, 26_988, ON_FOUR),
    ),
)
