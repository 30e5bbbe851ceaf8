"""Attention on PyTorch tensors: the Pallas kernels as operators of torch.

Each kernel, forward and backward, is an operator (torch.library.custom_op) with a fake and, the
forward ones, an autograd formula. So autograd, torch.compile and torch.export know what a kernel
makes and what it keeps. An operator runs where its tensors are: on a CPU it is interpreted, and
reads and writes torch's own memory through DLPack; on an XLA device it becomes a part of
torch_xla's graph. Tensors of torchax are JAX arrays already, and go straight to the JAX function.
"""

import functools
from typing import Any

import jax
from jax import export

from kernels.attention import operator, packed, pallas
from kernels.attention.arguments import check_heads, check_packed
from kernels.attention.layout import tensor_heads as split_heads
from kernels.attention.layout import tensor_rows as merge_heads
from kernels.machines import checks
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH

torch = require("torch", "attention on PyTorch tensors")

__all__ = ["attention", "merge_heads", "split_heads", "vit_attention"]

# Those that take tensors: PyTorch's own run on any device, kernels on those that they say.
ATTENTION, VIT_ATTENTION = (
    {i.name: i for i in declared.implementations if i.backend is TORCH or i.devices}
    for declared in (operator.ATTENTION, operator.VIT_ATTENTION)
)
# Loaded here, since torch.compile cannot trace an import.
_OF_TORCH = {name: i.function for name, i in ATTENTION.items() if i.backend is TORCH}


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    implementation: str = "pallas",
    causal: bool = False,
    scale: float | None = None,
    interpret: bool | None = None,
) -> Any:
    """softmax(q kᵀ · scale) v, for each head of each sequence, on PyTorch tensors.

    Args:
        q: [B, H, N, D], float32 or bfloat16.
        k, v: [B, H, M, D], the same dtype on the same device.
        implementation: of kernels.attention.attention: "pallas" is our flash kernel, on a CPU, an
            XLA device or torchax, for contiguous tensors; "jax_flash" the one that comes with
            torch_xla and JAX, on the last two; "torch" is written out in torch; "torch_sdpa" is
            F.scaled_dot_product_attention.
        causal: position n attends to 0 … n.
        scale: None is D ** -0.5.
        interpret: None interprets the kernel where there is no TPU.

    Returns:
        [B, H, N, D], same dtype. Differentiable.

    Raises:
        ValueError: for another rank, shape, dtype, device, layout in memory, or implementation.
    """
    checks.one_of("implementation", implementation, ATTENTION)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check(name, tensor, 4, ATTENTION[implementation].devices)
        checks.same(f"{name}.device", str(tensor.device), "q", str(q.device))
    scale = check_heads(q, k, v, scale, checks.TENSORS)
    checks.one_of("causal", causal, (False, True))
    if implementation in _OF_TORCH:
        return _OF_TORCH[implementation](q, k, v, causal=causal, scale=scale)
    interpret = _interprets(interpret, q.device.type)
    if q.device.type == "jax":
        kernel = ATTENTION[implementation].function
        return _on_arrays(kernel, q, k, v, causal=causal, scale=scale, interpret=interpret)
    if not ATTENTION[implementation].shipped_with:
        return attention_forward(q, k, v, causal, scale, interpret)[0]
    if interpret:
        accepted = "it on a TPU alone: it cannot be interpreted"
        checks.fail("implementation", repr(implementation), accepted)
    from torch_xla.experimental.custom_kernel import flash_attention

    # Its own scale is 1.0, not D ** -0.5.
    return flash_attention(q, k, v, causal=causal, sm_scale=scale)


