"""What the compilers refuse is said in one line of plain words."""

import pickle

import pytest

from kernels import gpu
from kernels.machines.gpu.errors import translate

# As jax 0.10.2, its plugin and ptxas 12.9 said it.
SAID = {
    "shared memory": (
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 327680, available: "
        "232448, context: []",
        "asks for 327,680 bytes of shared memory and may have 232,448",
    ),
    "shared memory, Mosaic": (
        "Mosaic GPU kernel exceeds available shared memory: smem_bytes=1015904 > "
        "max_smem_bytes=232448",
        "asks for 1,015,904 bytes",
    ),
    "shared memory, ptxas": (
        "ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)",
        "asks for 65,536 bytes of shared memory and may have 49,152",
    ),
    "block": (
        "The Pallas Triton lowering currently requires that all operations have array arguments "
        "and results whose size is a power of 2. Encountered an array of shape (96, 64)",
        "an array of shape (96, 64)",
    ),
    "registers": ("Compilation result discarded due to register spilling", "spills registers"),
    "unsupported": (
        "NOT_FOUND: No FFI handler registered for cusolver_potrf_ffi on a platform CUDA",
        "cusolver_potrf_ffi",
    ),
    "other, ptxas": ("x\nptxas fatal   : Value 'sm_1' is not defined", "ptxas refuses it: Value"),
    "other": ("\n INVALID_ARGUMENT: No such compile option: 'x'\nmore", "No such compile option"),
}


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
