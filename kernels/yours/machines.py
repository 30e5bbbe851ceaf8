"""Which machine a chip belongs to: what explains a function there.

Each machine has

- `ready()`, which raises where its compiler is not installed, and gives the compiler's version,
- `explain(asked)`, which gives an Explanation of what is Asked. It raises ValueError for trips of
  what does not depend on data, and for a function that returns no array.

Importing this imports nothing heavy: a child does the work.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernels.machines.checks import fail, one_of
from kernels.machines.compat import jaxprs

if TYPE_CHECKING:
    from kernels.yours.explanation import Explanation

MOST_OF_A_PICTURE = 400_000  # characters of HTML


@dataclass(frozen=True)
class Asked:
    """What is to be explained, and how."""

    function: Callable[..., Any]  # of arrays alone
    arrays: Sequence[Any]  # these, NumPy's or JAX's, or their shapes
    chip: str  # that it is compiled for
    # The function's, and the explanation's.
    name: str
    title: str
    timeout: float  # seconds for a compilation
    pictures: bool  # whether to draw what a page shows
    # The name of a loop, or "" for every one → how often it runs, where data decides.
    trips: Mapping[str, int]
    cut: Mapping[str, Any] = field(default_factory=dict)  # over a mesh, as kernels.tpu.compile does
    flops: float | None = None  # of its kernels' products, where they cannot be counted


def returning(program: Any) -> Any:
    """A program that was exported, as it is; ValueError for one that returns nothing: all that it
    computes is left out."""
    if not jaxprs.outputs(program.jaxpr):
        fail("function", f"{program.name}, which returns no array", "one that returns its results")
    return program


class Tpu:
    """TPUs, as `kernels explain` sees a machine."""

    @staticmethod
    def ready() -> str:
        """The version of its compiler; MissingPackage where it is not installed."""
        from kernels.machines.tpu.pool import libtpu_version

        return libtpu_version()

    @staticmethod
    def explain(asked: Asked) -> Explanation:
        """Explain a function on one chip; in a child."""
        from kernels.machines.compat import jax_pallas
        from kernels.machines.tpu import explain as known
        from kernels.machines.tpu.diagnose import TpuCompileError
        from kernels.machines.tpu.estimate import estimate_program
        from kernels.machines.tpu.export import export
        from kernels.yours.explanation import explained, refused

        program = None
        try:
            with jax_pallas.compiled():
                options = {"chip": asked.chip, "name": asked.name, **asked.cut}
                program = export(asked.function, *asked.arrays, **options)
            program = returning(program).with_trips(asked.trips)
            estimate = estimate_program(program, timeout=asked.timeout)
        except TpuCompileError as error:
            return refused(error, asked.title, asked.chip, program)
        drawn = _of_tpu(program, estimate) if asked.pictures else ()
        return explained(known.facts(program, estimate, asked.title), drawn)


class Gpu:
    """NVIDIA's GPUs, as `kernels explain` sees a machine."""

    @staticmethod
    def ready() -> str:
        """The version of its compiler, jaxlib's, whose plugin it is; MissingPackage where that or
        one of NVIDIA's tools is missing."""
        from importlib.metadata import version

        from kernels.machines.gpu import toolchain

        for name in (toolchain.PLUGIN, toolchain.PTXAS, toolchain.LIBDEVICE, toolchain.NVDISASM):
            toolchain.part(name, "explaining a program for a GPU")
        return f"jax-cuda12-pjrt of jaxlib {version('jaxlib')}"

    @staticmethod
    def explain(asked: Asked) -> Explanation:
        """Explain a function on one chip; in a child. No block of a GPU is counted: it takes no
        trips, and values do not matter."""
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
        return explained(facts, _of_gpu(compiled) if asked.pictures else ())


def chips() -> dict[str, Any]:
    """The name of each chip → its machine."""
    load = importlib.import_module
    return {
        name: machine
        for own, machine in (("tpu", Tpu), ("gpu", Gpu))
        for name in load(f"kernels.machines.{own}.chips").CHIPS
    }


def machine(chip: str, option: str = "--chip") -> Any:
    """The machine that has a chip; ValueError for a chip of none, with all names."""
    one_of(option, chip, chips())
    return chips()[chip]


def _of_tpu(program: Any, estimate: Any) -> list[dict[str, str]]:
    """What the page of a program shows: players where they can be drawn."""
    from kernels.lessons import pictures

    shown: list[dict[str, str]] = []

    def draw(title: str, make: Callable[..., Any], *arguments: Any) -> None:
        try:
            drawn = make(*arguments).element
        except Exception:  # a grid of a form that has no picture: the tables say it
            return
        if len(drawn) < MOST_OF_A_PICTURE:
            shown.append({"title": title, "html": drawn})

    for call in program.calls[:2]:
        draw(f"The blocks that each program of {call.name} touches", pictures.play, call)
        draw(f"What {call.name} moves between HBM and VMEM", pictures.traffic, call)
        draw(f"What {call.name} keeps in VMEM", pictures.memory, call)
    for kernel in (schedule.name for schedule in estimate.schedule.kernels[:1]):
        draw(f"The schedule of {kernel}, and its roofline", pictures.schedule, estimate, kernel)
    return shown


def _of_gpu(compiled: Any) -> list[dict[str, str]]:
    """The occupancy of each kernel, and the schedule of its loop as a heat map."""
    from kernels.lessons import pictures

    shown = []
    for kernel in [kernel for kernel in compiled.kernels if kernel.threads][:2]:
        drawn = [(f"How full {kernel.name} keeps an SM", pictures.occupancy(kernel))]
        if kernel.loops:
            drawn.append((f"The schedule of {kernel.name}'s loop", pictures.heat(kernel)))
        shown += [{"title": title, "html": picture.element} for title, picture in drawn]
    return shown
