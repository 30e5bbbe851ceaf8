"""The convolution by FFT: T log T steps a row and not T². Gradients by PyTorch's autograd."""

from kernels.machines.optional import require

__all__ = ["depthwise_conv"]
CACHED = 2**18  # numbers of a part: its spectra stay in a CPU's cache, which halves the time


def depthwise_conv(w, k, eps, *, narrow=False):
    """Tensors [C, T], [B, C, T] → [B, C, T], by FFT.

    A transform spreads its rounding error evenly over a row, over the small elements too. So
    float32 is transformed in float64 and rounded at the end.

    Args:
        w, k, eps: as for every implementation.
        narrow: transform in k's dtype; in float32 that takes half the time, with errors as large as
            the largest element calls for.
    """
    torch = require("torch", "depthwise convolution by FFT")
    from scipy.fft import next_fast_len

    steps = k.shape[2]
    n = next_fast_len(2 * steps - 1, real=True)  # room for both, so that nothing wraps around
    dtype = k.dtype if narrow else torch.float64

    def convolve(w, k):
        spectrum = torch.fft.rfft(w.flip(1).to(dtype), n) * torch.fft.rfft(k.to(dtype), n)
        return (eps + torch.fft.irfft(spectrum, n)[..., :steps]).to(k.dtype)

    if k.is_cuda:
        return convolve(w, k)
    channels = max(1, CACHED // (k.shape[0] * n))
    parts = zip(w.split(channels), k.split(channels, dim=1), strict=True)
    return torch.cat([convolve(*part) for part in parts], dim=1)
