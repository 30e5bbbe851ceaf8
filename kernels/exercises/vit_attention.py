"""Exercises of the chapter "Attention in a vision transformer"."""

import functools

from kernels.attention import reference
from kernels.backends.torch import TORCH
from kernels.exercises.exercise import Exercise, compared, prediction, problems
from kernels.ladder import Refused
from kernels.optional import require
from kernels.tpu.chips import CHIPS
from kernels.workload import Workload, values

WIDTH = 64  # of a head


def _traffic(pictures, tokens, heads):
    import jax

    from kernels.attention import vit_attention
    from kernels.pallas import calls

    with jax.enable_x64(False):
        qkv = jax.ShapeDtypeStruct((pictures, tokens, 3 * heads * WIDTH), "bfloat16")
        call = functools.partial(vit_attention, num_heads=heads, interpret=False)
        (found,) = calls(call, qkv)
    return found.traffic


def _packed(workload, rng):
    b, n, heads = (workload.sizes[name] for name in ("b", "n", "heads"))
    return values("normal", (b, n, 3 * heads * WIDTH), "float32", rng), heads


def _halves(answer, qkv, heads):
    torch = require("torch", "an exercise on PyTorch tensors")
    from kernels.compat.torch import watched

    ran = []  # the pictures that each call of the packed kernel had

    def note(operator, arguments):
        if operator.startswith("kernels.vit_attention_forward"):
            ran.append(len(arguments[0]))

    with watched(note):
        result = answer(torch.from_numpy(qkv), heads)
    if sum(ran) != len(qkv) // 2:
        told = f"{sum(ran)} of {len(qkv)}" if ran else "none"
        raise Refused(f"the packed kernel had {told} of the pictures, and not the second half")
    return compared(result)


EXERCISES = (
    prediction(
        "vit_traffic",
        "Write traffic(pictures, tokens, heads): the bytes that the packed forward kernel moves "
        "in HBM, in bfloat16, heads of 64.",
        _traffic,
        Workload("vit_b", {"pictures": 8, "tokens": 256, "heads": 12}),
        Workload("vit_tiny", {"pictures": 8, "tokens": 256, "heads": 3}, why="a head alone"),
        Workload("one", {"pictures": 1, "tokens": 128, "heads": 1}),
        hint="It reads q, k and v side by side, and writes the result; each once.",
    ),
    prediction(
        "vit_ridge",
        "Write ridge(flops, bytes_per_second): from how many tokens on the packed forward kernel "
        "is bound by its products, 4 D N² for a head, on a chip of so many operations and bytes a "
        "second, in bfloat16.",
        lambda flops, bytes_per_second: 2 * flops / bytes_per_second,
        *(
            Workload(name, {"flops": int(CHIPS[name].bf16_flops), "bytes": int(each)})
            for name in ("v5e", "v6e")
            for each in (CHIPS[name].hbm_bytes_per_second,)
        ),
        hint="How many operations are there for each byte of a head's q, k, v and result?",
    ),
    Exercise(
        "vit_halves",
        "Write halves(qkv, heads), [B, N, 3 H D] → [B, N, H D], in PyTorch: the first half of the "
        'pictures by implementation="torch", the second by "pallas"; of an odd number, the '
        "second half is the smaller.",
        reference.vit_attention,
        _halves,
        problems(
            _packed,
            Workload("even", {"b": 4, "n": 16, "heads": 2}),
            Workload("odd", {"b": 3, "n": 24, "heads": 3}, why="halves of unlike size"),
        ),
        rungs=("interpret",),
        backend=TORCH,
        magnitude=reference.vit_attention_magnitude,
        hint="A part of a batch begins where a picture does; torch.cat puts two parts together.",
    ),
)