def vit_attention(
    qkv: Any,
    num_heads: int,
    *,
    implementation: str = "pallas",
    scale: float | None = None,
    interpret: bool | None = None,
) -> Any:
    """Attention in a vision transformer: from the result of its qkv Linear to its proj Linear.

    Args:
        qkv: [B, N, 3·H·D], float32 or bfloat16; q, k and v follow each other, and so do the heads
            in each of them.
        num_heads: H.
        implementation: of kernels.attention.vit_attention: "pallas" is the packed kernel, which
            reads qkv as it is; for a sequence too long for it it does what "unpacked" does. The
            others are those of `attention`, "unpacked" being its "pallas": before them the heads
            are moved out of the rows, and after them back.
        scale, interpret: as for `attention`, and so are gradients.

    Returns:
        [B, N, H·D], same dtype.

    Raises:
        ValueError: as `attention` does.
    """
    checks.one_of("implementation", implementation, VIT_ATTENTION)
    devices = VIT_ATTENTION[implementation].devices
    _check("qkv", qkv, 3, devices)
    scale = check_packed(qkv, num_heads, scale, checks.TENSORS)
    if implementation != "pallas":
        q, k, v = split_heads(qkv, num_heads)
        if devices:
            q, k, v = (t.contiguous() for t in (q, k, v))
        kernel = "pallas" if implementation == "unpacked" else implementation
        o = attention(q, k, v, implementation=kernel, scale=scale, interpret=interpret)
        return merge_heads(o)
    interpret = _interprets(interpret, qkv.device.type)
    if qkv.device.type == "jax":
        arguments = {"scale": scale, "interpret": interpret}
        return _on_arrays(operator.vit_attention, qkv, num_heads, **arguments)
    return vit_attention_forward(qkv, num_heads, scale, interpret)[0]


# --- what is checked ----------------------------------------------------------------------------


