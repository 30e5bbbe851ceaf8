"""Error texts that were recorded from the compiler, and the words they become."""

import json
from pathlib import Path

import pytest

from kernels.machines.tpu.diagnose import TpuCompileError, translate

MIB = 1 << 20

DATA = Path(__file__).with_name("data")
WORDS = json.loads((DATA / "words.json").read_text())


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
