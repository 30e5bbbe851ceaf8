"""What a small vision transformer learns with an attention: losses, held to the error budget."""

import numpy as np
import torch
from close import assert_close

from kernels.attention.vit import vision_transformer

SMALL = dict(img_size=64, embed_dim=64, depth=2, num_heads=2, num_classes=10)


def formula(qkv, heads):
    """Attention as it is written down, in any dtype."""
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


def losses(attention, steps=3, *, dtype=torch.float32, device="cpu", sync=lambda: None):
    """The losses of `steps` steps of AdamW, the same model and images each time."""
    torch.manual_seed(0)
    model = vision_transformer(attention, **SMALL).to(device, dtype)
    images = torch.randn(2, 3, 64, 64).to(device, dtype)
    labels = torch.tensor([1, 2]).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        sync()
        found.append(loss.item())
    return found


def assert_learns_the_same(found, wide, plain):
    """float32 losses are as near to those of float64 as the plain attention's are."""
    wide = np.array(wide)
    assert wide[-1] < 0.9 * wide[0]  # it does learn
    assert_close(np.array(found, np.float32), wide, np.array(plain, np.float32), wide)
