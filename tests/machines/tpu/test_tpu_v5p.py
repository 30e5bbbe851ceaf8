"""Cores of a v5p and a v7x have half of a v5e's VMEM: kernels are planned for it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import weekly
from pallas_samples import shape

from kernels import tpu
from kernels.attention import attention, block_sparse_attention, vit_attention
from kernels.machines.tpu.export import export
from kernels.machines.tpu.plan import vmem_limit
from kernels.machines.tpu.pool import TpuProgram, compile_each
from kernels.matmul import block_sparse_matmul, matmul
from kernels.matmul.blocks import BlockSizes


def gradient(function):
    return jax.grad(lambda *args: function(*args).astype(jnp.float32).sum(), 0)


SQUARE, ROWS = (shape(8192, 8192),) * 2, (shape(20, dtype=jnp.int32),) * 2
HEADS = (shape(4, 8, 4096, 128),) * 3
LARGE_HEADS = (shape(1, 2, 8192, 256, dtype=jnp.float32),) * 3
VIT = shape(8, 1024, 3 * 12 * 64)
LONG = shape(2, 2048, 3 * 12 * 64)
vit = functools.partial(vit_attention, num_heads=12)
PROGRAMS = {
    "matmul": (matmul, SQUARE),
    "matmul_f32": (matmul, (shape(4096, 4096, dtype=jnp.float32),) * 2),
    "matmul_v5": (functools.partial(matmul, implementation="v5"), SQUARE),
    "matmul_gradient": (gradient(matmul), SQUARE),
    "block_sparse_matmul": (block_sparse_matmul, (shape(20, 512, 512), shape(16384, 16384), *ROWS)),
    "attention": (attention, HEADS),
    "attention_gradient": (gradient(functools.partial(attention, causal=True)), HEADS),
    "attention_f32_gradient": (gradient(attention), LARGE_HEADS),
    "block_sparse_attention": (
        functools.partial(block_sparse_attention, mask=np.eye(4) > 0),
        HEADS,
    ),
    "vit": (vit, (VIT,)),
    "vit_gradient": (gradient(vit), (VIT,)),
    "vit_long_gradient": (gradient(vit), (LONG,)),
}


SHORT_TO_COMPILE = ("matmul_gradient",)
OTHERS = [name for name in PROGRAMS if name not in SHORT_TO_COMPILE]


@pytest.mark.parametrize(
    ("name", "chip"), [*((name, "v7x") for name in PROGRAMS), *((name, "v5p") for name in OTHERS)]
)
def test_no_kernel_asks_for_more_than_the_chip_has(name, chip):
    function, arguments = PROGRAMS[name]
    calls = export(function, *arguments, chip=chip).calls
    assert calls
    for call in calls:
        held = sum(size for _, size in call.buffers())
        assert held <= vmem_limit(call, chip) <= tpu.CHIPS[chip].vmem_bytes


def test_a_sequence_that_only_a_v5e_holds_is_unpacked_for_a_v5p():
    names = {chip: [call.name for call in export(vit, LONG, chip=chip).calls] for chip in tpu.CHIPS}
    assert names["v5e"] == names["v6e"] == ["vit_attention_forward"]
    assert names["v5p"] == names["v7x"] == ["flash_attention_forward"]


def test_blocks_that_only_a_v5e_holds_are_refused_for_a_v5p():
    large = functools.partial(matmul, block=BlockSizes(1024, 8192, 1024))
    assert export(large, *SQUARE, chip="v5e").calls
    with pytest.raises(ValueError, match="at most 48 MiB in all on a v5p"):
        export(large, *SQUARE, chip="v5p")


@pytest.mark.parametrize(
    ("chip", "names"),
    [
        pytest.param("v5p", SHORT_TO_COMPILE, id="short"),
        weekly("v5p", OTHERS, id="long"),
        weekly("v7x", [*PROGRAMS], id="v7x"),
    ],
)
def test_the_compiler_takes_them(chip, names, scratch):
    programs = [
        export(function, *arguments, chip=chip, name=name)
        for name, (function, arguments) in PROGRAMS.items()
        if name in names
    ]
    for place, found in compile_each(programs, progress=False):
        assert isinstance(found, TpuProgram), f"{programs[place].name}: {found}"
