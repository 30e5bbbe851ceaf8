"""explain for a GPU: passes, thunks, registers, occupancy, schedule, bracket; refusals."""

import json
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels import gpu, pictures
from kernels.machines.gpu import compiler, toolchain
from kernels.machines.gpu.errors import GpuCompileError, overflow
from kernels.machines.optional import MissingPackage
from kernels.yours import gpu_words, machines

SQUARE = (np.ones((256, 256), jnp.bfloat16),) * 2
PRODUCT = machines.Asked(jnp.dot, SQUARE, "h100", "f", "f", 60.0, pictures=False, trips={})


@pytest.mark.cuda
def test_a_program_is_explained():
    def f(x, y):
        return -jax.nn.softmax(x @ y)

    made = machines.Gpu.explain(replace(PRODUCT, function=f, pictures=True))
    assert json.loads(json.dumps(made.as_json()))["kernels"][0]["loop"]["schedule"]
    facts = made.facts
    assert facts.seconds < facts.most and facts.bound in ("memory", "compute")
    assert "cublas-gemm-rewriter" in [changed["name"] for changed in facts.passes]
    assert facts.thunks[0].kind == "CublasLtMatmul"
    [kernel] = facts.kernels
    assert kernel.registers > 0 and kernel.occupancy.limiter and kernel.waves == 1
    text = str(made)
    for word in ("passes changed it", "registers", "occupancy", "stall", "µs, estimated"):
        assert word in text
    assert kernel.name in text and "svg" in made.pictures[0]["html"]
    longer, none = (
        gpu_words._verdict(replace(facts, figure=figure, band="−8 … +15 %"))
        for figure in (2e-3, None)
    )
    assert "No one figure" in none and longer.endswith("In one figure 2 ms (−8 … +15 %)")
    page = made.html(made)
    assert "least, µs" in page and "CublasLtMatmul" in page


@pytest.mark.cuda
def test_an_entry_is_explained_and_estimated_alike():
    words = ("matmul/mosaic_gpu", "-c", "h100", "-w", "square_bf16")
    explanation, estimate = (run(n, *words, columns=200).stdout for n in ("explain", "estimate"))
    low, high, unit = re.search(r"([\d.]+) to ([\d.]+) (µs), estimated", explanation).groups()
    assert re.search(f"({low} {unit}|{1e3 * float(low):.0f} ns) to {high} {unit}", estimate)
    assert "HGMMA" in explanation


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (overflow(327680, 232448), "asks for 327,680 bytes of shared memory and may have 232,448"),
        (GpuCompileError("crashed", "Mosaic GPU ended its process"), "Mosaic GPU ended its"),
        (GpuCompileError("timeout", "f for h100 had not finished"), "h100 had not finished"),
    ],
)
def test_what_the_compilers_refuse_is_one_line(error, words, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(compiler, "compile_program", refuse)
    made = machines.Gpu.explain(PRODUCT)
    lines = str(made).splitlines()
    assert made.facts.error["kind"] == error.kind and len(lines) == 2 and words in lines[1]
    assert words in made.html().replace("&#x27;", "'")


def test_an_unknown_chip_and_a_missing_tool_are_one_line(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"--chip is 'h200'; accepted: .*v5e.*h100"):
        machines.machine("h200")
    assert machines.machine("l4") is machines.Gpu
    monkeypatch.setenv(toolchain.FOLDER, str(tmp_path))
    with pytest.raises(MissingPackage, match=r"jax-cuda12-pjrt.*`make venv EXTRAS=gpu`"):
        machines.Gpu.ready()


@pytest.mark.slow
@pytest.mark.cuda
def test_explain_takes_a_gpu_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import jax.numpy as jnp\n\ndef norm(x):\n    return x - 1\n")
    words = ("mine.py:norm", "--args", "f32[512,512]", "--chip", "a100", "--json")
    done = run("explain", *words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["chip"] == "a100"
    assert len([*(tmp_path / "cache" / "answers").iterdir()]) == 1


def test_what_cannot_be_explained_is_said_in_a_line():
    def for_a_tpu(x, y):
        return pl.pallas_call(
            lambda x_ref, y_ref, o_ref: o_ref.__setitem__(..., x_ref[...]),
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            compiler_params=pltpu.CompilerParams(dimension_semantics=()),
        )(x, y)

    explain = lambda f, **more: machines.Gpu.explain(replace(PRODUCT, function=f, **more))
    with pytest.raises(ValueError, match=r"trips is body=3; accepted: none on h100"):
        explain(jnp.dot, trips={"body": 3})
    with pytest.raises(ValueError, match=r"function is f, which returns no array; accepted: one"):
        explain(lambda x, y: None)
    refused = explain(for_a_tpu).facts.error
    assert refused["kind"] == "unsupported"
    assert "is written for a TPU, with compiler_params of" in refused["message"]


@pytest.mark.cuda
def test_pictures_say_what_the_code_says():
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
    options = {"gemm": "triton", "tile": (128, 128, 32, 3, 8), "passes": False}
    kernel = gpu.compile(jnp.matmul, x, x, **options).kernel()
    full = kernel.occupancy
    assert f"{full.blocks} blocks, {full.warps} warps" in pictures.occupancy(kernel).says
    drawn = pictures.heat(kernel)
    loop = max(kernel.loops, key=lambda each: each.counts["HGMMA"])
    assert f"{len(loop.instructions)} instructions" in drawn.says
    assert drawn.svg.count(": stall ") == len(loop.instructions)
    player = pictures.waves({"128 × 128": kernel})
    [choice] = player.data["choices"]
    assert choice["blocks"] == 32 * 32 and choice["places"] == 132 * full.blocks
    assert (choice["waves"] - 1) * choice["places"] + choice["last"] == choice["blocks"]
    with pytest.raises(ValueError, match="kernels is empty"):
        pictures.waves({})
    with pytest.raises(ValueError, match="start is 'x'; accepted: 128 × 128"):
        pictures.waves({"128 × 128": kernel}, start="x")
