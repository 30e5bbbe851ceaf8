"""What the plain forms and the kernels share: how two blocks are multiplied."""

from kernels.machines.tpu.products import product


def dot(x, y, contract=(1, 0), widen=False):
    """machines.tpu.products.product; float32 of what is narrow, which neither Mosaic nor a CPU
    takes as bfloat16."""
    return product(x, y, contract, widen or 1 in x.shape + y.shape)
