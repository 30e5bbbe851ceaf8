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
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.figures.schema import Key, Named, Record, versions
from kernels.figures.store import add, read
from kernels.machines import checks
from kernels.machines.optional import require

DEPTH, BATCH = 12, 128  # ViT-B/16, and the batch of the published comparison
LEARNING_RATE = 1e-3
TIMEOUT = 1800.0  # seconds for one compilation
ATTENTIONS = ("torch", "torch_sdpa", "jax_flash_128", "jax_flash", "unpacked", "pallas")
# What records call those that are an implementation of the catalog, tuned.
RECORDED = {"jax_flash_128": ("jax_flash", {"block": 128})}
MODEL, WORKLOAD = "ViT-B/16", "ViT-B/16 training step"
TOTALS, PARTS = "estimated.csv", "vit_step.csv"


@dataclass(frozen=True)
class TrainingStep:
    """What one training step would take, by the compiler's own model.

    Args:
        attention: of ATTENTIONS.
        seconds, hbm_bytes: of the step.
        optimal_seconds: XLA's own estimate.
        parts: (where, what) → seconds and bytes, where "attention" is all that stands between the
            qkv and the proj Linear and their gradients, and what is "kernel", "relayout", "matmul"
            or "elementwise".
        estimate: of the compiled program; None where the step was read from results/.
    """

    attention: str
    depth: int
    batch: int
    chip: str
    seconds: float
    hbm_bytes: int
    optimal_seconds: float
    parts: dict[tuple[str, str], tuple[float, int]] = field(repr=False)
    estimate: Any = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> Key:
        """What the records of the step are of."""
        return _key(self.attention, self.depth, self.batch, self.chip)

    def spent(self, where: str = "", what: str = "") -> float:
        """Seconds of the parts in a place, of a kind, or both; of everything for neither."""
        return self._sum(0, where, what)

    def moved(self, where: str = "", what: str = "") -> int:
        """Bytes of the same parts, between HBM and the chip."""
        return self._sum(1, where, what)

    def _sum(self, which: int, where: str, what: str) -> Any:
        return sum(
            part[which]
            for (place, kind), part in self.parts.items()
            if where in ("", place) and what in ("", kind)
        )


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
) -> list[TrainingStep]:
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
        assert estimate.compiled
        optimal = _optimal(estimate.compiled.cost["optimal_seconds"])
        totals = estimate.seconds, estimate.hbm_bytes, optimal, _parts(estimate), estimate
        steps.append(TrainingStep(attention, depth, batch, chip, *totals))
    return steps


def _optimal(seconds: float) -> float:
    """XLA's bound without the −1 that each call counts of which it knows nothing; the step itself
    takes less than a second."""
    return seconds - math.floor(seconds)


def _parts(estimate: Any) -> dict[tuple[str, str], tuple[float, int]]:
    parts: dict[tuple[str, str], tuple[float, int]] = {}
    clock = estimate.cycles / estimate.seconds
    for op in estimate.ops:
        # Whatever kernel is in it attends; XLA's own ones do not say where they come from.
        inside = "attention" in op.origin or op.kind == "kernel"
        what = op.kind if op.kind in ("kernel", "relayout", "matmul") else "elementwise"
        key = "attention" if inside else "rest", what
        seconds, moved = parts.get(key, (0.0, 0))
        parts[key] = seconds + op.cycles / clock, moved + op.hbm_bytes
    return parts


def records(steps: Sequence[TrainingStep]) -> tuple[list[Record], list[Record]]:
    """The totals of `steps` and their parts, as records."""
    totals, parts = [], []
    for step in steps:
        key, estimate = step.key, step.estimate
        summed = "bytes between HBM and the chip, summed over ops"
        time = {"bound": estimate.bound, "method": estimate.method}
        optimal = {"quantity": "own estimate", "method": "XLA's optimal_seconds"}
        totals += [
            _record(key, step.seconds * 1e3, "ms", **time),
            _record(key, step.hbm_bytes / 1e9, "GB", quantity="traffic", method=summed),
            _record(key, step.optimal_seconds * 1e3, "ms", **optimal),
        ]
        for (where, what), (seconds, moved) in sorted(step.parts.items()):
            part = {"part": Named({"where": where, "what": what}), "method": "sum over ops"}
            parts.append(_record(key, seconds * 1e3, "ms", **part))
            parts.append(_record(key, moved / 1e9, "GB", quantity="traffic", **part))
    return totals, parts


def _record(key: Key, value: float, unit: str, **more: Any) -> Record:
    return key.record(
        workload=WORKLOAD,
        kind="estimated",
        value=round(value, 6),
        unit=unit,
        versions=versions("jax", "libtpu", "timm", "torchax"),
        **more,
    )


def recorded(
    *, depth: int = DEPTH, batch: int = BATCH, chip: str = "v5e"
) -> dict[str, TrainingStep]:
    """Attention → its step, as results/ has it; in the order of ATTENTIONS.

    Args:
        depth, batch: as in `step`.
        chip: that it was estimated for.

    Raises:
        ValueError: where one of ATTENTIONS is not recorded at this depth, batch and chip.
    """
    steps = {}
    totals, parts = read(TOTALS), read(PARTS)
    for attention in ATTENTIONS:
        key = _key(attention, depth, batch, chip)
        whole = {r.quantity: r.value for r in totals if r.key == key}
        if set(whole) != {"time", "traffic", "own estimate"}:
            checks.fail("step", f"{attention}, {key.text} on {chip}", "one that results/ has")
        figures = {
            (r.part["where"], r.part["what"], r.quantity): r.value for r in parts if r.key == key
        }
        split = {
            (where, what): (ms / 1e3, round(figures[where, what, "traffic"] * 1e9))
            for (where, what, quantity), ms in figures.items()
            if quantity == "time"
        }
        moved, optimal = round(whole["traffic"] * 1e9), whole["own estimate"] / 1e3
        seconds = whole["time"] / 1e3
        steps[attention] = TrainingStep(
            attention, depth, batch, chip, seconds, moved, optimal, split
        )
    return steps


def save(steps: Sequence[TrainingStep]) -> None:
    """Keep `steps` in results/."""
    for path, kept in zip((TOTALS, PARTS), records(steps), strict=True):
        add(path, kept)