def _check(name: str, tensor: Any, rank: int, devices: tuple[str, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        checks.fail(name, f"a {type(tensor).__name__}", f"a torch.Tensor of rank {rank}")
    checks.array(name, tensor, rank=rank, dtypes=checks.TENSORS)
    if not devices:
        return
    checks.one_of(f"{name}.device", tensor.device.type, devices)
    # On an XLA device and in torchax, strides say nothing of the memory.
    if tensor.device.type == "cpu" and not tensor.is_contiguous():
        checks.fail(
            f"{name}.stride()", tensor.stride(), f"a contiguous tensor: {name}.contiguous()"
        )


def _like(tensor: Any) -> Any:
    """The shape and the dtype of a tensor, as JAX has them."""
    return jax.ShapeDtypeStruct(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _interprets(interpret: bool | None, device: str) -> bool | None:
    """Whether a kernel is interpreted; for torchax, None lets JAX decide."""
    if interpret not in (None, True, False):
        checks.fail("interpret", repr(interpret), "None, True or False")
    if device == "cpu":
        if interpret is False:
            checks.fail("interpret", interpret, "None or True, for tensors on a CPU")
        return True
    if device == "xla" and interpret is None:
        from torch_xla import runtime

        return runtime.device_type() != "TPU"
    return interpret


def _on_arrays(function: Any, *arguments: Any, **options: Any) -> Any:
    """A JAX function of the arrays that torchax's tensors are; JAX differentiates it."""
    from torchax.interop import call_jax

    return call_jax(function, *arguments, **options)


# --- the kernels as operators -------------------------------------------------------------------


@functools.cache
def _bound(function: Any, *numbers: Any) -> Any:
    """`function` of its tensors alone, compiled; always the same object, as torch_xla's cache
    asks for."""
    return jax.jit(lambda *tensors: function(*tensors, *numbers))


@functools.cache
def _for_tpu(function: Any, numbers: tuple[Any, ...], shapes: tuple[Any, ...]) -> Any:
    """The same, lowered for a TPU wherever JAX itself is: the TPU belongs to torch_xla here."""
    exported = export.export(
        _bound(function, *numbers),
        platforms=["tpu"],
        disabled_checks=[export.DisabledSafetyCheck.platform()],
    )
    return exported(*shapes).call


def _operator(name: str, schema: str, function: Any, fake: Any) -> Any:
    """The operator kernels::NAME of a JAX function, for tensors on a CPU and on XLA devices.

    schema: the tensors, then numbers, which the function takes by their names, and of which the
    last says whether the kernel is interpreted.
    """
    words = schema.partition(")")[0].strip("(").split(", ")
    count = sum(word.startswith("Tensor ") for word in words)
    names = [word.split()[1] for word in words[count:]]

    def by_place(*arguments: Any) -> Any:
        numbers = dict(zip(names, arguments[count:], strict=True))
        return function(*arguments[:count], **numbers)

    def on_cpu(*arguments: Any) -> Any:
        arrays = [jax.dlpack.from_dlpack(t.detach()) for t in arguments[:count]]
        results = _bound(by_place, *arguments[count:])(*arrays)
        # torch may write into the arguments as soon as this returns.
        return jax.tree.map(torch.from_dlpack, jax.block_until_ready(results))

    def on_xla(*arguments: Any) -> Any:
        from torch_xla.core.xla_builder import call_jax

        tensors, numbers = arguments[:count], arguments[count:]
        if numbers[-1]:
            compiled = _bound(by_place, *numbers)
        else:
            compiled = _for_tpu(by_place, numbers, tuple(map(_like, tensors)))
        results = call_jax(compiled, tensors)
        return results if isinstance(results, torch.Tensor) else tuple(results)

    operator = torch.library.custom_op(
        f"kernels::{name}", on_cpu, mutates_args=(), device_types="cpu", schema=schema
    )
    operator.register_kernel("xla", on_xla)
    operator.register_fake(fake)
    return operator


def _pair(
    name: str, tensors: tuple[str, ...], numbers: str, kernels: Any, fake: Any
) -> tuple[Any, Any]:
    """The operators NAME_forward and NAME_backward, of which the second is the first's gradient.

    Args:
        name: of both.
        tensors, numbers: that the first takes, as in a schema.
        kernels: the module with the JAX functions `forward` and `backward`: the first gives o and
            lse, the second takes them and do besides, and gives a gradient for each tensor.
        fake: of the first; the gradients are like the tensors.
    """
    operands = ", ".join(f"Tensor {tensor}" for tensor in tensors)
    count, results = len(tensors), ", ".join(["Tensor"] * len(tensors))
    results = results if count == 1 else f"({results})"

    def like_them(*arguments: Any) -> Any:
        likes = tuple(map(torch.empty_like, arguments[:count]))
        return likes if count > 1 else likes[0]

    forward = _operator(
        f"{name}_forward", f"({operands}, {numbers}) -> (Tensor, Tensor)", kernels.forward, fake
    )
    backward = _operator(
        f"{name}_backward",
        f"({operands}, Tensor o, Tensor lse, Tensor do, {numbers}) -> {results}",
        kernels.backward,
        like_them,
    )

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.numbers = inputs[count:]
        ctx.save_for_backward(*inputs[:count], *output)
        ctx.mark_non_differentiable(output[1])

    def gradient(ctx: Any, do: Any, _: Any) -> tuple[Any, ...]:
        gradients = backward(*ctx.saved_tensors, do.contiguous(), *ctx.numbers)
        gradients = gradients if count > 1 else (gradients,)
        return *gradients, *(None for _ in ctx.numbers)

    forward.register_autograd(gradient, setup_context=save)
    return forward, backward


attention_forward, attention_backward = _pair(
    "attention",
    ("q", "k", "v"),
    "bool causal, float scale, bool interpret",
    pallas,
    lambda q, *_: (torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)),
)
vit_attention_forward, vit_attention_backward = _pair(
    "vit_attention",
    ("qkv",),
    "int num_heads, float scale, bool interpret",
    packed,
    lambda qkv, num_heads, *_: (
        qkv.new_empty((*qkv.shape[:2], qkv.shape[2] // 3)),
        qkv.new_empty((qkv.shape[0], num_heads, qkv.shape[1]), dtype=torch.float32),
    ),
)
