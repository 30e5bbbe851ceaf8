"""Exercises of the chapter "A GPU without a GPU"."""

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn, numbers, product
from kernels.machines.gpu.kernel import occupancy
from kernels.machines.gpu.launched import run_on_threads
from kernels.proof.backends.pallas_gpu import PALLAS_GPU
from kernels.proof.backends.python import PYTHON
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

REGISTERS = 128  # of a thread of the fast product: two blocks of 256 threads then fit into an SM
BLOCKS = 2
SIDE = BANKS = 32  # of a tile in shared memory; banks that it has, of four bytes
LAST = SIDE * SIDE - 1  # of its numbers, counted from 0
THREADS = 64  # of a block that sums


def _banks(answer, side, *, interpret):
    """The fewest banks that a row and a column of the reader's tile lie in."""
    places = [[int(answer(row, column)) for column in range(side)] for row in range(side)]
    taken = {place for row in places for place in row}
    if taken != set(range(side * side)):
        inside = len(taken & set(range(side * side)))
        raise Refused(f"{inside:,} of the {side * side:,} places are taken; all should be")
    fewest = []
    for name, lines in (("row", places), ("column", list(zip(*places, strict=True)))):
        banks = [len({place % BANKS for place in line}) for line in lines]
        if min(banks) < side:
            worst = banks.index(min(banks))
            raise Refused(f"the {side} numbers of {name} {worst} lie in {min(banks)} of the banks")
        fewest.append(min(banks))
    return np.array(fewest)


def _on_threads(answer, x, *, interpret):
    """What the reader's CUDA C++ writes, on threads of the CPU that ThreadSanitizer watches."""
    numbers = ", ".join(f"{number:.9g}f" for number in np.asarray(x).ravel())
    main = f"""
std::vector<float> in{{{numbers}}}, out({len(x)});
launch(dim3({len(x)}), dim3({THREADS}), [&] {{ sums(out.data(), in.data()); }});
for (float sum : out) printf("%.9g ", sum);
"""
    run = run_on_threads(answer(), main)
    if run.problem:
        raise Refused(f"{run.problem} in line {run.line}")
    return np.array(run.printed.split(), np.float32)


EXERCISES = (
    Exercise(
        "gpu_blocks",
        lambda t, r, s: occupancy("h100", threads=t, registers=r, shared_bytes=s).blocks,
        numbers,
        cases(
            "t r s",
            dtype="int64",
            registers=(256, 112, 0),
            shared=(128, 32, 98304),
            threads=(1024, 32, 0),
            small=(32, 16, 0, "32 blocks at most"),
            rounded=(96, 65, 5000, "65 is given as 72"),
        ),
        backend=PYTHON,
    ),
    Exercise(
        "bank_places",
        lambda side: np.full(2, side),
        numbers,
        cases("side", dtype="int64", tile=SIDE),
        call=_banks,
        backend=PYTHON,
    ),
    Exercise(
        "gpu_halves",
        lambda x: x.sum(1),
        drawn("blocks numbers"),
        cases("blocks numbers", two=(2, THREADS), three=(3, THREADS)),
        call=_on_threads,
        backend=PYTHON,
        magnitude=lambda x: np.abs(x).sum(1),
    ),
    product(
        "gpu_product",
        problems=cases("m k n", dtype="bfloat16", cube=(256, 256, 256), flat=(256, 512, 256)),
        rungs=("interpret",),
        backend=PALLAS_GPU,
        judge=judges.on_gpu(registers=REGISTERS, blocks=BLOCKS, uses="HGMMA"),
    ),
)
