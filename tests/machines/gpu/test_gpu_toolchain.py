"""The compilers come from their wheels, and from nowhere else."""

import os
import sys

import jax
import jax.numpy as jnp
import pytest
from commands import process

from kernels import gpu
from kernels.machines.gpu import compiler, toolchain
from kernels.machines.gpu.cuda import cuda
from kernels.machines.gpu.kernel import assemble
from kernels.machines.optional import MissingPackage

V = jax.ShapeDtypeStruct((256,), jnp.float32)
EMPTY = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """A folder without any of them."""
    monkeypatch.setenv(toolchain.FOLDER, str(tmp_path))
    return tmp_path


def plant(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_what_is_missing_is_named_with_the_command(nothing):
    assert not toolchain.available()
    with pytest.raises(MissingPackage, match=r"jax-cuda12-pjrt.*make venv EXTRAS=gpu"):
        gpu.compile(lambda x: x + 1, V)
    plant(nothing, [toolchain.PLUGIN])
    with pytest.raises(MissingPackage, match=r"ptxas \(nvidia-cuda-nvcc-cu12\)"):
        gpu.compile(lambda x: x + 1, V)
    with pytest.raises(MissingPackage, match="ptxas"):
        assemble(EMPTY + "// missing", "h100")
    plant(nothing, [toolchain.PTXAS])
    with pytest.raises(MissingPackage, match="nvdisasm"):
        assemble(EMPTY + "// missing", "h100")
    with pytest.raises(MissingPackage, match="libdevice"):
        gpu.compile(lambda x: x + 1, V)
    with pytest.raises(MissingPackage, match="NVRTC"):
        cuda("")
    plant(nothing, toolchain.PARTS)
    assert toolchain.available()


def test_the_folder_is_that_of_this_environment(monkeypatch):
    monkeypatch.delenv(toolchain.FOLDER, raising=False)
    assert str(toolchain.folder()) == os.path.join(sys.prefix, "gpu")


def test_jax_does_not_find_the_plugin():
    """Otherwise every process would print that there is no GPU."""
    from importlib.metadata import entry_points

    assert not entry_points(group="jax_plugins").select(name="xla_cuda12")
    assert str(toolchain.folder()) not in sys.path


@pytest.mark.cuda
def test_the_toolkit_of_the_machine_is_not_taken(monkeypatch, tmp_path):
    """One is planted where it would be found: it writes down that it was called, and fails."""
    called = tmp_path / "called"
    for name in ("ptxas", "nvdisasm", "nvlink"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} >> {called}\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    for variable in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH", "MOSAIC_GPU_CUDA_ROOT"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_cuda_data_dir={tmp_path}")
    compiler.close()
    compiled = gpu.compile(lambda x: jnp.exp(x) + 1, V, passes=False)
    assemble.cache_clear()
    (kernel,) = compiled.kernels
    assert kernel.registers and "EXIT" in kernel.counts
    assert not called.exists()
    compiler.close()
    # XLA writes the PTX that the assembler it found can read: 8.8 is that of the wheel, 12.9.
    ptxas = process(toolchain.folder() / toolchain.PTXAS, "--version")
    assert "release 12.9" in ptxas.stdout and ".version 8.8" in kernel.ptx
