"""What the compilers refuse is said in one line of plain words."""

import json
import pickle
from pathlib import Path

import pytest

from kernels import gpu, optional
from kernels.machines.gpu.errors import translate
from kernels.machines.gpu.threads import run_on_threads

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
