"""What Taichi makes of the convolution's kernels for a GPU that is not there."""

import numpy as np

from kernels.depthwise_conv.levels import ROWS, plain
from kernels.depthwise_conv.shared import BLOCK, tiled
from kernels.depthwise_conv.taichi import gradient_of_w
from kernels.machines import taichi as machine
from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.kernel import GpuKernel, alone
from kernels.machines.taichi.ptx import ptx

__all__ = ["compiled"]
ti = machine.module()


def every(out, w, k):
    """v0, the tile above, and the gradient of the weights, launched on whatever Taichi runs on."""
    plain(ti.f32)(out, w, k, 0.0)
    tiled(ti.f32)(out, w, k, 0.0)
    gradient_of_w(ti.f32)(w, out, k)


def compiled(*, chip: str = "rtx3090") -> dict[str, GpuKernel]:
    """The kernels of `every`, as Taichi compiles them for a GPU that is not there.

    Args:
        chip: one of kernels.gpu.CHIPS.

    Returns:
        "v0", "tile" and "gradient of w"; Taichi's grid depends on the chip alone.
    """
    target = chip_of(chip)
    k = np.zeros((ROWS, 1, BLOCK), np.float32)
    launches = ptx(every, k, k[0], k, capability=target.capability, sms=target.sms)
    tasks = [task for task in launches if task.grid != (1, 1, 1)]  # one thread prepares each
    return {
        name: GpuKernel(
            t.name,
            chip,
            alone(t.ptx, t.name),
            grid=t.grid,
            threads=t.threads,
            dynamic_bytes=t.shared_bytes,
        )
        for name, t in zip(("v0", "tile", "gradient of w"), tasks, strict=True)
    }
