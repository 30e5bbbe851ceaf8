"""The child process that holds XLA's compiler for GPUs: it compiles one program after another.

It is started with the environment that kernels.gpu.toolchain makes, and answers questions by
kernels.machines.child. Mosaic GPU ends its process where something is amiss, hence a child.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.machines import child
from kernels.machines.compat import xla_gpu

_devices: dict[tuple[str, int], Any] = {}


def prepare() -> Callable[[dict], dict]:
    """Load JAX and the plugin, which takes about a second."""
    from jax import export  # noqa: F401

    plugin = xla_gpu.Plugin(sys.argv[1])
    return lambda question: answer(plugin, question)


def answer(plugin: xla_gpu.Plugin, question: dict) -> dict:
    """Compile one program.

    Args:
        plugin: XLA's.
        question: program: what jax.export made. spec: of the GPU. mesh: axis name → size, or {}.
            options: XLA's. passes: whether to say what each pass did.

    Returns:
        hlo, passes, thunks, graphs, buffers, lives, triton, llvm, ptx, mosaic: texts, as
        compat.xla_gpu reads them. memory: sizes by JAX's names. seconds: that it took. Of a
        program that is refused: error, and seconds.
    """
    start = time.perf_counter()
    dumps, mosaic = Path(os.environ["TMPDIR"]) / "xla", Path(os.environ["MOSAIC_GPU_DUMP_TO"])
    for folder in (dumps, mosaic):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        options = question["options"] | xla_gpu.dumping(dumps, question["passes"])
        compiled = _compile(plugin, question, options)
    except Exception as error:
        return {"error": f"{error}", "seconds": time.perf_counter() - start}
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    names = ("argument", "output", "alias", "temp")
    found = {
        "seconds": seconds,
        "memory": {name: getattr(memory, f"{name}_size_in_bytes", 0) for name in names},
        "hlo": xla_gpu.plain(compiled.as_text()),
        "passes": xla_gpu.passes(dumps) if question["passes"] else [],
        "thunks": xla_gpu.text(dumps, "thunk_sequence.txt"),
        "graphs": xla_gpu.text(dumps, "thunk_sequence_after_thunk_passes.txt"),
        "buffers": xla_gpu.text(dumps, "*buffer-assignment.txt"),
        "lives": xla_gpu.text(dumps, "*live-range.txt"),
        "triton": xla_gpu.triton(dumps),
        "llvm": xla_gpu.llvm(dumps),
        "ptx": xla_gpu.assembly(dumps),
        "mosaic": xla_gpu.mosaic(mosaic),
    }
    for folder in (dumps, mosaic):
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _compile(plugin: xla_gpu.Plugin, question: dict, options: dict) -> Any:
    import jax
    from jax import export

    mesh = question["mesh"]
    count = 1
    for size in mesh.values():
        count *= size
    kind = (question["spec"], count)
    if kind not in _devices:
        _devices[kind] = plugin.devices(*kind)
    devices = _devices[kind]
    exported = export.deserialize(bytearray(question["program"]))
    sharding: Any = jax.sharding.SingleDeviceSharding(devices[0])
    shardings = [sharding] * len(exported.in_avals)
    # The results name the GPU too: a program without arguments has nothing else to.
    results = sharding
    if mesh:
        kinds = (jax.sharding.AxisType.Auto,) * len(mesh)
        made = jax.make_mesh(tuple(mesh.values()), tuple(mesh), kinds, devices=devices)
        whole = jax.sharding.NamedSharding(made, jax.sharding.PartitionSpec())
        shardings = [each or whole for each in exported.in_shardings_jax(made)]
        results = jax.tree.unflatten(exported.out_tree, exported.out_shardings_jax(made))
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
        for a, s in zip(exported.in_avals, shardings)
    ]
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    jitted = jax.jit(_named(exported), out_shardings=results)
    return jitted.lower(*args, **kwargs).compile(options)


def _named(exported: Any) -> Callable[..., Any]:
    """Its call, under the name of the function that was exported."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = exported.fun_name
    return call


if __name__ == "__main__":
    child.serve(prepare)
