"""The problems that the collectives are proven on: rings of every kind of length."""

from dataclasses import replace

from kernels.collectives.attention_workloads import ring_attention as ring_attention
from kernels.proof.workload import Workload, Workloads, cases, values

SIZES = "devices rows columns"
PRODUCT = "devices rows k columns"


def _arguments(workload, rng, rows):
    shape = (workload.sizes["devices"], rows, workload.sizes["columns"])
    return (values(workload.values, shape, workload.dtype, rng),)


def make_all_gather(workload, rng):
    """The rows of each device."""
    return _arguments(workload, rng, workload.sizes["rows"])


def make_reduce_scatter(workload, rng):
    """A share of rows for each device, on each device."""
    return _arguments(workload, rng, workload.sizes["rows"] * workload.sizes["devices"])


def draw(rng):
    """Few devices, any number of rows."""
    sizes = {"devices": 2, "rows": int(rng.integers(1, 50)), "columns": int(rng.choice((1, 130)))}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])))


def work(workload, gradient):
    """What all devices read and write, each in its memory; what the links carry is not in it."""
    devices, rows, columns = (workload.sizes[name] for name in SIZES.split())
    parts = devices * (devices + 1)
    return 0, parts * rows * columns * workload.itemsize * (1 + gradient)


NAMED = cases(
    SIZES,
    one=(1, 1, 1, "a ring of one sends nothing"),
    two=(2, 16, 128, "both neighbours are the same device"),
    three=(3, 5, 7, "an odd ring; rows for one direction alone"),
    four=(4, 17, 128, "one row more in one direction than in the other"),
    seven=(7, 3, 129, "slots are used three times and more"),
    eight=(8, 32, 128, {"dtype": "bfloat16"}, "many terms, added up in float32"),
)

all_gather = Workloads(
    make=make_all_gather,
    draw=draw,
    work=work,
    named=(*NAMED, *cases(SIZES, values="nonfinite", odd=(2, 8, 128, "every bit arrives"))),
)
reduce_scatter = Workloads(
    make=make_reduce_scatter,
    draw=draw,
    work=work,
    named=(*NAMED, *cases(SIZES, blocks=(2, 300, 2048, "several blocks in each direction"))),
)


def _factors(workload, rng, rows):
    devices, k, columns = (workload.sizes[name] for name in ("devices", "k", "columns"))
    shapes = (devices, rows, k), (devices, k, columns)
    return tuple(values(workload.values, shape, workload.dtype, rng) for shape in shapes)


def make_all_gather_matmul(workload, rng):
    """The rows and the columns of each device."""
    return _factors(workload, rng, workload.sizes["rows"])


def make_matmul_reduce_scatter(workload, rng):
    """A share of rows for each device, and of k, on each device."""
    return _factors(workload, rng, workload.sizes["rows"] * workload.sizes["devices"])


def draw_product(rng):
    """Few devices, any number of rows."""
    k, columns = map(int, rng.choice((1, 7, 130), 2))
    rows, devices = int(rng.integers(1, 80)), int(rng.choice((2, 3)))
    sizes = {"devices": devices, "rows": rows, "k": k, "columns": columns}
    return Workload("random", sizes, str(rng.choice(["float32", "bfloat16"])))


def work_product(workload, gradient):
    """The products of all devices, and what they read and write, each in its memory."""
    devices, rows, k, columns = (workload.sizes[name] for name in PRODUCT.split())
    arrays = devices * rows * k + k * columns + devices * rows * columns
    passes = 1 + 2 * gradient
    return (
        2 * devices * devices * rows * k * columns * passes,
        devices * arrays * workload.itemsize * passes,
    )


PRODUCTS = Workloads(
    make=make_all_gather_matmul,
    draw=draw_product,
    work=work_product,
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
all_gather_matmul = PRODUCTS
matmul_reduce_scatter = replace(PRODUCTS, make=make_matmul_reduce_scatter)
