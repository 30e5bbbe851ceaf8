"""NVIDIA's GPUs, as `kernels explain` sees a machine: see kernels.yours.machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.machines.checks import fail


def known() -> tuple[str, ...]:
    """The names of its chips."""
    from kernels.machines.gpu.chips import CHIPS

    return tuple(CHIPS)


def ready() -> str:
    """The version of its compiler: jaxlib's, whose plugin it is.

    Raises:
        kernels.optional.MissingPackage: where the plugin or one of NVIDIA's tools is missing.
    """
    from importlib.metadata import version

    from kernels.machines.gpu import toolchain

    for name in (toolchain.PLUGIN, toolchain.PTXAS, toolchain.LIBDEVICE, toolchain.NVDISASM):
        toolchain.part(name, "explaining a program for a GPU")
    return f"jax-cuda12-pjrt of jaxlib {version('jaxlib')}"


def explain(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    values: Mapping[int | str, Any],
    *,
    chip: str,
    name: str,
    title: str,
    timeout: float,
    pictures: bool,
    trips: Mapping[str, int],
) -> dict[str, Any]:
    """Explain a function on one chip; in a child.

    Args:
        function: of arrays alone.
        arrays: what it takes, or their shapes.
        values: not asked for here: no block of a GPU is counted.
        trips: none: how often a loop runs is not asked for either.
        chip: one of `known`.
        name: of the function.
        title: what the explanation is called.
        timeout: seconds for the compilation.
        pictures: whether to draw what a page shows.

    Returns:
        What kernels.gpu.explain.facts or .refusal gives; with "pictures" a list of HTML.

    Raises:
        ValueError: for trips, and for a function that returns no array.
    """
    if trips:
        fail("trips", " ".join(f"{k}={n}".lstrip("=") for k, n in trips.items()), f"none on {chip}")
    from kernels.machines.compat import jax_pallas
    from kernels.machines.gpu import explain as own
    from kernels.machines.gpu.compiler import compile_program
    from kernels.machines.gpu.errors import GpuCompileError
    from kernels.machines.gpu.estimate import GpuEstimate, estimate_compiled
    from kernels.machines.gpu.export import export
    from kernels.yours.machines import returning

    found: GpuEstimate | str
    try:
        with jax_pallas.compiled():
            program = returning(export(function, *arrays, chip=chip, name=name))
        compiled = compile_program(program, passes=True, timeout=timeout)
        try:
            found = estimate_compiled(program, compiled)
        except ValueError as error:  # what nothing here knows the time of
            found = str(error)
        made = own.facts(compiled, found, title)
    except GpuCompileError as error:
        return own.refusal(error, title, chip)
    if pictures:
        made["pictures"] = _pictures(compiled)
    return made


def page(made: Mapping[str, Any], console: Any) -> None:
    """Print an explanation."""
    from kernels.machines.gpu import explain as own

    own.page(made, console)


def compare(first: Mapping[str, Any], second: Mapping[str, Any], console: Any) -> None:
    """Print two explanations side by side."""
    from kernels.machines.gpu import explain as own

    own.compare(first, second, console)


def tables(made: Mapping[str, Any], second: Mapping[str, Any] | None = None) -> list[str]:
    """An explanation as pieces of HTML, beside a second one where there is one."""
    import html

    from kernels.machines.gpu import explain as own
    from kernels.yours.tables import table

    if "error" in made:
        return [f'<p class="wrong">{html.escape(made["error"]["message"])}</p>']
    parts = [f"<p><b>{html.escape(own.verdict(made))}</b>. Nothing here was measured.</p>"]
    if told := (*made["advice"], *made["notes"]):
        items = "".join(f"<li>{html.escape(each)}</li>" for each in told)
        parts.append(f"<h2>What to change first</h2><ol>{items}</ol>")
    if second is not None:
        heads = ("", str(made["title"]), f"{second['title']} (other)", "change")
        parts += ["<h2>Side by side</h2>", table(heads, own.compared(made, second))]
    parts += [
        "<h2>Steps</h2>",
        table(("step", "name", "blocks", "threads"), own.thunks(made)),
        "<h2>Kernels</h2>",
        table(own.KERNEL, own.kernels(made)),
    ]
    for kernel in made["kernels"][: own.KERNELS]:
        parts += [
            f"<h2>The schedule of {html.escape(kernel['name'])}</h2>",
            f"<p>{html.escape(own.slowest(kernel))}</p>",
            table(own.SCHEDULE, own.schedule(kernel["loop"])),
        ]
    names = ", ".join(each["name"] for each in made["passes"])
    return [*parts, f"<h2>Passes that changed it</h2><p>{html.escape(names)}</p>"]


def _pictures(compiled: Any) -> list[dict[str, str]]:
    """The occupancy of each kernel, and the schedule of its loop as a heat map."""
    from kernels.lessons import pictures

    made = []
    for kernel in [each for each in compiled.kernels if each.threads][:2]:
        drawn = [(f"How full {kernel.name} keeps an SM", pictures.occupancy(kernel))]
        if kernel.loops:
            drawn.append((f"The schedule of {kernel.name}'s loop", pictures.heat(kernel)))
        made += [{"title": title, "html": each._repr_html_()} for title, each in drawn]
    return made
