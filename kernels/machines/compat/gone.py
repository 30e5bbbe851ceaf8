"""Names of JAX that are gone, and what a kernel writes instead; a text is read, and not run."""

import ast
import csv
import importlib
from dataclasses import dataclass
from pathlib import Path

# A name that is gone → what stands in its place; book/version_bridge.md shows both in use.
with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _rows:
    INSTEAD = {row["name"]: row["instead"] for row in csv.DictReader(_rows)}


@dataclass(frozen=True)
class Gone:
    """A name that a text uses and the installed JAX has not."""

    name: str  # in full, such as "jax.experimental.pallas.load"
    line: int
    instead: str  # "" where no successor is known


def gone(text: str) -> list[Gone]:
    """The names of JAX in a Python text that the installed JAX has not, each once, in order of
    their lines; none of a text that is no Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    modules: dict[str, str] = {}  # what the text calls a module → its name
    used: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                modules[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax"):
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                used.append((f"{node.module}.{alias.name}", node.lineno))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in modules and all(part.isidentifier() for part in rest.split(".")):
                used.append((f"{modules[root]}.{rest}", node.lineno))
    lacking: dict[str, Gone] = {}
    for name, line in sorted(used, key=lambda use: use[1]):
        if name.split(".")[0] == "jax" and name not in lacking and not _is_known(name):
            lacking[name] = Gone(name, line, INSTEAD.get(name, ""))
    # Of jax.a.b.c without jax.a.b the shorter one tells it.
    return [g for g in lacking.values() if g.name.rpartition(".")[0] not in lacking]


def _is_known(name: str) -> bool:
    """Whether the installed JAX has the name: a module, or what one holds."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for place, part in enumerate(parts[end:], end):
            if not hasattr(value, part):
                return bool(place > end)  # of an object's own attributes nothing is said
            value = getattr(value, part)
        return True
    return False
