"""How much code an implementation is: lines that do something, without comments and docstrings."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernels.machines.checks import fail


def count(source: str) -> int:
    """Lines of Python `source` that hold code; a statement over three lines counts three."""
    tree = ast.parse(textwrap.dedent(source))
    notes: set[int] = set()  # lines of docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                notes.update(range(first.lineno, (first.end_lineno or 0) + 1))
    rows = enumerate(source.splitlines(), 1)
    return sum(bool(row.split("#")[0].strip()) and at not in notes for at, row in rows)


def count_cpp(source: str) -> int:
    """Lines of C++ `source` that hold code."""
    bare = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL)
    return sum(bool(row.split("//")[0].strip()) for row in bare.splitlines())


def reached(*functions: Callable[..., Any]) -> int:
    """Lines of `functions` and of all functions of the same operator that they call by name.

    Args:
        functions: decorated functions and NKI kernels count as what was decorated.

    Raises:
        ValueError: for what is no Python function.
    """
    todo = []
    for function in functions:
        if (plain := _plain(function)) is None:
            fail("functions", repr(function), "functions written in Python")
        todo.append(plain)
    found: list[types.FunctionType] = []
    while todo:
        plain = todo.pop()
        if plain in found:
            continue
        found.append(plain)
        package = _package(plain.__module__)
        called = (_plain(plain.__globals__.get(name)) for name in _names(plain.__code__))
        todo += [f for f in called if f and _package(f.__module__) == package]
    return sum(count(inspect.getsource(function)) for function in found)


def needed(module: str) -> int:
    """Lines of a module and of those of its operator that it imports.

    Args:
        module: such as "kernels.giou.pallas"; of a folder, all files in it count.

    Raises:
        ValueError: for a module that there is not.
    """
    return sum(map(_lines, _closure(module)))


def _closure(module: str) -> set[Path]:
    spec = importlib.util.find_spec(module) if module.startswith("kernels.") else None
    if spec is None or spec.origin is None:
        fail("module", repr(module), "one of this package, such as 'kernels.giou.pallas'")
        raise AssertionError
    path = Path(spec.origin)
    todo = [p for p in path.parent.iterdir() if p.is_file()] if _is_folder(path, module) else [path]
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in found or path.suffix not in (".py", ".cpp"):
            continue
        found.add(path)
        if path.suffix == ".py":
            todo += _siblings(path, _package(module))
    return found


def _siblings(path: Path, package: str) -> Iterator[Path]:
    """The files of the operator's folder that a file imports."""
    folder = Path(importlib.util.find_spec(package).origin or "").parent  # type: ignore[union-attr]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            inside = (node.module or "").removeprefix(package).strip(".")
            for name in (inside, *(alias.name for alias in node.names if not inside)):
                if name and (folder / f"{name}.py").exists():
                    yield folder / f"{name}.py"


def _is_folder(path: Path, module: str) -> bool:
    """Whether the module is a folder inside of an operator's: one implementation in many files."""
    return path.name == "__init__.py" and module.count(".") > 1


def _lines(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    return count(source) if path.suffix == ".py" else count_cpp(source)


def _package(module: str) -> str:
    """kernels.OPERATOR of a module in it."""
    return ".".join(module.split(".")[:2])


def _plain(value: Any) -> types.FunctionType | None:
    function = inspect.unwrap(value) if callable(value) else None
    return function if isinstance(function, types.FunctionType) else None


def _names(code: types.CodeType) -> set[str]:
    """Names that a function and the functions inside of it look up."""
    inside = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*(_names(c) for c in inside))
