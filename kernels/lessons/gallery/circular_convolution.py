"""A convolution by FFT whose end comes round to its beginning."""

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload

BUG = Bug(
    title="The FFT lets the future wrap around into the past",
    operator="depthwise_conv",
    caught_by="interpret",
    says="allowed",
    cause="A product of two transforms of length T is a convolution on a circle: step 0 sees the "
    "last steps as its past.",
    lesson="Transform with room for both, 2 T - 1 steps, and keep the first T. A causal operator "
    "deserves a test that changes the last step and looks at the first.",
    workloads=(
        Workload("one_step", {"b": 2, "c": 3, "t": 1}, why="a circle of one step is a line"),
        Workload("circle", {"b": 2, "c": 3, "t": 64}),
    ),
    needs="torch",
    backend=TORCH,
)


def kernel(w, k, eps, *, repaired=False):
    """[C, T], [B, C, T] → [B, C, T]."""
    import torch

    steps = k.shape[2]
    n = 2 * steps if repaired else steps
    lags, rows = torch.from_numpy(w).flip(1).double(), torch.from_numpy(k).double()
    spectrum = torch.fft.rfft(lags, n) * torch.fft.rfft(rows, n)
    return (eps + torch.fft.irfft(spectrum, n)[..., :steps]).float().numpy()
