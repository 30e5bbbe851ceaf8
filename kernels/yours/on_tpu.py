"""TPUs, as `kernels explain` sees a machine: see kernels.yours.machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.yours.machines import Asked, returning

if TYPE_CHECKING:
    from kernels.yours.explanation import Explanation

MOST_OF_A_PICTURE = 400_000  # characters of HTML


def ready() -> str:
    """The version of its compiler; kernels.optional.MissingPackage where it is not installed."""
    from kernels.machines.tpu.pool import libtpu_version

    return libtpu_version()


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
    drawn = _pictures(program, estimate) if asked.pictures else ()
    return explained(known.facts(program, estimate, asked.title), drawn)


def _pictures(program: Any, estimate: Any) -> list[dict[str, str]]:
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
