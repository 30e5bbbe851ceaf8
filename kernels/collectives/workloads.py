"""The problems that the collectives are proven on: rings of every kind of length."""

from kernels.collectives.attention_workloads import ring_attention as ring_attention
from kernels.proof.workload import Workload, Workloads, cases, values

SIZES = "devices rows columns"


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
