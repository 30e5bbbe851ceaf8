"""Exercises of the chapter "The XLA pipeline on a GPU"."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.bars import Bar
from kernels.lessons.exercises.exercise import Exercise, drawn, numbers
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.xla import XLA
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload, cases, values

GPUS = 8
STEPS = 2  # of a layer with a residual: its two products


def _sends(answer, m, k, n, *, interpret):
    """How often a layer sends whose weights lie as the reader says."""
    from kernels.machines import gpu

    cuts = answer()
    if not isinstance(cuts, tuple) or [type(cut) for cut in cuts] != [P, P]:
        raise Refused("two PartitionSpecs are wanted, of w1 and of w2")
    for name, cut in zip(("w1", "w2"), cuts, strict=True):
        if "x" not in cut:
            raise Refused(f"{name} is whole on each GPU, with {cut}")
    compiled = gpu.compile(
        lambda x, w1, w2: jnp.maximum(x @ w1, 0) @ w2,
        *(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((m, k), (k, n), (n, k))),
        mesh={"x": GPUS},
        in_specs=(P(), *cuts),
        out_specs=P(),
        passes=False,
    )
    kinds = [step.kind for step in compiled.thunks]
    sent = [kind for kind in kinds if kind.startswith(("All", "ReduceScatter", "Collective"))]
    if len(sent) > 1:
        raise Refused(f"it sends {len(sent)} times, {', '.join(sent)}; once is enough")
    return np.array(len(sent))


def _residual_magnitude(x, w1, b, w2):
    x, w1, b, w2 = map(np.abs, (x, w1, b, w2))
    return x + (x @ w1 + b) @ w2


def _losses(x, labels):
    above = x - x.max(-1, keepdims=True)
    return np.log(np.exp(above).sum(-1)) - above[np.arange(len(x)), labels]


def _labelled(workload, rng):
    rows, width = workload.sizes.values()
    labels = rng.integers(width, size=rows).astype(np.int32)
    return values("normal", (rows, width), "float32", rng), labels


def _steps(program):
    return len(judges.for_hopper(program).thunks)


def _one_kernel(programs):
    if (steps := _steps(programs[0])) > 1:
        raise Refused(f"{steps} steps on an H100, one kernel wanted")
    return "one kernel on an H100"


EXERCISES = (
    Exercise(
        "gpu_shards",
        "Write shards(), which returns how w1 [K, N] and w2 [N, K] of max(x w1, 0) w2 are cut over "
        f'the {GPUS} GPUs of an axis "x", a PartitionSpec each, so that the program sends once. '
        "The activations x and the result are whole on every GPU.",
        lambda m, k, n: np.array(1),
        numbers,
        cases("m k n", dtype="int64", layer=(1024, 512, 2048), square=(256, 1024, 1024)),
        call=_sends,
        backend=PYTHON,
        hint="What can each GPU do with its part of w1, so that its part of w2 needs no other?",
    ),
    Exercise(
        "gpu_residual",
        "Write residual(x, w1, b, w2), x - max(x w1 + b, 0) w2 in bfloat16, so that XLA makes "
        f"{STEPS} steps of it on an H100.",
        lambda x, w1, b, w2: x - np.maximum(x @ w1 + b, 0) @ w2,
        drawn("m k", "k n", "n", "n k"),
        cases("m k n", dtype="bfloat16", layer=(128, 64, 256), square=(128, 128, 128)),
        backend=XLA,
        magnitude=_residual_magnitude,
        bar=Bar(
            "steps on an H100",
            lambda tried: _steps(tried.program),
            bar=STEPS,
            ours=STEPS,
            workload=Workload("bar", {"m": 1024, "k": 512, "n": 2048}, "bfloat16"),
        ),
        hint="What may a library's call hold beside the product? Begin with the minus.",
    ),
    Exercise(
        "one_gpu_kernel",
        "Write losses(x, labels), minus the logarithm of the softmax of x at each row's label, "
        "[M, N] float32 and [M] int32 to [M], so that XLA makes one kernel of it on an H100.",
        _losses,
        _labelled,
        cases("m n", rows=(64, 1024), one=(1, 256)),
        backend=XLA,
        magnitude=lambda x, labels: np.abs(x).max(-1) + np.log(x.shape[1]),
        judge=_one_kernel,
        hint="Don't index, and don't add the maximum again. What picks a number out of its row?",
    ),
)
