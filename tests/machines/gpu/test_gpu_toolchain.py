"""The compilers come from their wheels, and what they refuse is said in one line of plain words."""

import json
import os
import pickle
import sys
from importlib.metadata import entry_points
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from commands import process

from kernels import gpu, optional
from kernels.machines.gpu import compiler, toolchain
from kernels.machines.gpu.errors import translate
from kernels.machines.gpu.kernel import assemble, cuda
from kernels.machines.gpu.launched import run_on_threads
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


def test_the_folder_is_that_of_this_environment_and_not_on_its_path(monkeypatch):
    monkeypatch.delenv(toolchain.FOLDER, raising=False)
    assert str(toolchain.folder()) == os.path.join(sys.prefix, "gpu")
    # JAX does not find the plugin: every process would print that there is no GPU.
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


# As jax 0.10.2, its plugin and ptxas 12.9 said it.
DATA = Path(__file__).with_name("data")
SAID = json.loads((DATA / "errors.json").read_text())


@pytest.mark.parametrize("name", SAID)
def test_each_is_one_line(name):
    text, said = SAID[name]
    error = translate(text)
    assert error.kind == name.split(",")[0] and error.original == text
    assert said in str(error) and "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, str(again), again.original) == (error.kind, str(error), text)


def test_mosaic_prints_what_its_error_does_not_say():
    printed = "loc(x): error: 'nvvm.wgmma.fence.aligned' op is not supported on sm_80\n"
    error = translate("INTERNAL: Pass pipeline failed", printed)
    assert error.kind == "unsupported" and "wgmma, which sm_80 does not have" in str(error)
    error = translate("INTERNAL: Pass pipeline failed", "loc(x): error: something else\n")
    assert str(error) == "something else"


def test_a_form_and_its_tile_belong_together():
    for given, said in (
        ({"gemm": "cublas"}, r"gemm is 'cublas'; accepted: library, triton, emitted"),
        ({"gemm": "triton"}, r"tile is None; accepted: with gemm=\"triton\" a gpu.Tile"),
        ({"tile": (64, 64, 64)}, r"accepted: None with gemm=\"library\""),
    ):
        with pytest.raises(ValueError, match=said):
            gpu.compile(lambda x: x, 1.0, **given)


@pytest.mark.slow
@pytest.mark.skipif(not optional.available("g++"), reason="g++ is not installed")
def test_cuda_for_the_cpu_s_threads_that_cannot_be_built_is_refused_with_its_line():
    """The chapter on GPUs shows, and asserts, what they find in a kernel that can."""
    source = (DATA / "reverse.cu").read_text().replace('extern "C" ', "")
    with pytest.raises(ValueError, match="source is refused by g\\+\\+, line 5"):
        run_on_threads(source.replace("x[b", "y[b"), "")
    with pytest.raises(ValueError, match="watch is 'leaks'; accepted: races, bounds"):
        run_on_threads(source, "", watch="leaks")
