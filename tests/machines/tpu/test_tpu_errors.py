"""Error texts that JAX 0.10.2 and libtpu 0.0.42.1 gave, and the words they become."""

import json
import pickle
from pathlib import Path

import pytest

from kernels.machines.tpu.diagnose import TpuCompileError, translate

MIB = 1 << 20
# name → the kind, words of the message, and what the compiler said.
SAID = json.loads(Path(__file__).with_name("data").joinpath("errors.json").read_text())


@pytest.mark.parametrize("name", SAID)
def test_recorded_texts(name):
    kind, words, text = SAID[name]
    error = translate(text)
    assert error.kind == kind and words in str(error) and error.original == text
    assert "/" not in (error.source or "") and (kind != "block" or error.operand == "args[0]")


def test_vmem_says_how_much_and_what():
    buffers = ("input x", 64 * MIB), ("output o", 64 * MIB)
    error = translate(SAID["vmem"][-1], buffers=[*buffers])
    assert (error.asked_bytes, error.limit_bytes) == (128 * MIB, 16 * MIB)
    assert error.buffers == buffers and "input x 64.00 MiB" in str(error)
    error = translate(SAID["vmem_v5p"][-1])  # where the compiler itself lists them
    assert error.buffers == (("input 0", 32 * MIB), ("output 0", 32 * MIB))


def test_block_says_which_operand_and_what_would_be_legal_and_travels():
    error = translate(SAID["block8"][-1])
    assert error.operand == "args[0]" and error.source == "kernel.py:12"
    assert "multiple of 8 or all 100" in error.accepted
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.operand, again.original) == (str(error), "args[0]", error.original)
    assert len({error, again}) == 2


def test_an_unknown_text_is_kept():
    error = translate("INTERNAL: the cat walked over /home/me/x/kernel.py\nmore")
    assert error.kind == "other" and str(error) == "INTERNAL: the cat walked over kernel.py"
    assert error.original.endswith("more")
    assert isinstance(error, RuntimeError) and isinstance(error, TpuCompileError)
