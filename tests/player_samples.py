"""Calls, estimates and schedules that pictures and players are made of."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parent / "machines" / "tpu"))

import tpu_samples

from kernels import neuron, pictures
from kernels.attention import AttentionBlocks, attention
from kernels.giou.nki import giou_kernel
from kernels.machines.pallas import calls
from kernels.matmul import BlockSizes, block_sparse_matmul, matmul
from kernels.vector import add_vectors, iota

ADD = functools.partial(add_vectors, implementation="triton")
STEPS = {(128, 128, 128): 741, (256, 256, 256): 955, (512, 1024, 512): 4400}  # block → cycles


def blocked(*block, m=1024, k=1024, n=1024):
    x, y = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((m, k), (k, n)))
    return calls(functools.partial(matmul, block=BlockSizes(*block)), x, y)[0]


@functools.cache
def kinds():
    """A call of each kind that is drawn in another way."""
    return {
        "four": blocked(512, 1024, 512),
        "vmapped": calls(jax.vmap(matmul), *[jax.ShapeDtypeStruct((3, 64, 64), "float32")] * 2)[0],
        "smem": calls(lambda: iota(8))[0],
        "gpu": calls(ADD, *[jax.ShapeDtypeStruct((8,), jnp.int32)] * 2)[0],
    }


def sparse():
    places = ((3,), jnp.int32)
    shapes = ((3, 128, 128), jnp.float32), ((256, 256), jnp.float32), places, places
    return calls(block_sparse_matmul, *(jax.ShapeDtypeStruct(*each) for each in shapes))[0]


def causal(tokens=512):
    block = AttentionBlocks(tokens=128, tq=128, tk=128, heads=1)
    heads = [jax.ShapeDtypeStruct((1, 2, tokens, 128), jnp.bfloat16)] * 3
    return calls(functools.partial(attention, block=block, causal=True), *heads)[0]


@functools.cache
def on_neuron():
    shape = jax.ShapeDtypeStruct((256, 64, 4), jnp.float32)
    return neuron.estimate(giou_kernel, shape, shape)


def choices(chip="v5e"):
    """Block sizes → an estimate for a TPU."""
    return {
        "×".join(map(str, block)): tpu_samples.estimate(
            tpu_samples.kernel(tpu_samples.blocked(1024, 1024, 1024, *block), cycles), chip
        )
        for block, cycles in STEPS.items()
    }


def bundles(schedule=None, call=None):
    call = call or tpu_samples.blocked(512, 512, 512, 128, 128, 128)
    schedules = (schedule or tpu_samples.made_schedule(),)
    return pictures.schedule(
        tpu_samples.estimate(tpu_samples.kernel(call, 900), schedules=schedules)
    )
