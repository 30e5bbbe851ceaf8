"""A program at its full size, which no laptop runs: whether a chip's compiler takes it, whether it
fits, and what it would take beside XLA's program of the reference. In a child."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from kernels.machines.checks import located
from kernels.machines.compat import jax_pallas
from kernels.yours.memory import plainly
from kernels.yours.spread import Devices

MOST_PROGRAMS = 1 << 18  # of a grid whose index maps are looked at, one by one
PROFILE_SECONDS = 5.0  # that the static profile of one program may take


@dataclass(frozen=True)
class Full:
    """A function and its reference at full size."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    # args, named: trees of arrays or jax.ShapeDtypeStruct, and what is neither.
    args: tuple[Any, ...]
    named: dict[str, Any]
    # How they are cut, where the function is what each of several devices calls.
    spread: Devices | None = None


def weigh(full: Full, name: str, chips: Sequence[str], timeout: float) -> list[dict[str, Any]]:
    """Compile and estimate a kernel of that name for each TPU of `chips`, `timeout` seconds at most
    each: for each the fields of a verdict.OnChip; "verdict" is there where it is decided."""
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate import estimate_all
    from kernels.machines.tpu.pool import TpuProgram, compile_all

    weighed = [_exported(full, name, chip) for chip in chips]
    asked = [p for _, pair in weighed for p in pair if p is not None]
    estimates: Iterator[Any] = iter(
        estimate_all(asked, timeout=timeout, budget=PROFILE_SECONDS, large=True, progress=False)
    )
    for answer, pair in weighed:
        kernel, reference = [None if p is None else next(estimates) for p in pair]
        if isinstance(kernel, TpuCompileError) and kernel.kind == "unsupported":
            # Nobody knows its time; whether it compiles is another question.
            answer["notes"] = [*answer["notes"], kernel.message]
            [kernel] = compile_all([pair[0]], timeout=timeout, progress=False)
        if isinstance(kernel, TpuCompileError):
            late = kernel.kind in ("timeout", "crashed", "disk")
            verdict = "undecided" if late else "refused"
            rung = "memory" if "hbm" in kernel.message.lower() else "compile"
            where = kernel.source or ""
            answer |= {"verdict": verdict, "rung": rung, "why": kernel.message, "where": where}
        elif isinstance(kernel, TpuProgram):
            _held(answer, kernel.memory.total)
        elif kernel is not None:
            _compare(answer, kernel, None if isinstance(reference, TpuCompileError) else reference)
    return [answer for answer, _ in weighed]


def _exported(full: Full, name: str, chip: str) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """What is known of the kernel before it is compiled; its program and the reference's, None
    where there is none to compile."""
    from kernels.machines.tpu.chips import CHIPS
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.export import export
    from kernels.proof.backends.jax_arrays import at_places
    from kernels.proof.backends.pallas_tpu_mesh import over

    leaves, tree = jax.tree.flatten((full.args, full.named))
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape")]
    cut = full.spread.cut(full.args, full.named) if full.spread else {}

    def exported(function: Callable[..., Any], words: str, on_each: bool = False) -> Any:
        def of_leaves(*values: Any) -> Any:
            args, named = jax.tree.unflatten(tree, values)
            return function(*args, **named)

        with jax_pallas.compiled():
            call, arrays = at_places(of_leaves, leaves, places)
            if cut and on_each:  # XLA spreads the reference by itself
                call = over(call, **cut)
            return export(call, *arrays, chip=chip, name=words, **cut)

    answer: dict[str, Any] = {"chip": chip, "hbm_limit": CHIPS[chip].hbm_bytes}
    try:
        reference = exported(full.reference, f"{name}, reference")
    except Exception as error:  # NumPy's own is not traced; one that fails is no reference
        reference, its_own = None, located(error)
        if not isinstance(error, jax.errors.JAXTypeError):
            answer["reference_fails"] = plainly(its_own)
    try:
        kernel = exported(full.function, name, on_each=True)
    except TpuCompileError as error:
        where = error.source or ""
        answer |= {"verdict": "refused", "rung": "lower", "why": error.message, "where": where}
        return answer, (None, None)
    except Exception as error:  # whatever the function itself raises
        answer |= {"verdict": "refused", "rung": "trace", "why": plainly(located(error))}
        return answer, (None, None)
    answer["notes"] = _looked_at(answer, kernel)
    return answer, (kernel, reference)


def _looked_at(answer: dict[str, Any], program: Any) -> list[str]:
    """What the index maps alone say; into the answer where they are wrong."""
    own = list(filter(jax_pallas.is_kernel, jax_pallas.outside_kernels(program.jaxpr)))
    if not own:
        return ["no kernel reached the program: it is plain JAX"]
    if any(math.prod(jax_pallas.grid(equation)) > MOST_PROGRAMS for equation in own):
        return [f"its index maps were not looked at: a grid of over {MOST_PROGRAMS:,} programs"]
    for call in program.calls:
        for problem in call.problems()[:1]:
            answer |= {"verdict": "wrong", "rung": "index maps", "why": problem}
    return []


def _held(answer: dict[str, Any], held: int) -> None:
    """Put the memory into the answer, and a refusal where the chip has less."""
    answer["hbm_bytes"] = held
    if held > answer["hbm_limit"] and "verdict" not in answer:
        gib = lambda size: f"{size / 2**30:.2f} GiB"
        words = f"it holds {gib(held)} in HBM, and the chip has {gib(answer['hbm_limit'])}"
        answer |= {"verdict": "refused", "rung": "memory", "why": words}


def _compare(answer: dict[str, Any], kernel: Any, reference: Any) -> None:
    """Put the estimate of the kernel into the answer, beside that of the reference."""
    from kernels.machines.tpu.estimate.bands import ahead, ratio_band

    _held(answer, kernel.compiled.memory.total)
    answer |= {"bound": kernel.bound, "band": kernel.band_text}
    answer["seconds"] = (kernel.seconds.low, kernel.seconds.high)
    if reference is None:
        return
    answer["reference_seconds"] = (reference.seconds.low, reference.seconds.high)
    if kernel.seconds.is_range or reference.seconds.is_range or not kernel.seconds.low:
        return
    band = ratio_band(answer["chip"], compiler=f"libtpu {kernel.libtpu}")
    times = (reference.seconds.low, kernel.seconds.low)
    if band is not None:
        answer["band"] += f"; that of the ratio is with {band.other}" if band.other else ""
        answer["ratio"] = band.around(times[0] / times[1])
        answer["ahead"] = {0: "reference", 1: "kernel", None: "tie"}[ahead(times, band)]
