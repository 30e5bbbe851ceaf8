"""Error texts that were recorded from the compiler, and the words they become."""

import pytest

from kernels.machines.tpu.diagnose import TpuCompileError, translate

MIB = 1 << 20

WORDS = {
    "vmem": ("vmem", "128.00 MiB of VMEM and may have 16.00 MiB"),
    "vmem_v5p": ("vmem", "64.00 MiB of VMEM and may have 63.94 MiB"),
    "block8": ("block", "second-to-last dimension, 5, must be a multiple of 8 or all 100"),
    "block128": ("block", "last dimension, 100, must be a multiple of 128 or all 512"),
    "rank": ("block", "has 1 dimensions, and its array (64, 512) has 2"),
    "sort": ("unsupported", "no `sort`"),
    "cumsum": ("unsupported", "no `cumsum`"),
    "rev": ("unsupported", "no `rev`"),
    "while_dyn": ("unsupported", "no `dynamic_slice`"),
    "f16": ("unsupported", "cannot load f16"),
    "f64": ("unsupported", "no f64 arrays"),
    "complex": ("unsupported", "no vectors of this dtype"),
    "int8mm": ("unsupported", "adds up in 32 bits"),
    "v3_bf16": ("unsupported", "vector<128x128xbf16>"),
    "i64index": ("unsupported", "jax_enable_x64 is on"),
    "dynlane": ("alignment", "dimension 1 must be a multiple of 128"),
    "scalar_store": ("memory space", "Cannot store scalars to VMEM"),
    "smem": ("memory space", "Can only load scalars from SMEM"),
    "hbm": ("memory space", "make_async_copy"),
    "const": ("constants", "f32[128]"),
}


@pytest.mark.parametrize("name", WORDS)
def test_recorded_texts(errors, name):
    kind, words = WORDS[name]
    error = translate(errors[name])
    assert error.kind == kind
    assert words in str(error)
    assert error.original == errors[name]
    assert "/" not in (error.source or "")


def test_vmem_says_how_much_and_what(errors):
    error = translate(errors["vmem"], buffers=[("input x", 64 * MIB), ("output o", 64 * MIB)])
    assert (error.asked_bytes, error.limit_bytes) == (128 * MIB, 16 * MIB)
    assert error.buffers == (("input x", 64 * MIB), ("output o", 64 * MIB))
    assert "input x 64.00 MiB" in str(error)
    error = translate(errors["vmem_v5p"])  # where the compiler itself lists them
    assert error.buffers == (("input 0", 32 * MIB), ("output 0", 32 * MIB))


def test_block_says_which_operand_and_what_would_be_legal(errors):
    error = translate(errors["block8"])
    assert error.operand == "args[0]"
    assert "multiple of 8 or all 100" in error.accepted
    assert error.source == "kernel.py:12"


def test_an_unknown_text_is_kept():
    error = translate("INTERNAL: the cat walked over /home/me/x/kernel.py\nmore")
    assert error.kind == "other" and str(error) == "INTERNAL: the cat walked over kernel.py"
    assert error.original.endswith("more")
    assert isinstance(error, RuntimeError) and isinstance(error, TpuCompileError)


def test_it_travels_between_processes(errors):
    import pickle

    error = translate(errors["block8"])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.operand, again.original) == (str(error), "args[0]", error.original)
    assert len({error, again}) == 2
