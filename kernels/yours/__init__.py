"""What a reader brings: a kernel of his own, proven, judged, explained, tuned and guarded.

Importing this imports nothing heavy: a file that marks its kernels with `kernels.proves` loads as
quickly as it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels.yours.declared import proves
    from kernels.yours.explaining import explain
    from kernels.yours.explanation import Explanation
    from kernels.yours.judging import judge
    from kernels.yours.proving import prove
    from kernels.yours.report import Report
    from kernels.yours.verdict import Judgement

__all__ = ["Explanation", "Judgement", "Report", "explain", "judge", "prove", "proves"]

_MODULES = dict(Explanation="explanation", Report="report", Judgement="verdict")
_MODULES |= dict(explain="explaining", judge="judging", prove="proving", proves="declared")
__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
