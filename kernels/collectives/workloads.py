"""The problems that the collectives are proven on: rings of every kind of length."""

import functools
from dataclasses import replace

import numpy as np

from kernels.proof.workload import Workload, Workloads, cases, values

SIZES = "devices rows columns"
PRODUCT = "devices rows k columns"
ATTENTION = "devices b h n d"


def _rows(workload, shares):
    """The rows of a device; with `shares` so many for each device."""
    return workload.sizes["rows"] * (workload.sizes["devices"] if shares else 1)


def _make(workload, rng, shares=False):
    shape = workload.sizes["devices"], _rows(workload, shares), workload.sizes["columns"]
    return (values(workload.values, shape, workload.dtype, rng),)


def _random(rng, sizes, **more):
    sizes = {name: int(size) for name, size in sizes.items()}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])), **more)


def draw(rng):
    """Few devices, any number of rows."""
    return _random(
        rng, {"devices": 2, "rows": rng.integers(1, 50), "columns": rng.choice((1, 130))}
    )


def work(workload, gradient):
    """What all devices read and write, each in its memory; what the links carry is not in it."""
    devices, rows, columns = (workload.sizes[name] for name in SIZES.split())
    parts = devices * (devices + 1)
    return 0, parts * rows * columns * workload.itemsize * (1 + gradient)


TORUS = {"tuning": {"torus": 2}}  # devices along the first axis

NAMED = cases(
    SIZES,
    one=(1, 1, 1, "a ring of one sends nothing"),
    two=(2, 16, 128, "both neighbours are the same device"),
    three=(3, 5, 7, "an odd ring; rows for one direction alone"),
    four=(4, 17, 128, "one row more in one direction than in the other"),
    seven=(7, 3, 129, "slots are used three times and more"),
    eight=(8, 32, 128, {"dtype": "bfloat16"}, "many terms, added up in float32"),
    torus=(4, 17, 128, "a ring along each of two axes", TORUS),
    torus_of_8=(8, 32, 128, "rings of four, and of two", TORUS, {"dtype": "bfloat16"}),
)
# 8 MiB of each device, which a ring of all sends on, or rings along two axes, the shorter first
FIGURES = cases(
    SIZES,
    dtype="bfloat16",
    ring_of_8=(8, 4096, 1024),
    rings_of_2_and_4=(8, 4096, 1024, {"tuning": {"torus": 4}}),
)

all_gather = Workloads(
    make=_make,
    draw=draw,
    work=work,
    figures=FIGURES,
    named=(*NAMED, *cases(SIZES, values="nonfinite", odd=(2, 8, 128, "every bit arrives"))),
)
reduce_scatter = Workloads(
    make=functools.partial(_make, shares=True),
    draw=draw,
    work=work,
    named=(*NAMED, *cases(SIZES, blocks=(2, 300, 2048, "several blocks in each direction"))),
)


def make_all_to_all(workload, rng):
    """A block for each device, on each device, and how many of its rows go there."""
    devices, rows, columns = (workload.sizes[name] for name in SIZES.split())
    x = values(workload.values, (devices, devices, rows, columns), workload.dtype, rng)
    least = rows if workload.name == "equal" else 0
    sizes = rng.integers(least, rows + 1, (devices, devices), dtype=np.int32)
    sizes[0, -1] = least
    return x, sizes


def work_all_to_all(workload, gradient):
    """Each device reads the sizes and its blocks, and writes those that come, all full."""
    devices, rows, columns = (workload.sizes[name] for name in SIZES.split())
    block = 4 + 2 * rows * columns * workload.itemsize
    return 0, devices**2 * block * (1 + gradient)


all_to_all = Workloads(
    make=make_all_to_all,
    draw=draw,
    work=work_all_to_all,
    named=cases(
        SIZES,
        one=(1, 3, 5, "a device alone"),
        equal=(2, 16, 128, "all rows of all blocks"),
        three=(3, 40, 7, "rows that no tile divides; one block is empty"),
        four=(4, 300, 128, {"dtype": "bfloat16"}, "several rows in a tile"),
        seven=(7, 3, 129, "six messages under way at a time"),
        eight=(8, 16, 130, {"values": "nonfinite"}, "every bit arrives, and none beyond the sizes"),
    ),
)


