"""What a reader brings: a kernel of his own, proven, explained, tuned and guarded.

Importing this imports nothing heavy: a file that marks its kernels with `kernels.proves` loads as
quickly as it did.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.yours.declared import proves
    from kernels.yours.explaining import explain
    from kernels.yours.explanation import Explanation
    from kernels.yours.proving import prove
    from kernels.yours.report import Report

__all__ = ["Explanation", "Report", "explain", "prove", "proves"]

_MODULES = {
    "Explanation": "explanation",
    "Report": "report",
    "explain": "explaining",
    "prove": "proving",
    "proves": "declared",
}


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is first asked for."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"kernels.yours.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
