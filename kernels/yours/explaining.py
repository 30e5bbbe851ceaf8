"""Explain a function that somebody brought: in this process, or one of a file in a child."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail, name_of
from kernels.yours import cache
from kernels.yours.explanation import Explanation
from kernels.yours.machines import machine
from kernels.yours.proving import Lost, asking
from kernels.yours.spread import spread_over


def explain(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = 120.0,
    trips: int | Mapping[str, int] | None = None,
    pictures: bool = False,
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    **named: Any,
) -> Explanation:
    """Explain a function of JAX, with kernels in it or without: where its time would go on a chip.

    Args:
        function: jitted or not; kernels inside are taken as compiled.
        args: its arguments, arrays or jax.ShapeDtypeStruct; the values of integer arrays count,
            where a grid or a loop depends on them.
        chip: one of kernels.tpu.CHIPS.
        timeout: seconds for a compilation.
        trips: where data decides that is not given, how often loops run and how many steps grids
            have; or by the name of a kernel, or FILE:LINE of a loop.
        pictures: whether to draw what a page shows.
        mesh, in_specs, out_specs: as `kernels.prove` takes them, of what each of several devices
            calls; what one of them does is explained.
        named: its keyword arguments.

    Returns:
        The explanation; where it cannot be compiled, of why, with the first thing to change.

    Raises:
        ValueError: for an unknown chip, and for trips of what does not depend on data.
        kernels.optional.MissingPackage: where the chip's compiler is not installed.
    """
    from kernels.yours import answers

    target = machine(chip, "chip")
    target.ready()
    name = name_of(function)
    spread = spread_over(mesh, in_specs, out_specs)
    arrays = [value for value in (*args, *named.values()) if hasattr(value, "shape")]
    shapes = " ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)
    counts = {"": trips} if isinstance(trips, int) else dict(trips or {})
    options = dict(chip=chip, timeout=timeout, pictures=pictures, trips=counts)
    return target.explain(answers.asked_of(function, args, named, name, shapes, spread, **options))


def explain_file(
    path: str,
    name: str,
    args: str = "",
    *,
    chip: str = "v5e",
    timeout: float = 120.0,
    pictures: bool = False,
    trips: Mapping[str, int] | None = None,
    mesh: Mapping[str, int] | None = None,
) -> Explanation:
    """Explain a function of a file: where its time would go on a chip; where it cannot be compiled,
    why. ValueError where the file, the name or the arguments are wrong, or the child ended. What
    was explained before, and depends on no file that has changed, is known at once."""
    question = dict(what="explain", path=path, name=name, args=args, chip=chip, timeout=timeout)
    question |= dict(pictures=pictures, trips=dict(trips or {}), mesh=mesh)
    key = cache.key(machine(chip).ready(), os.path.abspath(path), sorted(question.items(), key=str))
    if (known := cache.ANSWERS.get(key)) and cache.same(known["files"]):
        return known["explanation"]
    with asking(timeout + 10 * 60) as ask:
        try:
            answer = ask(question)
        except Lost as lost:
            raise ValueError(f"{name} could not be explained: {lost}") from None
    explanation: Explanation = answer["explanation"]
    if not explanation.refused:  # a compilation that was late may succeed the next time
        cache.ANSWERS.put(key, answer)
    return explanation


@contextlib.contextmanager
def other(text: str, path: str, name: str) -> Iterator[tuple[str, str]]:
    """What --compare names: FILE.py:NAME, FILE.py, or a commit of git that has the same file;
    ValueError for none of them. File and name, for as long as the context lasts."""
    head, _, tail = text.rpartition(":")
    for file, function in ((text, name), (head, tail)):
        if file.endswith(".py") and Path(file).is_file():
            yield file, function
            return
    whole = Path(path).resolve()
    run = lambda *words: subprocess.run(
        ["git", "-C", str(whole.parent), *words], capture_output=True, check=False
    )
    top = run("rev-parse", "--show-toplevel")
    known = run("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if top.returncode or known.returncode:
        fail("--compare", repr(text), "FILE.py, FILE.py:NAME, or a commit that has the file")
    with tempfile.TemporaryDirectory(prefix="kernels-compare-") as folder:
        archive = run("archive", "--format=tar", text, ".")
        done = subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=False)
        same = Path(folder) / whole.name
        if archive.returncode or done.returncode or not same.is_file():
            fail("--compare", repr(text), f"a commit that has {whole.name}")
        yield str(same), name
