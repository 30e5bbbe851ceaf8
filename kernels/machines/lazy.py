"""Names that a package offers and imports when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: it stays light, and offers what imports JAX or knows the catalog.

    Args:
        package: its `__name__`.
        modules: a name → the module that holds it, or that it is the name of.

    Returns:
        What Python asks for a name that the package lacks; AttributeError for other names.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        return module if modules[name].endswith(f".{name}") else getattr(module, name)

    return attribute
