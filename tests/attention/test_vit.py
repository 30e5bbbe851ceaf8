"""A timm vision transformer learns the same whatever its blocks attend with."""

import sys

import pytest
from commands import python

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make venv EXTRAS=torch")

from learning import SMALL, assert_learns_the_same, formula, losses  # noqa: E402

from kernels.attention.torch import VIT_ATTENTION, vit_attention  # noqa: E402
from kernels.attention.vit import vision_transformer  # noqa: E402

pytestmark = pytest.mark.slow

HERE = [name for name in VIT_ATTENTION if name != "jax_flash"]  # which needs an XLA device
by_kernel = lambda qkv, num_heads: vit_attention(qkv, num_heads, implementation="pallas")


@pytest.fixture(scope="module")
def expected():
    return losses(formula, dtype=torch.float64), losses("torch")


@pytest.mark.parametrize("attention", [*HERE, by_kernel])
def test_losses_are_equal(attention, expected):
    assert_learns_the_same(losses(attention), *expected)


def test_images_of_256_pixels_become_256_tokens():
    model = vision_transformer("pallas", depth=1, weight_init="skip")
    seen = []
    model.blocks[0].attn.register_forward_hook(lambda *call: seen.append(call[1][0].shape))
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 256, 256)).shape == (1, 1000)
    assert seen == [(1, 256, 768)]


@pytest.mark.parametrize(
    ("attention", "words"), [("xla", "accepted: pallas, unpacked"), (3, "or a function")]
)
def test_unknown_attention(attention, words):
    with pytest.raises(ValueError, match=words):
        vision_transformer(attention)


def test_a_mask_is_refused():
    model = vision_transformer("pallas", **SMALL)
    with pytest.raises(ValueError, match="attn_mask"):
        model.blocks[0].attn(torch.zeros(1, 16, 64), attn_mask=torch.zeros(16, 16))


def test_torchvision_is_taken_as_it_is_where_it_loads(tmp_path):
    """Where its C++ part does not fit, nothing in its place is left behind either."""
    from door import torchvision_is_whole

    assert hasattr(torch.ops.torchvision, "nms") == torchvision_is_whole()
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('another trouble')")
    env = {"PYTHONPATH": f"{tmp_path}:{':'.join(filter(None, sys.path))}"}
    done = python("-c", "import kernels.attention.vit", env=env)
    assert "another trouble" in done.stderr
