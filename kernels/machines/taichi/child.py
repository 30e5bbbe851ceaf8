"""The child process that runs Taichi for its parent, which asks by kernels.machines.child."""

from collections.abc import Callable

import numpy as np

from kernels.machines import child
from kernels.machines.compat import taichi as compat
from kernels.machines.taichi import runtime


def prepare() -> Callable[[tuple], dict]:
    """Load Taichi, which takes a moment."""
    runtime.module()
    return _answer


def _answer(question: tuple) -> dict:
    settings, function, arguments, options = question
    try:
        runtime.start(**settings)
        if settings["device"] == "cuda":
            arguments = [_to_gpu(a) for a in arguments]
        answer = {"result": _to_cpu(function(*arguments, **options))}
        if settings.get("profiled"):
            answer["tasks"] = _tasks(function, arguments, options)
        return answer
    except Exception as error:
        return {"kind": type(error).__name__, "says": _plain(error)}


def _plain(error: Exception) -> str:
    """An exception of Taichi or of Python in one line; the kernel's line comes with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^~\t")]
    if isinstance(error, ValueError):
        return "\n".join(lines)
    # "File …, line 3, in kernel:" goes, "[kernel=pad_c80_0]" stays.
    return "; ".join(line for line in lines if not line.startswith("File ")) or repr(error)


def _to_gpu(value):
    import torch

    return torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value


def _to_cpu(value):
    return value.cpu() if hasattr(value, "cpu") else value


def _tasks(function, arguments, options) -> list:
    ti = runtime.module()
    ti.profiler.clear_kernel_profiler_info()
    function(*arguments, **options)
    return compat.task_times(ti)


if __name__ == "__main__":
    child.serve(prepare)
