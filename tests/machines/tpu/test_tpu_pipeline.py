"""A kernel's pipeline in time keeps the rules of two buffers, and adds up to its estimate."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpu_samples import blocked, kernel

from kernels import tpu
from kernels.matmul import BlockSizes, matmul

SIZES = [
    (512, 512, 512, 128, 128, 128),
    (512, 1024, 768, 256, 1024, 256),
    (400, 640, 300, 128, 128, 128),  # blocks that stick out
    (256, 256, 256, 256, 256, 256),  # one step
]


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_two_buffers(sizes, chip):
    call = blocked(*sizes)
    found = tpu.pipeline(kernel(call, 900), chip)
    rate = tpu.CHIPS[chip].hbm_bytes_per_cycle
    names = {o.name: o for o in call.operands}
    assert (found.inputs, found.outputs) == (("x", "y"), ("z",))
    assert len(found.steps) == len(call.programs)
    for name, operand in names.items():
        assert sum(m.size for m in found.moves if m.operand == name) == operand.traffic
    z, last = names["z"].starts, len(call.programs) - 1
    leaves = [i for i in range(last + 1) if i == last or (z[i] != z[i + 1]).any()]
    assert [m.step for m in found.moves if m.operand == "z"] == leaves
    for a, b in itertools.pairwise(found.moves):  # HBM carries one after another
        assert a.carried <= b.start + 1e-6
    for a, b in itertools.pairwise(found.steps):
        assert a.stop == b.idle <= b.start <= b.products <= b.stop
    for move in found.moves:
        assert move.carried - move.start == pytest.approx(move.size / rate)
        assert move.arrived >= move.carried
        if move.operand in found.inputs:
            assert move.arrived <= found.steps[move.step].start + 1e-6
            # It goes where the last but one stood, and is asked for before that step waits.
            assert move.step == 0 or move.start >= found.steps[move.step - 1].idle - 1e-6
        else:
            assert move.start >= found.steps[move.step].stop - 1e-6
    assert sum(found.parts.values()) == pytest.approx(found.cycles)
    flops = 2 * np.prod(sizes[:3])
    peak = flops / tpu.CHIPS[chip].bf16_flops * tpu.CHIPS[chip].clock_hz
    assert found.parts["products"] >= peak * 0.999  # blocks that stick out multiply more


def test_it_adds_up_to_the_model_of_the_estimate():
    """Where HBM does not bind, the time of all steps is what the compiler's model said."""
    call = blocked(4096, 4096, 4096, 512, 1024, 1024)
    found = tpu.pipeline(kernel(call, 8600))
    assert found.cycles == pytest.approx(8600 * len(call.programs), rel=0.01)
    assert found.parts["wait"] < 0.001 * found.cycles


def test_a_slow_copy_makes_the_core_wait():
    """128³ blocks: a copy takes longer than its step, though two are on their way."""
    found = tpu.pipeline(kernel(blocked(1024, 1024, 1024, 128, 128, 128), 525))
    assert 0.1 < found.parts["wait"] / found.cycles < 0.3
    assert found.cycles == pytest.approx(525 * 512, rel=0.02)


def test_what_stays_in_vmem_is_not_fetched():
    found = tpu.pipeline(kernel(blocked(512, 512, 512, 128, 128, 128), 900, resident=("x",)))
    assert found.inputs == ("y",) and {m.operand for m in found.moves} == {"y", "z"}


def test_what_is_no_kernel_is_refused():
    op = tpu.OpEstimate("fusion", "fusion", 1.0, 1, "", "HBM")
    with pytest.raises(ValueError, match="kernel is fusion, a fusion; accepted"):
        tpu.pipeline(op)


@pytest.mark.libtpu
def test_the_pipeline_of_a_compiled_kernel_takes_as_long_as_its_estimate():
    square = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    program = functools.partial(matmul, block=BlockSizes(256, 256, 256), interpret=False)
    estimate = tpu.estimate(program, square, square)
    (op,) = (op for op in estimate.ops if op.kind == "kernel")
    assert tpu.pipeline(op).cycles == pytest.approx(op.cycles, rel=0.03)
