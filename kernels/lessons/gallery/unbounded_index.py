"""A tile of four steps that reads weights where there are none."""

import functools

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The last tile reads in front of the weights",
    operator="depthwise_conv",
    caught_by="simulate",
    says="Out of bound access",
    cause="Four does not divide 65 steps, so the last tile has three steps beyond the end, and "
    "their lags are longer than there are weights. What they sum up is thrown away, so the result "
    "is right. But they read before the array, and one day that address won't be mapped.",
    lesson="A bound on what is written is not a bound on what is read. Run a kernel once with "
    "every access checked.",
    workloads=(
        Workload("whole", {"b": 1, "c": 1, "t": 64}, why="four divides 64"),
        Workload("cut", {"b": 1, "c": 1, "t": 65}),
    ),
    needs="taichi",
    backend=TAICHI,
)


@functools.cache
def _compiled(repaired):
    from kernels.machines import taichi

    ti = taichi.module()

    @ti.kernel
    def steps(
        out: ti.types.ndarray(ti.f32, ndim=3),
        w: ti.types.ndarray(ti.f32, ndim=2),
        k: ti.types.ndarray(ti.f32, ndim=3),
        eps: ti.f32,
    ):
        T = k.shape[2]
        for b, c, tile in ti.ndrange(k.shape[0], k.shape[1], (T + 3) // 4):
            s = ti.Vector([eps] * 4)
            for u in range(ti.min(4 * tile + 4, T)):
                for i in ti.static(range(4)):
                    lag = 4 * tile + i - u
                    if ti.static(repaired):
                        lag = ti.min(lag, T - 1)
                    if lag >= 0:
                        s[i] += w[c, (T - 1) - lag] * k[b, c, u]
            for i in ti.static(range(4)):
                if 4 * tile + i < T:
                    out[b, c, 4 * tile + i] = s[i]

    return steps


def kernel(w, k, eps, *, repaired=False):
    """[C, T], [B, C, T] → [B, C, T]."""
    from kernels.machines import taichi

    out = taichi.empty(k.shape, k)
    taichi.launch(_compiled(repaired), out, w, k, eps)
    return out
