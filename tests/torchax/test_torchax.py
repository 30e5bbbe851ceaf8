"""torchax: a torch model as one JAX program, our kernels in it, compiled whole.

Run by `make test-torchax`, in a process of its own: where torchax was imported, torch.compile
fails ("PyTorch is not linked with support for jax devices").
"""

import pytest

pytest.importorskip("torchax", reason="torchax is not installed: make venv EXTRAS=torchax")
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax
from close import assert_close
from learning import formula
from torchax.interop import call_torch

from kernels.attention import reference
from kernels.attention.torch import attention, vit_attention
from kernels.attention.vit import vision_transformer
from kernels.machines.compat import jax_pallas, jaxprs
from validation import vit_step

SMALL = dict(img_size=64, embed_dim=64, depth=1, num_heads=2, num_classes=10)


@pytest.mark.parametrize("implementation", ["torch_sdpa", "jax_flash", "pallas"])
def test_attention_has_the_gradients_of_the_plain_one(implementation):
    rng = np.random.default_rng(0)
    q, k, v, do = (jnp.asarray(rng.standard_normal((1, 2, 128, 64)), jnp.float32) for _ in "qkvo")

    def pull(implementation):
        def function(q, k, v):
            return call_torch(
                lambda *tensors: attention(*tensors, implementation=implementation), q, k, v
            )

        out, back = jax.vjp(jax.jit(function), q, k, v)
        return out, *back(do)

    with jax.default_matmul_precision("highest"):
        found, plain = pull(implementation), pull("torch")
    wide = [np.asarray(x, np.float64) for x in (q, k, v, do)]
    with jax.enable_x64(True):
        out, back = jax.vjp(reference.attention, *wide[:3])
        want = [np.asarray(x) for x in (out, *back(wide[3]))]
    sizes = reference.attention_magnitude(*wide[:3]), *reference.attention_gradient_magnitude(*wide)
    for each in zip(found, want, plain, sizes, strict=True):
        assert_close(*each)


def losses(attention, steps=2):
    torch.manual_seed(0)
    model = vision_transformer(attention, **SMALL)
    images = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 64, 64)), jnp.float32)
    weights, forward = torchax.extract_jax(model)

    @jax.jit
    def step(weights):
        def loss(weights):
            logits = jax.nn.log_softmax(forward(weights, (images,)))
            return -logits[jnp.arange(2), jnp.array([1, 2])].mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), value

    found = []
    for _ in range(steps):
        weights, value = step(weights)
        found.append(float(value))
    return found


def wide_losses(steps=2):
    """The same in float64, by PyTorch alone."""
    torch.manual_seed(0)
    model = vision_transformer(formula, **SMALL).double()
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 64, 64)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2]))
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return np.array(found)


def test_losses_of_a_vit_are_equal():
    wide, native = wide_losses(), np.array(losses("torch"), np.float32)
    assert wide[1] < wide[0]
    for name in ("torch_sdpa", "unpacked", "pallas"):
        assert_close(np.array(losses(name), np.float32), wide, native, wide)


def test_what_is_refused():
    def call(qkv):
        return call_torch(lambda t: vit_attention(t, 5), qkv)

    with pytest.raises(ValueError, match="a multiple of 3 × 5"):
        call(jnp.zeros((1, 8, 144)))
    with pytest.raises(ValueError, match=r"attention is .xla.; accepted: torch, .*, pallas"):
        vit_step.step("xla")
    with pytest.raises(ValueError, match="depth is 0"):
        vit_step.step("pallas", depth=0)


@pytest.mark.parametrize(
    ("attention", "kernels"),
    [
        ("torch", []),
        ("jax_flash_128", ["flash_attention", "flash_attention_dkv", "flash_attention_dq"]),
        ("unpacked", ["flash_attention_forward", "flash_attention_backward"]),
        ("pallas", ["vit_attention_forward", "vit_attention_backward"]),
    ],
)
def test_a_step_lowered_for_a_tpu_holds_the_kernels(attention, kernels):
    from kernels.machines.tpu.export import export

    function, shapes = vit_step.step(attention, depth=1, batch=2)
    program = export(function, *shapes)
    assert len(program.calls) == len(kernels)
    for call, name in zip(program.calls, kernels, strict=True):
        assert name in call.name
    outside = jax_pallas.outside_kernels(program.jaxpr)
    dots = [jaxprs.inputs(e) for e in outside if jaxprs.operation(e) == "dot_general"]
    narrow = [all(jaxprs.dtype(v) == "bfloat16" for v in operands) for operands in dots]
    assert sum(narrow) >= len(narrow) - 3  # the head's are float32, as its input is


def test_packed_attention_makes_the_step_faster():
    """Of a model of one block, by time and by bytes, both estimated
    anew, and the shipped kernel slower, as was published and as results/ has it at full size."""
    pytest.importorskip("libtpu")
    names = ("torch", "jax_flash", "pallas")
    steps = dict(zip(names, vit_step.estimate_steps(names, depth=1), strict=True))
    kept = vit_step.recorded()
    for found in (steps, kept):
        assert found["pallas"].seconds < found["torch"].seconds < found["jax_flash"].seconds
        assert found["pallas"].hbm_bytes < found["torch"].hbm_bytes
        assert not found["pallas"].spent("attention", "relayout")
        assert found["jax_flash"].spent("attention", "relayout") > 0
    assert kept["torch"].seconds >= 1.4 * kept["pallas"].seconds
    # A block more takes what a block takes: the figures at depth 12 are of the same programs.
    for name in names:
        ratio = kept[name].spent("attention") / steps[name].spent("attention")
        assert 10 < ratio < 14, name
