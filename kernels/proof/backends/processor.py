"""The processors of this machine, in the words of a record."""

import os
import platform
from pathlib import Path

from kernels.machines import optional


def has_cuda() -> bool:
    """Whether PyTorch sees a CUDA device."""
    return optional.available("torch") and optional.require("torch", "").cuda.is_available()


def card(name: str) -> str:
    """A GPU's name, as PyTorch and JAX give it, without its maker's."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def processor(device: str = "cpu") -> str:
    """The processor that is timed: the first GPU for "cuda", else the CPU with its cores."""
    if device == "cuda":
        return card(optional.require("torch", "timing on a GPU").cuda.get_device_name())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {cores} cores"
