"""Packages and tools that not every reader needs, and the command that installs a missing one."""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

__all__ = ["MissingPackage", "available", "require", "tool"]
# extra of pyproject.toml → the importable modules that it brings
_BROUGHT = {
    "tpu": ("libtpu",),
    "validation": ("tokamax",),
    "torch": ("torch", "timm", "torchvision", "optax"),
    "torchax": ("torchax",),
    "xla": ("torch_xla",),
    "taichi": ("taichi", "quadrants"),
    "book": ("matplotlib", "py_mini_racer"),
    "dev": ("hypothesis", "playwright", "axe_playwright_python"),
}
EXTRAS = {module: extra for extra, modules in _BROUGHT.items() for module in modules}

# program, or a library that a package loads → how to get it
TOOLS = {
    "g++": "on Debian and Ubuntu: `sudo apt install g++`",
    "bwrap": "on Debian and Ubuntu: `sudo apt install bubblewrap`",
    "chromium": "on Debian and Ubuntu: `sudo apt install chromium`",
    "libX11.so.6": "on Debian and Ubuntu: `sudo apt install libx11-6`",
}


class MissingPackage(ImportError):
    """An optional package or tool is not installed; the message says which, and how to get it."""


def available(name: str) -> bool:
    """Whether the module can be imported, found out without importing it, or the tool run."""
    if name in TOOLS:
        return shutil.which(name) is not None
    # A folder of that name on the path, such as tests/taichi, is no package.
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def tool(name: str, purpose: str) -> str:
    """Where a program of TOOLS is, which `purpose` needs; MissingPackage says how to get it."""
    if path := shutil.which(name):
        return path
    raise MissingPackage(
        f"{name} is needed for {purpose}, and is not installed. Install it; {TOOLS[name]}.",
        name=name,
    )


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: its name, one of EXTRAS.
        purpose: what needs it, to complete the sentence "… is needed for PURPOSE".

    Raises:
        MissingPackage: where it, or a library that it loads, is not installed; the message says
            how to get it.
    """
    if not available(module):
        extra = EXTRAS[module]
        how = f"`pip install 'kernels-rung-by-rung[{extra}]'`"
        if (Path(__file__).parents[2] / "constraints.txt").exists():
            how = f"`pip install -c constraints.txt -e '.[{extra}]'` in the project's folder"
        raise MissingPackage(
            f"{module} is needed for {purpose}, and is not installed. Install it with {how}.",
            name=module,
        )
    try:
        return importlib.import_module(module)
    except ImportError as error:
        lacking = re.match(r"(\S+): cannot open shared object file", str(error))
        if lacking is None:
            raise
        how = TOOLS.get(lacking[1], "your system's packages have it")
        raise MissingPackage(
            f"{module} is needed for {purpose}, and lacks the library {lacking[1]}. "
            f"Install it; {how}.",
            name=module,
        ) from error
