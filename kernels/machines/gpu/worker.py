"""The child process that holds XLA's compiler for GPUs: it compiles one program after another.

It is started with the environment that kernels.gpu.toolchain makes, and answers questions by
kernels.machines.child. Mosaic GPU ends its process where something is amiss, hence a child.
"""

import functools
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.machines import child
from kernels.machines.compat import xla_gpu
from kernels.machines.exporting import compile_exported, memory_of


def prepare() -> Callable[[dict], dict]:
    """Load JAX and the plugin, which takes about a second."""
    from jax import export  # noqa: F401

    plugin = xla_gpu.Plugin(sys.argv[1])
    return lambda question: answer(plugin, question)


def answer(plugin: xla_gpu.Plugin, question: dict) -> dict:
    """What compile_program asks for: texts, as compat.xla_gpu reads them, memory and seconds; of a
    program that is refused: error and seconds."""
    start = time.perf_counter()
    dumps, mosaic = Path(os.environ["TMPDIR"]) / "xla", Path(os.environ["MOSAIC_GPU_DUMP_TO"])
    for folder in (dumps, mosaic):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        mesh = question["mesh"]
        compiled = compile_exported(
            question["program"],
            _devices(plugin, question["spec"], math.prod(mesh.values())),
            mesh,
            named=True,
            options=question["options"] | xla_gpu.dumping(dumps, question["passes"]),
        )
    except Exception as error:
        return {"error": f"{error}", "seconds": time.perf_counter() - start}
    seconds = time.perf_counter() - start
    dump = xla_gpu.XlaDump(dumps)
    texts = {
        "seconds": seconds,
        "memory": memory_of(compiled),
        "hlo": xla_gpu.plain(compiled.as_text()),
        "passes": dump.passes() if question["passes"] else [],
        "thunks": dump.text("thunk_sequence.txt"),
        "graphs": dump.text("thunk_sequence_after_thunk_passes.txt"),
        "buffers": dump.text("*buffer-assignment.txt"),
        "lives": dump.text("*live-range.txt"),
        "triton": dump.triton(),
        "llvm": dump.llvm(),
        "ptx": dump.assembly(),
        "mosaic": xla_gpu.mosaic(mosaic),
    }
    for folder in (dumps, mosaic):
        shutil.rmtree(folder, ignore_errors=True)
    return texts


@functools.cache
def _devices(plugin: xla_gpu.Plugin, spec: str, count: int) -> Any:
    return plugin.devices(spec, count)


if __name__ == "__main__":
    child.serve(prepare)
