"""The whole training step of a vision transformer on a TPU, for each way of attending.

    python -m validation vit-step [ATTENTION …] [--depth 12] [--batch 128] [--chip v5e]

estimates the steps and keeps them in results/: the totals in estimated.csv, where the time goes in
vit_step.csv.

A torch model becomes a JAX function through torchax; forward, loss, gradients and update are one
program, as torch_xla hands it to XLA too. The real TPU compiler compiles it, and its own model says
where the time goes. Nothing here is measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernels.figures.schema import Key, Named, Record
from kernels.figures.store import add, read
from kernels.machines import checks
from kernels.machines.optional import require
from validation.in_parts import ProgramInParts, part_records

__all__ = ["ATTENTIONS", "DEPTH", "estimate_steps", "recorded"]
DEPTH, BATCH = 12, 128  # ViT-B/16, and the batch of the published comparison
LEARNING_RATE = 1e-3
TIMEOUT = 1800.0  # seconds for one compilation
ATTENTIONS = ("torch", "torch_sdpa", "jax_flash_128", "jax_flash", "unpacked", "pallas")
# What records call those that are an implementation of the catalog, tuned.
RECORDED = {"jax_flash_128": ("jax_flash", {"block": 128})}
MODEL, WORKLOAD = "ViT-B/16", "ViT-B/16 training step"
TOTALS, PARTS = "estimated.csv", "vit_step.csv"


def _key(attention: str, depth: int, batch: int, chip: str) -> Key:
    implementation, tuning = RECORDED.get(attention, (attention, {}))
    return Key(
        operator="vit_attention",
        implementation=implementation,
        sizes=Named({"depth": depth, "batch": batch}),
        dtype="bfloat16",
        options=Named({"model": MODEL}),
        tuning=Named(tuning),
        pass_="step",
        chip=chip,
    )


def step(
    attention: str, *, depth: int = DEPTH, batch: int = BATCH
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step as a JAX function, and the shapes that it takes.

    The step takes parameters, images [B, 3, 256, 256] in float32 and labels [B] in int32; it
    returns new parameters and the loss. Parameters are float32 and products bfloat16, as under
    torch.autocast; the update is SGD's.

    Args:
        attention: "torch", "torch_sdpa", "jax_flash", "unpacked" or "pallas", as in
            kernels.attention.torch; "jax_flash" is JAX's flash kernel at its best blocks, and as
            torch_xla calls it, in blocks of all 256 tokens; "jax_flash_128" is the same kernel at
            its own default, blocks of 128.
        depth: blocks of the model.
        batch: pictures in a step.

    Raises:
        ValueError: for an unknown attention, and for a depth or batch below 1.
        MissingPackage: without torchax, timm or optax.
    """
    checks.one_of("attention", attention, ATTENTIONS)
    checks.positive_int("depth", depth)
    checks.positive_int("batch", batch)
    torchax = require("torchax", "compiling a whole torch model as one JAX program")
    optax = require("optax", "the optimiser of a training step")
    import jax
    import jax.numpy as jnp
    from torch.nn import functional as F
    from torchax import amp

    from kernels.attention.vit import IMAGE, vision_transformer
    from kernels.machines.compat.torch import autocast_of_torchax

    # A function that is not named here is computed in float32.
    narrow = (F.linear, F.conv2d, F.scaled_dot_product_attention)
    # The published model has no bias in its qkv Linear.
    attend = functools.partial(_attend, attention)
    model = vision_transformer(attend, depth=depth, qkv_bias=False, weight_init="skip")
    weights, forward = torchax.extract_jax(model)
    optimiser = optax.sgd(LEARNING_RATE)

    def train(weights, images, labels):
        def loss(weights):
            with autocast_of_torchax(narrow), amp.autocast("jax"):
                logits = forward(weights, (images,)).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        updates, _ = optimiser.update(gradients, optimiser.init(weights), weights)
        return optax.apply_updates(weights, updates), value

    train.__name__ = "vit_step " + attention
    shapes = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), weights)
    images = jax.ShapeDtypeStruct((batch, 3, IMAGE, IMAGE), jnp.float32)
    return train, (shapes, images, jax.ShapeDtypeStruct((batch,), jnp.int32))


def _attend(attention: str, qkv: Any, num_heads: int) -> Any:
    """The attention of a block, under a name that the compiled program still knows."""
    import jax
    from torchax.interop import call_jax

    from kernels.attention.torch import merge_heads, split_heads, vit_attention

    with jax.named_scope("attention"):
        if attention != "jax_flash_128":
            return vit_attention(qkv, num_heads, implementation=attention, interpret=False)
        from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

        q, k, v = split_heads(qkv, num_heads)
        return merge_heads(call_jax(flash_attention, q, k, v, sm_scale=q.shape[-1] ** -0.5))


def estimate_steps(
    attentions: Sequence[str] = ATTENTIONS,
    *,
    depth: int = DEPTH,
    batch: int = BATCH,
    chip: str = "v5e",
    timeout: float = TIMEOUT,
) -> list[ProgramInParts]:
    """Estimate a training step for each of `attentions`, in their order.

    The compilations run side by side, a minute or so each at full depth.

    Args:
        attentions: of ATTENTIONS.
        depth, batch: as in `step`.
        chip: to compile for.
        timeout: seconds for one compilation.

    Raises:
        ValueError, MissingPackage: as `step` does.
        TpuCompileError: for what the compiler refuses.
    """
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate import estimate_all
    from kernels.machines.tpu.export import export

    programs = []
    for attention in attentions:
        function, shapes = step(attention, depth=depth, batch=batch)
        programs.append(export(function, *shapes, chip=chip))
    steps = []
    estimates = estimate_all(programs, timeout=timeout, large=True)
    for attention, estimate in zip(attentions, estimates, strict=True):
        if isinstance(estimate, TpuCompileError):
            raise estimate
        key = _key(attention, depth, batch, chip)
        steps.append(ProgramInParts(attention, key, tuple(_records(key, estimate)), estimate))
    return steps


def _records(key: Key, estimate: Any) -> Iterator[Record]:
    """Of a step and of its parts: "attention" is all that stands between the qkv and the proj
    Linear and their gradients, and "rest" the rest."""
    # Whatever kernel is in it attends; XLA's own ones do not say where they come from.
    inside = lambda op: "attention" in op.origin or op.kind == "kernel"
    place = lambda op: "attention" if inside(op) else "rest"
    return part_records(key, estimate, WORKLOAD, place, "jax", "libtpu", "timm", "torchax")


def recorded(
    *, depth: int = DEPTH, batch: int = BATCH, chip: str = "v5e"
) -> dict[str, ProgramInParts]:
    """Attention → its step, as results/ has it; in the order of ATTENTIONS.

    Args:
        depth, batch: as in `step`.
        chip: that it was estimated for.

    Raises:
        ValueError: where one of ATTENTIONS is not recorded at this depth, batch and chip.
    """
    steps = {}
    known = [*read(TOTALS), *read(PARTS)]
    for attention in ATTENTIONS:
        key = _key(attention, depth, batch, chip)
        step = ProgramInParts.recorded(attention, key, known)
        if step is None:
            checks.fail("step", f"{attention}, {key.text} on {chip}", "one that results/ has")
        steps[attention] = step
    return steps


def save(steps: Sequence[ProgramInParts]) -> None:
    """Keep `steps` in results/."""
    records = [record for step in steps for record in step.records]
    add(TOTALS, [record for record in records if not record.part])
    add(PARTS, [record for record in records if record.part])
