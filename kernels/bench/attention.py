"""What attention costs by estimate: shapes × implementations × forward and training × chips."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SHAPES = (
    (64, 12, 197, 64),  # ViT-B/16 at 224 pixels; XLA would lay a batch of 128 in the lanes
    (128, 12, 256, 64),  # and at 256
    (4, 8, 512, 64),
    (4, 8, 1024, 64),
    (4, 8, 1024, 128),
    (4, 8, 2048, 64),
    (4, 8, 4096, 64),
    (4, 8, 4096, 128),
)
VIT_SHAPES = (  # B, N, H, D, packed
    (128, 197, 12, 64),
    (128, 256, 12, 64),
    (32, 1024, 12, 64),
)
IMPLEMENTATIONS = ("xla", "sdpa", "jax_flash", "pallas")
CHIPS = ("v5e", "v6e")


class Case(NamedTuple):
    """A program to estimate; program() gives a function and the shapes it takes."""

    operator: str
    implementation: str
    workload: str
    chip: str
    program: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


def cases() -> Iterator[Case]:
    """Every case, in bfloat16; "forward" computes o, "training" o and the gradients of q, k, v."""
    for b, h, n, d in SHAPES:
        for implementation in IMPLEMENTATIONS:
            if implementation == "jax_flash" and n % 128:
                continue  # it refuses
            for what in ("forward", "training"):
                for causal in (False, True) if n == 1024 else (False,):
                    workload = f"B={b} H={h} N={n} D={d} bfloat16 {what}" + " causal" * causal
                    make = functools.partial(_program, (b, h, n, d), implementation, what, causal)
                    for chip in CHIPS:
                        yield Case("attention", implementation, workload, chip, make)


def _program(
    shape: tuple[int, ...], implementation: str, what: str, causal: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    from kernels.attention import attention

    forward = functools.partial(
        attention, implementation=implementation, causal=causal, interpret=False
    )

    def training(q: Any, k: Any, v: Any, do: Any) -> tuple[Any, ...]:
        o, back = jax.vjp(forward, q, k, v)
        return o, *back(do)

    x = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    return (forward, (x,) * 3) if what == "forward" else (training, (x,) * 4)


def vit_cases() -> Iterator[Case]:
    """The same for vit_attention; "backward" is dqkv from what the forward kernels saved."""
    for b, n, h, d in VIT_SHAPES:
        for implementation in IMPLEMENTATIONS:
            if implementation == "jax_flash" and n % 128:
                continue
            for what in ("forward", "backward"):
                workload = f"B={b} N={n} H={h} D={d} bfloat16 {what}"
                make = functools.partial(_vit_program, (b, n, h, d), implementation, what)
                for chip in CHIPS:
                    yield Case("vit_attention", implementation, workload, chip, make)


def _vit_program(
    shape: tuple[int, ...], implementation: str, what: str
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    from kernels.attention import vit_attention

    b, n, h, d = shape
    qkv = jax.ShapeDtypeStruct((b, n, 3 * h * d), jnp.bfloat16)
    forward = functools.partial(
        vit_attention, num_heads=h, implementation=implementation, interpret=False
    )
    if what == "forward":
        return forward, (qkv,)
    saved, tree = jax.tree.flatten(jax.eval_shape(lambda qkv: jax.vjp(forward, qkv)[1], qkv))
    saved = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in saved]

    def backward(do: Any, *saved: Any) -> Any:
        return jax.tree.unflatten(tree, saved)(do)[0]

    return backward, (jax.ShapeDtypeStruct((b, n, h * d), jnp.bfloat16), *saved)
