"""The whole training step of a vision transformer on a TPU, for each way of attending.

    python -m kernels.bench.vit_step [ATTENTION …] [--depth 12] [--batch 128] [--chip v5e]

estimates the steps and keeps them in results/: the totals in estimated.csv, where the time goes in
vit_step.csv.

A torch model becomes a JAX function through torchax; forward, loss, gradients and update are one
program, as torch_xla hands it to XLA too. The real TPU compiler compiles it, and its own model says
where the time goes. Nothing here is measured.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from kernels import checks
from kernels.bench.records import Record, add, versions
from kernels.optional import require

DEPTH, BATCH = 12, 128  # ViT-B/16, and the batch of the published comparison
LEARNING_RATE = 1e-3
TIMEOUT = 1800.0  # seconds for one compilation
ATTENTIONS = ("native", "sdpa", "shipped 128", "shipped", "flash", "packed")
OPTIMAL = "XLA's lower bound"  # of a record's workload
TOTALS, PARTS = "estimated.csv", "vit_step.csv"


@dataclass(frozen=True)
class Step:
    """What one training step would take, by the compiler's own model.

    attention: of ATTENTIONS. seconds, hbm_bytes: of the step. optimal_seconds: XLA's own lower
    bound. parts: (where, what) → seconds and bytes, where "attention" is all that stands between
    the qkv and the proj Linear and their gradients, and what is "kernel", "relayout", "matmul" or
    "elementwise".
    """

    attention: str
    depth: int
    batch: int
    chip: str
    seconds: float
    hbm_bytes: int
    optimal_seconds: float
    parts: dict[tuple[str, str], tuple[float, int]] = field(repr=False)
    estimate: Any = field(repr=False, compare=False)

    @property
    def workload(self) -> str:
        """The workload's name in the records."""
        return f"ViT-B/16 training step depth={self.depth} batch={self.batch} bfloat16"

    def spent(self, where: str = "", what: str = "") -> float:
        """Seconds of the parts in a place, of a kind, or both; of everything for neither."""
        return sum(
            seconds
            for (place, kind), (seconds, _) in self.parts.items()
            if where in ("", place) and what in ("", kind)
        )


def step(
    attention: str, *, depth: int = DEPTH, batch: int = BATCH
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step as a JAX function, and the shapes that it takes.

    attention: "native", "sdpa", "shipped", "flash" or "packed", as in kernels.attention.torch;
    "shipped" is JAX's flash kernel at its best blocks, and as torch_xla calls it, in blocks of all
    256 tokens; "shipped 128" is the same kernel at its own default, blocks of 128.
    The step takes parameters, images [B, 3, 256, 256] in float32 and labels [B] in int32; it
    returns new parameters and the loss. Parameters are float32 and products bfloat16, as under
    torch.autocast; the update is SGD's. Raises ValueError for an unknown attention, MissingPackage
    without torchax, timm or optax.
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
    from kernels.compat.torch import autocast_of_torchax

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
        if attention != "shipped 128":
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
) -> list[Step]:
    """Estimate a training step for each of `attentions`, in their order.

    The compilations run side by side, a minute or so each at full depth. Raises as `step` does,
    and TpuCompileError for what the compiler refuses.
    """
    from kernels.tpu.diagnose import TpuCompileError
    from kernels.tpu.estimate import estimate_all
    from kernels.tpu.export import export

    programs = []
    for attention in attentions:
        function, shapes = step(attention, depth=depth, batch=batch)
        programs.append(export(function, *shapes, chip=chip))
    found = []
    estimates = estimate_all(programs, timeout=timeout, large=True)
    for attention, estimate in zip(attentions, estimates, strict=True):
        if isinstance(estimate, TpuCompileError):
            raise estimate
        found.append(
            Step(
                attention,
                depth,
                batch,
                chip,
                estimate.seconds,
                estimate.hbm_bytes,
                _optimal(estimate.compiled.cost["optimal_seconds"]),
                _parts(estimate),
                estimate,
            )
        )
    return found


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


def records(steps: Sequence[Step]) -> tuple[list[Record], list[Record]]:
    """The totals of `steps` and their parts, as records."""
    totals, parts = [], []
    for each in steps:

        def record(value: float, unit: str, source: str, part: str = "", each: Step = each):
            return Record(
                "vit_attention",
                each.attention,
                each.workload + (f" | {part}" if part else ""),
                "estimated",
                round(value, 6),
                unit,
                each.chip,
                versions("jax", "libtpu", "timm", "torchax"),
                datetime.date.today().isoformat(),
                source,
            )

        method = f"{each.estimate.bound} binds; {each.estimate.method}"
        totals += [
            record(each.seconds * 1e3, "ms", method),
            record(each.hbm_bytes / 1e9, "GB", "bytes between HBM and the chip, summed over ops"),
            record(each.optimal_seconds * 1e3, "ms", "XLA's optimal_seconds", OPTIMAL),
        ]
        for (where, what), (seconds, moved) in sorted(each.parts.items()):
            part = f"{where}: {what}"
            parts.append(record(seconds * 1e3, "ms", "sum over ops", part))
            parts.append(record(moved / 1e9, "GB", "sum over ops", part))
    return totals, parts


def save(steps: Sequence[Step]) -> None:
    """Keep `steps` in results/."""
    for path, kept in zip((TOTALS, PARTS), records(steps), strict=True):
        add(path, kept)


def table(steps: Sequence[Step]) -> str:
    """The steps as a Markdown table, each against the first."""
    lines = [
        "| attention | step (ms) | against the first | attention (ms) | its relayouts (ms) "
        "| HBM (GB) | XLA's bound (ms) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in steps:
        lines.append(
            f"| {each.attention} | {each.seconds * 1e3:.1f} "
            f"| {each.seconds / steps[0].seconds - 1:+.1%} "
            f"| {each.spent('attention') * 1e3:.1f} "
            f"| {each.spent('attention', 'relayout') * 1e3:.1f} "
            f"| {each.hbm_bytes / 1e9:.1f} | {each.optimal_seconds * 1e3:.1f} |"
        )
    return "\n".join(lines)


def main(
    attentions: Annotated[list[str] | None, typer.Argument(help=", ".join(ATTENTIONS))] = None,
    depth: int = DEPTH,
    batch: int = BATCH,
    chip: str = "v5e",
) -> None:
    """Estimate the steps, keep them in results/, and show them."""
    steps = estimate_steps(attentions or ATTENTIONS, depth=depth, batch=batch, chip=chip)
    save(steps)
    print(table(steps))


if __name__ == "__main__":
    typer.run(main)
