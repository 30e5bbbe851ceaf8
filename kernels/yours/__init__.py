"""What a reader brings: a kernel of his own, proven, explained, tuned and guarded.

Importing this imports nothing heavy: a file that marks its kernels with `kernels.proves` loads as
quickly as it did.
"""

from kernels.yours.declared import proves
from kernels.yours.explaining import Explanation, explain
from kernels.yours.proving import prove
from kernels.yours.report import Report

__all__ = ["Explanation", "Report", "explain", "prove", "proves"]
