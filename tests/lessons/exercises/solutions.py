"""The chapters' solutions, from their notebooks: what tests plant faults in."""

import ast
import dis
import functools
import linecache
import re
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

TEXTS = sorted((Path(__file__).resolve().parents[3] / "notebooks" / "text").glob("*.md"))
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FRONT = re.compile(r"\A(?:---\n.*?^---\n|(?::[^\n]*\n)+)", re.DOTALL | re.MULTILINE)


@functools.cache
def cells():
    return [[FRONT.sub("", cell) for cell in CELL.findall(path.read_text())] for path in TEXTS]


def binds(code):
    """What a statement binds at the top level."""
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}


def reads(code):
    """What a statement reads of the top level, in its functions too."""
    steps = dis.get_instructions(code)
    own = {step.argval for step in steps if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
    return own.union(*(reads(inner) for inner in code.co_consts if hasattr(inner, "co_code")))


@functools.cache
def solution(name):
    """The source of an exercise's solution, with what it needs of its chapter, and its name."""
    last = f'answer = exercises.check("{name}", '
    for chapter in cells():
        places = [place for place, cell in enumerate(chapter) if last in cell]
        if places:
            break
    answer = chapter[places[-1]].partition(last)[2].partition(")")[0]
    wanted, kept = {answer}, []
    for cell in reversed(chapter[: places[-1] + 1]):
        cell = re.sub(r"^[%!].*$", "", cell, flags=re.MULTILINE)
        for statement in reversed(ast.parse(cell).body):
            code = compile(ast.Module([statement], []), name, "exec")
            if wanted.isdisjoint(code.co_names) or not wanted & binds(code):
                continue
            if isinstance(statement, ast.ImportFrom):
                bound = {alias.asname or alias.name: alias for alias in statement.names}
                statement.names = [bound[each] for each in sorted(wanted & set(bound))]
                kept.append(ast.unparse(statement))
            else:
                first = min(part.lineno for part in (statement, *decorators(statement)))
                kept.append("\n".join(cell.splitlines()[first - 1 : statement.end_lineno]))
            wanted = (wanted - binds(code)) | reads(code)
    return "\n\n".join(reversed(kept)) + "\n", answer


def decorators(statement):
    return getattr(statement, "decorator_list", ())


def planted(name, changes):
    """The function that solves an exercise, with other words in the place of some.

    Args:
        name: the exercise's.
        changes: what replaces what; it has to be there.
    """
    source, answer = solution(name)
    for right, wrong in changes.items():
        assert right in source, f"the solution of {name} has no {right!r}"
        source = source.replace(right, wrong)
    # Found again by whoever reads a function's source: Taichi, the lint, JAX in its messages.
    file = f"<{name} {zlib.crc32(source.encode()):x}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    scope = {"__name__": name, "jax": jax, "jnp": jnp, "np": np}  # a change may ask for more
    exec(compile(source, file, "exec"), scope)
    return scope[answer]