def _make_factors(workload, rng, shares=False):
    devices, k, columns = (workload.sizes[name] for name in ("devices", "k", "columns"))
    shapes = (devices, _rows(workload, shares), k), (devices, k, columns)
    return tuple(values(workload.values, shape, workload.dtype, rng) for shape in shapes)


def draw_product(rng):
    """Few devices, any number of rows."""
    k, columns = rng.choice((1, 7, 130), 2)
    rows, devices = rng.integers(1, 80), rng.choice((2, 3))
    return _random(rng, {"devices": devices, "rows": rows, "k": k, "columns": columns})


def _work_products(workload, gradient, shares=False):
    """The products of all devices; each reads its rows and writes those of all, or with `shares`
    reads rows for all and writes its own."""
    devices, rows, k, columns = (workload.sizes[name] for name in PRODUCT.split())
    passes = devices * (1 + 2 * gradient)
    moved = devices * k + columns if shares else k + devices * columns
    operations = 2 * devices * rows * k * columns
    return operations * passes, (rows * moved + k * columns) * workload.itemsize * passes


all_gather_matmul = Workloads(
    make=_make_factors,
    draw=draw_product,
    work=_work_products,
    named=cases(
        PRODUCT,
        one=(1, 8, 16, 128, "a ring of one is a product"),
        two=(2, 16, 128, 128, "both neighbours are the same device"),
        three=(3, 5, 7, 9, "an odd ring; fewer rows than a tile"),
        four=(4, 40, 64, 130, "both directions, a last strip that is not whole"),
        seven=(7, 17, 32, 128, "places are used three times and more"),
        eight=(8, 33, 128, 64, {"dtype": "bfloat16"}, "both directions, added up in float32"),
    ),
)
matmul_reduce_scatter = replace(
    all_gather_matmul,
    make=functools.partial(_make_factors, shares=True),
    work=functools.partial(_work_products, shares=True),
)


def make_ring_attention(workload, rng):
    """q, k and v of each device."""
    kinds = ("normal", "normal", workload.values)
    shape = tuple(workload.sizes[name] for name in ATTENTION.split())
    return tuple(values(kind, shape, workload.dtype, rng) for kind in kinds)


def draw_ring_attention(rng):
    """Two devices, any even number of tokens, one head or more."""
    heads, half, d = rng.integers(1, 4), rng.integers(1, 20), rng.choice((1, 16, 65, 128))
    sizes = {"devices": 2, "b": 1, "h": heads, "n": 2 * half, "d": d}
    return _random(rng, sizes, options={"causal": bool(rng.integers(2))})


def work_ring_attention(workload, gradient):
    """Of all devices: two products forward and four backward; q, k, v and the result, each once."""
    devices, b, h, n, d = (workload.sizes[name] for name in ATTENTION.split())
    tokens = devices * n
    pairs = tokens * (tokens + 1) // 2 if workload.options.get("causal") else tokens**2
    products, arrays = (6, 8) if gradient else (2, 4)
    return 2 * products * b * h * pairs * d, arrays * b * h * tokens * d * workload.itemsize


CAUSAL, BF16 = {"options": {"causal": True}}, {"dtype": "bfloat16"}
BLOCKS = {"tuning": {"block": 128}}
STRANGE = {"values": "cancelling", "options": {"scale": -0.5}}

ring_attention = Workloads(
    make=make_ring_attention,
    draw=draw_ring_attention,
    work=work_ring_attention,
    figures=cases(ATTENTION, dtype="bfloat16", four_parts=(4, 1, 8, 2048, 128)),
    named=cases(
        ATTENTION,
        one=(1, 2, 1, 8, 16, "a ring of one sends nothing", CAUSAL),
        two=(2, 1, 2, 200, 16, "padded blocks; both neighbours are one device", BF16, BLOCKS),
        two_causal=(2, 1, 1, 260, 16, "padded pieces of several blocks", CAUSAL, BLOCKS),
        three=(3, 1, 1, 10, 7, "an odd ring, one head: one way round", CAUSAL),
        four=(4, 1, 3, 2, 64, "pieces of one token; one head more one way", CAUSAL, BF16),
        seven=(7, 1, 1, 3, 16, "slots are used three times and more; v near ±1000", STRANGE),
        eight=(8, 1, 2, 2, 1, "many parts of one softmax; heads of one number"),
    ),
)
