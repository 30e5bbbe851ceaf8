"""NVIDIA's GPUs, as `kernels explain` sees a machine: see kernels.yours.machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels.machines.checks import fail
from kernels.yours.machines import Asked, returning

if TYPE_CHECKING:
    from kernels.yours.explanation import Explanation


def ready() -> str:
    """The version of its compiler, jaxlib's, whose plugin it is; kernels.optional.MissingPackage
    where the plugin or one of NVIDIA's tools is missing."""
    from importlib.metadata import version

    from kernels.machines.gpu import toolchain

    for name in (toolchain.PLUGIN, toolchain.PTXAS, toolchain.LIBDEVICE, toolchain.NVDISASM):
        toolchain.part(name, "explaining a program for a GPU")
    return f"jax-cuda12-pjrt of jaxlib {version('jaxlib')}"


def explain(asked: Asked) -> Explanation:
    """Explain a function on one chip; in a child. No block of a GPU is counted: it takes no trips,
    and values do not matter."""
    if trips := " ".join(f"{k}={n}".lstrip("=") for k, n in asked.trips.items()):
        fail("trips", trips, f"none on {asked.chip}")
    if asked.cut:
        fail("chip", asked.chip, "a TPU, where there is a mesh")
    from kernels.machines.compat import jax_pallas
    from kernels.machines.gpu import explain as known
    from kernels.machines.gpu.compiler import compile_program
    from kernels.machines.gpu.errors import GpuCompileError
    from kernels.machines.gpu.estimate import GpuEstimate, estimate_compiled
    from kernels.machines.gpu.export import export
    from kernels.yours.explanation import explained, refused

    estimate: GpuEstimate | str
    try:
        with jax_pallas.compiled():
            program = returning(
                export(asked.function, *asked.arrays, chip=asked.chip, name=asked.name)
            )
        compiled = compile_program(program, passes=True, timeout=asked.timeout)
        try:
            estimate = estimate_compiled(program, compiled, flops=asked.flops)
        except ValueError as error:  # what nothing here knows the time of
            estimate = str(error)
        facts = known.facts(compiled, estimate, asked.title)
    except GpuCompileError as error:
        return refused(error, asked.title, asked.chip)
    return explained(facts, _pictures(compiled) if asked.pictures else ())


def _pictures(compiled: Any) -> list[dict[str, str]]:
    """The occupancy of each kernel, and the schedule of its loop as a heat map."""
    from kernels.lessons import pictures

    shown = []
    for kernel in [kernel for kernel in compiled.kernels if kernel.threads][:2]:
        drawn = [(f"How full {kernel.name} keeps an SM", pictures.occupancy(kernel))]
        if kernel.loops:
            drawn.append((f"The schedule of {kernel.name}'s loop", pictures.heat(kernel)))
        shown += [{"title": title, "html": picture.element} for title, picture in drawn]
    return shown
