"""Lowering for a TPU without a TPU, and for a GPU without a GPU."""

import functools

import jax
import jax.numpy as jnp
import pytest

from kernels import gpu, tpu
from kernels.vector import add_vectors

V = jax.ShapeDtypeStruct((1000,), jnp.float32)


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_the_kernel_reaches_the_program(chip):
    lowered = tpu.lower(functools.partial(add_vectors, interpret=False), V, V, chip=chip)
    assert lowered.machine == chip and "tpu_custom_call" in lowered.text
    (kernel,) = lowered.kernels
    assert "vector.load" in kernel and "#tpu.memory_space<vmem>" in kernel


def test_the_triton_kernel_carries_triton_ir():
    f = functools.partial(add_vectors, implementation="triton", interpret=False)
    lowered = gpu.lower(f, V, V)
    assert "__gpu$xla.gpu.triton" in lowered.text
    (kernel,) = lowered.kernels
    assert all(word in kernel for word in ("tt.make_range", "tt.addptr", "tt.store"))
