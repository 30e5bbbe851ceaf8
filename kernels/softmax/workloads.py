"""The problems that softmax is proven on."""

from kernels.proof.workload import Workload, Workloads, size, values


def _make(workload, rng):
    rows, n = workload.sizes["rows"], workload.sizes["n"]
    return (values(workload.values, (rows, n), workload.dtype, rng),)


def _draw(rng):
    kind = str(rng.choice(["normal", "wide", "cancelling"]))
    dtype = str(rng.choice(["float32", "bfloat16"]))
    return Workload("random", {"rows": size(rng), "n": size(rng)}, dtype, kind)


def _work(workload, gradient):
    elements = workload.sizes["rows"] * workload.sizes["n"]
    return 0, 2 * elements * workload.itemsize * (2 if gradient else 1)


softmax = Workloads(
    make=_make,
    draw=_draw,
    work=_work,
    published={"m": "rows"},
    named=(
        Workload("one", {"rows": 1, "n": 1}),
        Workload("tile", {"rows": 128, "n": 512}),
        Workload("ragged", {"rows": 131, "n": 77}, why="three rows beyond a tile"),
        Workload("long", {"rows": 3, "n": 20001}, why="rows that do not stay in SBUF"),
        Workload("bfloat16", {"rows": 130, "n": 300}, "bfloat16"),
        Workload("wide", {"rows": 65, "n": 129}, values="wide", why="exp overflows"),
        Workload("nonfinite", {"rows": 31, "n": 33}, values="nonfinite"),
    ),
    figures=(
        Workload("4096_rows", {"rows": 4096, "n": 4096}),
        Workload("4096_rows_bfloat16", {"rows": 4096, "n": 4096}, "bfloat16"),
    ),
)
