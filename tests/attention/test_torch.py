"""Attention on PyTorch tensors: right, differentiable, and an operator that torch's tools take."""

import functools
import importlib
import io
import sys

import pytest
from commands import weekly
from refused import refuses

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make venv EXTRAS=torch")

from torch_samples import DTYPES, SHAPES, assert_passes, draw, of_vit, pull  # noqa: E402

from kernels import optional  # noqa: E402
from kernels.attention import torch as side  # noqa: E402
from kernels.attention.torch import attention, merge_heads, split_heads, vit_attention  # noqa: E402

pytestmark = pytest.mark.slow


# The ladder has each on all arguments: here pairs of shape, dtype and causal cross to tensors.
@pytest.mark.parametrize(
    ("shape", "dtype", "causal"),
    [
        (SHAPES[0], "float32", False),
        (SHAPES[1], "bfloat16", True),
        (SHAPES[2], "float32", True),
        (SHAPES[3], "bfloat16", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("implementation", ["torch_sdpa", "pallas"])
def test_attention(implementation, shape, dtype, causal):
    function = functools.partial(attention, implementation=implementation, causal=causal)
    assert_passes(function, shape, dtype, causal)


@pytest.mark.parametrize(("shape", "dtype"), [*zip(SHAPES[1:3], DTYPES)], ids=str)
@pytest.mark.parametrize("implementation", ["unpacked", "pallas"])
def test_vit_attention(implementation, shape, dtype):
    assert_passes(of_vit(shape[1], implementation), shape, dtype)


def test_a_sequence_too_long_to_be_packed(monkeypatch):
    qkv, do = torch.randn(2, 37, 3 * 48), torch.randn(2, 37, 48)
    want = pull(functools.partial(vit_attention, num_heads=3), (qkv,), do)
    monkeypatch.setattr(side.packed, "make_plan", lambda *_: None)
    side._bound.cache_clear()
    got = pull(functools.partial(vit_attention, num_heads=3), (qkv,), do)
    side._bound.cache_clear()
    torch.testing.assert_close(got, want)
    assert not torch.equal(got[1][0], want[1][0])  # the other kernel rounds otherwise


def test_heads_are_split_as_timm_does_and_merged_again():
    qkv = torch.arange(2 * 5 * 24.0).reshape(2, 5, 24)
    q, k, v = split_heads(qkv, 2)
    assert q.shape == (2, 2, 5, 4) and torch.equal(k[1, 1, 3], qkv[1, 3, 12:16])
    assert torch.equal(merge_heads(v), qkv[:, :, 16:])


def test_the_kernel_reads_torch_memory_without_a_copy(monkeypatch):
    seen = []
    bound = side._bound

    def spy(*arguments):
        def call(*arrays):
            seen.extend(a.unsafe_buffer_pointer() for a in arrays)
            return bound(*arguments)(*arrays)

        return call

    monkeypatch.setattr(side, "_bound", spy)
    q, k, v, _ = draw((2, 3, 37, 37, 16))
    attention(q, k, v)
    assert seen == [t.data_ptr() for t in (q, k, v)]


def test_arguments_may_change_once_the_call_is_back():
    q, k, v, _ = draw((2, 3, 257, 257, 64))
    want = attention(q, k, v, implementation="torch")
    got = attention(q, k, v)
    for t in (q, k, v):
        t.fill_(float("nan"))
    torch.testing.assert_close(got, want)
    got += 1  # the result is torch's own
    torch.testing.assert_close(got, want + 1)


def test_any_address_will_do():
    """A view may begin where JAX would not let an array begin."""
    q, k, v, _ = draw((2, 3, 37, 37, 16))
    moved = [torch.cat([t.new_zeros(1), t.flatten()])[1:].view_as(t) for t in (q, k, v)]
    assert torch.equal(attention(*moved), attention(q, k, v))


def arguments(operator):
    q, k, v, do = draw((2, 3, 19, 29, 16))
    qkv, heads = torch.randn(2, 19, 3 * 48), 3
    if operator == "attention_forward":
        return tuple(t.requires_grad_() for t in (q, k, v)), (True, 0.25, True)
    if operator == "attention_backward":
        o, lse = side.attention_forward(q, k, v, False, 0.25, True)
        return (q, k, v, o, lse, do), (False, 0.25, True)
    if operator == "vit_attention_forward":
        return (qkv.requires_grad_(),), (heads, 0.25, True)
    o, lse = side.vit_attention_forward(qkv, heads, 0.25, True)
    return (qkv, o, lse, torch.randn_like(o)), (heads, 0.25, True)


@pytest.mark.parametrize(
    "operator",
    ["attention_forward", "attention_backward", "vit_attention_forward", "vit_attention_backward"],
)
def test_operators_keep_the_rules_of_torch(operator):
    tensors, numbers = arguments(operator)
    torch.library.opcheck(getattr(side, operator), (*tensors, *numbers))


@pytest.mark.parametrize("dynamic", [False, weekly(True)], ids=["static", "dynamic"])
@pytest.mark.parametrize("which", ["attention", "unpacked", "pallas"])
def test_compiled_in_one_graph(which, dynamic):
    q, k, v, do = draw((2, 3, 37, 37, 16))
    if which == "attention":
        function, tensors, cotangent = functools.partial(attention, causal=True), (q, k, v), do
    else:
        function = functools.partial(vit_attention, num_heads=3, implementation=which)
        tensors, cotangent = (torch.randn(2, 37, 3 * 48),), torch.randn(2, 37, 48)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for got, want in zip(pull(compiled, tensors, cotangent), pull(function, tensors, cotangent)):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_exported_saved_and_loaded():
    class Model(torch.nn.Module):
        def forward(self, qkv):
            q, k, v = (t.contiguous() for t in split_heads(qkv, 3))
            return vit_attention(qkv, 3) + merge_heads(attention(q, k, v))

    model, qkv = Model(), torch.randn(2, 37, 3 * 48)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model, (qkv,), dynamic_shapes={"qkv": {0: batch}})
    targets = [str(node.target) for node in exported.graph.nodes]
    for name in ("attention_forward", "vit_attention_forward"):
        assert f"kernels.{name}.default" in targets
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    more = torch.randn(5, 37, 3 * 48)
    assert torch.equal(loaded(more), model(more))


def test_a_second_derivative_is_refused():
    q, k, v, _ = draw((1, 1, 8, 8, 8))
    q.requires_grad_()
    (gradient,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward"):
        gradient.sum().backward()


Q = torch.zeros(2, 3, 8, 16)


@pytest.mark.parametrize("implementation", ["jax_splash", "tokamax", "mosaic_gpu"])
def test_no_other_kernel_answers_for_one_that_takes_no_tensors(implementation):
    with pytest.raises(ValueError, match=f"implementation is '{implementation}'; accepted: pallas"):
        attention(Q, Q, Q, implementation=implementation)


test_attention_refuses = refuses(
    lambda arguments, options: attention(*arguments, **options),
    ((Q, Q, Q), {"implementation": "cuda"}, "implementation is 'cuda'; accepted: pallas"),
    ((Q, Q, Q), {"implementation": "jax_flash"}, "q.device is 'cpu'; accepted: xla, jax"),
    ((Q.numpy(), Q, Q), {}, "q is a ndarray; accepted: a torch.Tensor"),
    ((Q[0], Q, Q), {}, r"q.shape is \(3, 8, 16\); accepted: 4 dimensions"),
    ((Q[:0], Q, Q), {}, "dimensions of at least 1"),
    ((Q, Q[:1], Q), {}, r"k.shape\[0\] \(batch\) is 1; accepted: 2, as q has it"),
    ((Q.int(), Q.int(), Q.int()), {}, "q.dtype is 'torch.int32'; accepted: torch.float32"),
    ((Q, Q.bfloat16(), Q), {}, "k.dtype is torch.bfloat16; accepted: torch.float32"),
    ((Q, Q.to("meta"), Q), {}, "k.device is 'meta'; accepted: cpu, xla, jax"),
    ((Q, Q.to("meta"), Q), {"implementation": "torch"}, "k.device is meta; accepted: cpu"),
    ((Q.swapaxes(1, 2),) * 3, {}, r"q.stride\(\) is .*; accepted: a contiguous tensor"),
    ((Q, Q, Q), {"causal": "yes"}, "causal is 'yes'"),
    ((Q, Q, Q), {"interpret": False}, "interpret is False; accepted: None or True"),
)


test_vit_attention_refuses = refuses(
    lambda qkv, heads, options: vit_attention(qkv, heads, **options),
    (torch.zeros(2, 8, 144), 5, {}, r"qkv.shape\[2\] is 144; accepted: a multiple of 3 × 5"),
    (torch.zeros(2, 8, 144), 3, {"implementation": "xla"}, "accepted: pallas, unpacked"),
    (torch.zeros(8, 144), 3, {}, "accepted: 3 dimensions"),
    (torch.zeros(2, 8, 144, dtype=torch.int64), 3, {}, "qkv.dtype is 'torch.int64'"),
    (torch.zeros(2, 144, 8).mT, 3, {}, r"accepted: a contiguous tensor: qkv.contiguous\(\)"),
    (torch.zeros(2, 8, 144, device="meta"), 3, {}, "qkv.device is 'meta'"),
    (torch.zeros(2, 8, 144), 3, {"implementation": "jax_flash"}, "device is 'cpu'"),
)


def test_other_strides_are_fine_where_torch_does_the_work():
    q, k, v, _ = draw((2, 3, 8, 8, 16))
    views = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert not views[0].is_contiguous()
    for implementation in ("torch", "torch_sdpa"):
        options = {"implementation": implementation}
        torch.testing.assert_close(attention(*views, **options), attention(q, k, v, **options))


@pytest.mark.parametrize("missing", ["torch", "timm"])
def test_a_missing_package_is_named(missing, monkeypatch):
    monkeypatch.setattr(optional, "available", lambda name: name != missing)
    for name in ("vit", "torch") if missing == "torch" else ("vit",):
        monkeypatch.delitem(sys.modules, f"kernels.attention.{name}", raising=False)
    says = rf"{missing} is needed for .*pip install -c constraints.txt -e '.\[torch\]'"
    with pytest.raises(optional.MissingPackage, match=says):
        importlib.import_module("kernels.attention.vit")
