"""The child process that runs Taichi for its parent, which asks by kernels.machines.child."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from kernels.machines import child
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
            arguments = [to_torch(a).cuda() if isinstance(a, np.ndarray) else a for a in arguments]
        result = function(*arguments, **options)
        return {"result": to_numpy(result.cpu()) if hasattr(result, "cpu") else result}
    except Exception as error:
        return {"kind": type(error).__name__, "says": _plain(error)}


def to_torch(array: np.ndarray) -> Any:
    """A tensor of the same memory; PyTorch takes bfloat16 from NumPy only as bits."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: Any) -> np.ndarray:
    """An array of the same memory: not every dtype of a tensor can be pickled."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _plain(error: Exception) -> str:
    """An exception of Taichi or of Python in one line; the kernel's line comes with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^~\t")]
    if isinstance(error, ValueError):
        return "\n".join(lines)
    # "File …, line 3, in kernel:" goes, "[kernel=pad_c80_0]" stays.
    return "; ".join(line for line in lines if not line.startswith("File ")) or repr(error)


if __name__ == "__main__":
    child.serve(prepare)
