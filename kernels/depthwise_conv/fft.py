"""The convolution by FFT: T log T steps a row and not T². Gradients by PyTorch's autograd."""

from kernels.optional import require


def depthwise_conv(w, k, eps, *, narrow=False):
    """Tensors [C, T], [B, C, T] on any device → [B, C, T].

    A transform spreads its rounding error evenly over a row, over the small elements too. So
    float32 is transformed in float64 and rounded at the end; narrow=True transforms in float32,
    in half the time, with errors as large as the largest element calls for.
    """
    torch = require("torch", "depthwise convolution by FFT")
    from scipy.fft import next_fast_len

    steps = k.shape[2]
    n = next_fast_len(2 * steps - 1, real=True)  # room for both, so that nothing wraps around
    dtype = k.dtype if narrow else torch.float64
    lags, rows = w.flip(1).to(dtype), k.to(dtype)
    spectrum = torch.fft.rfft(lags, n) * torch.fft.rfft(rows, n)
    return (eps + torch.fft.irfft(spectrum, n)[..., :steps]).to(k.dtype)
