"""Packages that not every reader needs, and the command that installs a missing one."""

import importlib
import importlib.util
from types import ModuleType

# importable module → the extra of pyproject.toml that brings it
EXTRAS = {
    "libtpu": "tpu",
    "torch": "torch",
    "timm": "torch",
    "torchax": "torchax",
    "torch_xla": "xla",
    "torchvision": "torch",
    "optax": "torch",
    "taichi": "taichi",
    "quadrants": "taichi",
    "matplotlib": "book",
    "hypothesis": "dev",
}


class MissingPackage(ImportError):
    """An optional package is not installed; the message says which, and how to install it."""


def available(module: str) -> bool:
    """Whether `module` can be imported, found out without importing it.

    A folder of that name on the path, such as tests/taichi, is no package.
    """
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def require(module: str, purpose: str) -> ModuleType:
    """Import and return an optional `module`, or raise MissingPackage saying how to get it.

    purpose: what needs it, to complete the sentence "… is needed for PURPOSE".
    """
    if not available(module):
        raise MissingPackage(
            f"{module} is needed for {purpose}, and is not installed. Install it with "
            f"`pip install -c constraints.txt -e '.[{EXTRAS[module]}]'` in the project's folder.",
            name=module,
        )
    return importlib.import_module(module)
