"""Programs are compiled for GPUs that are not there, down to their machine code."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.sharding import PartitionSpec as P

from kernels import gpu
from kernels.machines import cache
from kernels.machines.gpu import compiler, kernel
from kernels.machines.gpu.kernel import cuda
from kernels.vector import add_vectors
from validation import blackwell

pytestmark = pytest.mark.cuda
S = jax.ShapeDtypeStruct
MATRIX = S((1024, 1024), jnp.bfloat16)
V = S((1000,), jnp.float32)


@pytest.fixture
def anew(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "cache"))


def seed(a, b):
    return -((a @ b) * 0.125)


@functools.cache
def product(form):
    tile = gpu.Tile(128, 128, 64, stages=4, warps=8) if form == "triton" else None
    return gpu.compile(seed, MATRIX, MATRIX, gemm=form, tile=tile)


def test_a_library_call_takes_the_factor_with_it():
    compiled = product("library")
    assert [t.kind for t in compiled.thunks] == ["CublasLtMatmul", "CustomKernel"]
    assert '"alpha_real":0.125' in compiled.hlo
    (kernel,) = compiled.kernels
    assert kernel.name == compiled.thunks[1].name and kernel.blocks * kernel.threads * 4 == 1 << 20


def test_emitted_code_multiplies_one_by_one_in_the_order_of_the_steps():
    compiled = product("emitted")
    assert all(t.kind == "CustomKernel" for t in compiled.thunks)
    assert not any(k.counts["HGMMA"] or k.counts["HMMA"] for k in compiled.kernels)
    names = [t.name for t in compiled.thunks]
    assert [k.name for k in compiled.kernels] == names
    assert [name in text for name, text in zip(names, compiled.llvm)] == [True, True]


def test_passes_are_those_that_changed_the_program_and_what_they_did_is_short():
    compiled = product("library")
    names = [each.name for each in compiled.passes]
    assert "algsimp" in names and "cublas-gemm-rewriter" in names
    rewriter = next(p for p in compiled.passes if p.name == "cublas-gemm-rewriter")
    assert " dot(" in rewriter.before and "multiply(" in rewriter.before
    assert "__cublas$" in rewriter.after and " dot(" not in rewriter.after
    for one, other in zip(compiled.passes, compiled.passes[1:]):
        assert one.before != one.after == other.before
    assert "metadata={" not in compiled.passes[0].before
    assert not gpu.compile(seed, MATRIX, MATRIX, passes=False).passes
    assert rewriter == compiled.changed_by("cublas-gemm-rewriter")
    assert "backend_config" not in rewriter.diff and "backend_config" in rewriter.after
    lines = rewriter.diff.splitlines()
    assert {line[0] for line in lines} == {"-", "+"}
    assert any(line.startswith("- ") and " dot(" in line for line in lines)
    assert "wrapped_negate" in compiled.entry
    with pytest.raises(ValueError, match="name is 'nothing'; accepted: call-inliner"):
        compiled.changed_by("nothing")


def test_live_ranges_graphs_and_buffers_are_kept():
    compiled = product("library")
    (call,) = (each for each in compiled.order if each.startswith("custom-call"))
    lives = {each.name: each for each in compiled.lives}
    result, workspace = lives[f"{call}{{0}}"], lives[f"{call}{{1}}"]
    assert result.size == 2 * 1024 * 1024 and workspace.size and not lives[call].size
    assert workspace.first == workspace.last == compiled.order.index(call) == result.first
    assert result.last > result.first and not compiled.graphs and not compiled.triton
    few = {"xla_gpu_graph_min_graph_size": 1}
    (graph,) = gpu.compile(seed, MATRIX, MATRIX, passes=False, options=few).graphs
    assert graph == ("CublasLtMatmul", "wrapped_negate")
    assert [b.size for b in compiled.buffers[:3]] == [2 * 1024 * 1024] * 3
    assert sum("parameter" in b.purpose for b in compiled.buffers) == 2
    assert compiled.buffers[0].purpose.startswith("output")
    assert all(b.values for b in compiled.buffers)


def test_blocks_of_a_cluster_are_not_taken_for_the_grid():
    one = S((256, 256), jnp.bfloat16)
    step = functools.partial(blackwell.product, step=3)
    kernel = gpu.compile(step, one, one, chip="b200", passes=False).kernel()
    assert kernel.blocks == 2 and kernel.threads == 128
    assert {i.name for i in kernel.instructions if i.operation == "UTCHMMA"} == {"UTCHMMA.2CTA"}
    with pytest.raises(ValueError, match="step is 7; accepted: 0 to 6"):
        blackwell.product(one, one, step=7)


@pytest.mark.parametrize("chip", gpu.CHIPS)
def test_a_pallas_kernel_goes_all_the_way(chip):
    add = functools.partial(add_vectors, implementation="triton")
    (kernel,) = gpu.compile(add, V, V, chip=chip, passes=False).kernels
    assert kernel.name == "add_vectors" and f".target {gpu.CHIPS[chip].sm}" in kernel.ptx
    assert kernel.counts["LDG"] and kernel.counts["STG"] and kernel.counts["FADD"]
    assert 8 <= kernel.registers <= 40 and not kernel.spills


def test_a_mosaic_kernel_goes_all_the_way_and_does_not_spoil_the_next_chip():
    """Mosaic GPU keeps what it knows of a chip: each has a child of its own."""

    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    made = S((256,), jnp.float32)
    for chip, sm in (("h100", "sm_90a"), ("b200", "sm_100a")):
        function = plgpu.kernel(add, out_type=made)
        (kernel,) = gpu.compile(function, made, made, chip=chip, passes=False).kernels
        assert kernel.threads == 128 and kernel.grid == (1, 1, 1) and kernel.registers
        assert f".target {sm}" in kernel.ptx
        assert chip == "b200" or kernel.counts["FADD"] == 2  # 256 numbers by 128 threads


def test_eight_gpus_share_a_product():
    specs = {"in_specs": (P(None, "x"), P("x", None)), "out_specs": P("x", None)}
    compiled = gpu.compile(seed, MATRIX, MATRIX, mesh={"x": 8}, **specs)
    assert any("ReduceScatter" in t.kind for t in compiled.thunks)
    # Since JAX 0.12 Shardy does it.
    assert any(p.name in ("spmd-partitioning", "shardy-xla") for p in compiled.passes)
    with pytest.raises(ValueError, match="accepted: with mesh="):
        gpu.compile(seed, MATRIX, MATRIX, in_specs=(P("x"), P()))


def test_too_much_shared_memory_is_said_in_bytes():
    with pytest.raises(gpu.GpuCompileError, match="asks for 524,288 bytes") as caught:
        gpu.compile(seed, MATRIX, MATRIX, gemm="triton", tile=(256, 256, 128))
    assert caught.value.kind == "shared memory" and caught.value.limit_bytes == 232448


def test_a_time_limit_holds(anew):
    with pytest.raises(gpu.GpuCompileError, match="had not finished seed for h100") as caught:
        gpu.compile(seed, MATRIX, MATRIX, timeout=0.001)
    assert caught.value.kind == "timeout"


def test_a_compiler_that_dies_ends_itself_alone(anew, monkeypatch, tmp_path):
    """Mosaic GPU aborts where something is amiss; the message says what it printed last."""
    worker = tmp_path / "worker.py"
    said = "F1122 mosaic.cc:1] Check failed: no runtime beside the plugin"
    worker.write_text(f"import os\nos.write(2, b{said!r})\nos.abort()\n")
    monkeypatch.setattr(compiler, "WORKER", str(worker))
    words = r"^Mosaic GPU ended its process on seed for h100 \(SIGABRT\): Check failed: no runtime"
    with pytest.raises(gpu.GpuCompileError, match=f"{words} beside the plugin$") as caught:
        gpu.compile(seed, MATRIX, MATRIX)
    assert caught.value.kind == "crashed"


REVERSE = Path(__file__).with_name("data").joinpath("reverse.cu").read_text()


def test_cuda_is_compiled_without_a_toolkit_or_refused_with_its_line():
    kernel = cuda(REVERSE, kernel="reverse", chip="rtx3090", grid=(2,), threads=64)
    assert kernel.shared_bytes == 256 and kernel.counts["BAR"] == 1 and kernel.blocks == 2
    assert kernel.occupancy.limiter == "blocks" and ".target sm_86" in kernel.ptx
    assert "one(" not in kernel.ptx
    with pytest.raises(gpu.GpuCompileError, match=r'line 5: identifier "y" is undefined'):
        cuda(REVERSE.replace("x[b", "y[b"), kernel="reverse")
    with pytest.raises(ValueError, match="kernel is ''; accepted: reverse, one"):
        cuda(REVERSE)


def test_a_program_is_compiled_once(anew, monkeypatch):
    first = gpu.compile(lambda x: x * 2, V)
    sass = first.kernel().sass
    compiler.close()
    kernel.assemble.cache_clear()
    monkeypatch.setattr(compiler, "_start", None)
    monkeypatch.setattr(kernel, "_run", None)
    again = gpu.compile(lambda x: x * 2, V)
    assert again.hlo == first.hlo and again.kernel().sass == sass
    for other in lambda: gpu.compile(lambda x: x * 3, V), lambda: gpu.compile(jnp.sin, V):
        with pytest.raises(TypeError):  # another program asks the compiler, which is not there
            other()
