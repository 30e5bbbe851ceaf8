"""NVIDIA's compiler, assembler and disassembler, as wheels in a folder of their own.

tools/install.py puts them there. Were they installed as packages of this Python, JAX would load
the plugin in every process, and print where no GPU is. The CUDA toolkit that a machine may have is
never taken: what is compiled shall not depend on it.
"""

import os
import sys
from pathlib import Path

from kernels.machines.optional import MissingPackage

__all__ = ["PLUGIN", "available", "folder"]
FOLDER = "KERNELS_GPU_TOOLS"  # environment variable: where the wheels were unpacked, if elsewhere

PLUGIN = "jax_plugins/xla_cuda12/xla_cuda_plugin.so"
MOSAIC = "jax_cuda12_plugin/libmosaic_gpu_runtime.so"
TOOLKIT = "nvidia/cuda_nvcc"
PTXAS = f"{TOOLKIT}/bin/ptxas"
LIBDEVICE = f"{TOOLKIT}/nvvm/libdevice/libdevice.10.bc"
NVDISASM = "nvidia/cu13/bin/nvdisasm"
NVRTC = "nvidia/cuda_nvrtc/lib"

# What each is, for whoever misses it.
PARTS = {
    PLUGIN: "XLA's compiler for NVIDIA's GPUs (jax-cuda12-pjrt)",
    MOSAIC: "Mosaic GPU's runtime (jax-cuda12-plugin)",
    PTXAS: "NVIDIA's assembler, ptxas (nvidia-cuda-nvcc-cu12)",
    LIBDEVICE: "NVIDIA's library of functions, libdevice (nvidia-cuda-nvcc-cu12)",
    NVDISASM: "NVIDIA's disassembler, nvdisasm (nvidia-cuda-nvdisasm)",
    NVRTC: "NVIDIA's compiler for CUDA C++, NVRTC (nvidia-cuda-nvrtc-cu12)",
}


def folder() -> Path:
    """Where the wheels are unpacked, whether they are or not."""
    return Path(os.environ.get(FOLDER) or Path(sys.prefix) / "gpu")


def available() -> bool:
    """Whether all parts are there."""
    return all((folder() / part).exists() for part in PARTS)


def part(name: str, purpose: str) -> Path:
    """Where one of PARTS is, which `purpose` needs; MissingPackage says how to get it."""
    if (path := folder() / name).exists():
        return path
    raise MissingPackage(
        f"{PARTS[name]} is needed for {purpose}, and is not installed. Install it with "
        "`make venv EXTRAS=gpu` in the project's folder (the wheels are for Linux).",
        name=Path(name).stem,
    )


def stamps() -> list[tuple[str, int, int]]:
    """Path, bytes and time of each part that is there: another tool has other ones."""
    paths = [folder() / name for name in PARTS if (folder() / name).exists()]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def environment() -> dict[str, str]:
    """Variables of a process that compiles: these tools, and no others that the machine has."""
    root = folder()
    return {
        "PATH": os.pathsep.join(str(root / tool.rpartition("/")[0]) for tool in (PTXAS, NVDISASM)),
        "CUDA_ROOT": str(root / TOOLKIT),
        "MOSAIC_GPU_CUDA_ROOT": str(root / TOOLKIT),
        "MOSAIC_GPU_RUNTIME_LIB_PATH": str(root / MOSAIC),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
