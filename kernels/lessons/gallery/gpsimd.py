"""Wrong GIOU in C++ for the eight cores of GpSimd: one right kernel, and five faults in its lines.

Each bug names lines of the right kernel, gpsimd.cpp, and gpsimd.toml has others in their place; its
source has both.
"""

import tomllib
from pathlib import Path

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import from_table
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import cases

RIGHT = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")
WRONG = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# Its parts, as blank lines set them apart: those that have faults.
_, SHARE, ROOM, SCORES, CHECK, _, AT, _ = RIGHT.split("\n\n")


def _bug(name, right, *workloads):
    """The bug of that name: the right kernel with other lines in the place of some."""
    text = RIGHT.replace(right, f"#ifdef REPAIRED\n{right}\n#else\n{WRONG[name]}#endif")

    def kernel(preds, targets, *, interpret, repaired=False):
        """[B, N, 4], [B, N, 4] → [B, N]."""
        define = "#define REPAIRED\n" * repaired
        sources = define + PRELUDE + text, SHAPE
        return gpsimd.call(sources, "giou", preds, targets, interpret=interpret)

    return from_table(name, kernel, *workloads, shown=text, backend=GPSIMD)


WHOLE = cases("b n", whole=(16, 32))

gpsimd_wrong_offset = _bug("gpsimd_wrong_offset", AT, *WHOLE)
gpsimd_changed_share = _bug(
    "gpsimd_changed_share",
    SHARE,
    *cases("b n", even=(16, 32, "8 cores divide it: both shares are 2"), one_more=(17, 32)),
)
gpsimd_lost_tail = _bug(
    "gpsimd_lost_tail", SHARE, *cases("b n", divides=(16, 32), one_more=(17, 32, "the 17th sample"))
)
gpsimd_unchecked_malloc = _bug(
    "gpsimd_unchecked_malloc",
    f"{ROOM}\n\n{SCORES}\n\n{CHECK}",
    *cases("b n", fits=(8, 341, "16,368 of 16,384 bytes"), one_more=(8, 342, "16,416 bytes")),
)
gpsimd_leak = _bug("gpsimd_leak", SCORES, *WHOLE)
