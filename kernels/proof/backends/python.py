"""Python: a function of numbers, of arrays or of programs, which an exercise asks for."""

from kernels.proof.backends.base import Backend


class _Python(Backend):
    name = "Python"
    is_library = True
    takes_interpret = True  # an exercise runs it, and may pass it on to a kernel


PYTHON = _Python()
