"""The convolution in CUDA C++, forward and backward: compiled without a GPU, run on CPU threads.

Four forward kernels, one change each, after the ladder that the author of RWKV published
(BlinkDL/RWKV-CUDA): a thread for each step; weights and inputs in shared memory; four steps a
thread; several rows a block. T and ROWS are constants of the source; 4 divides T, ROWS the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.machines.checks import fail, one_of
from kernels.machines.gpu import threads
from kernels.machines.gpu.cuda import cuda
from kernels.machines.gpu.kernel import GpuKernel

ROWS = 8  # of a block of the last kernel
HEAD = """#define KERNEL extern "C" __global__ void
struct Sums {  // of four neighbours, and the last factors
  float s[4] = {}, last[3] = {};
};
__device__ void add(Sums& sums, float x, float y) {  // y goes on to the next sum
  float *s = sums.s, *last = sums.last;
  s[0] += x * y, s[1] += x * last[0], s[2] += x * last[1], s[3] += x * last[2];
  last[2] = last[1], last[1] = last[0], last[0] = y;
}
"""
# Name → its source; [C, T] weights, [B, C, T] inputs and results, a row being a b and a c.
SOURCES = {
    "plain": """
KERNEL plain(float* out, const float* w, const float* k, float eps, int C) {
  int row = blockIdx.x, t = threadIdx.x;
  const float *weight = w + row % C * T + T - 1 - t, *past = k + row * T;
  float s = eps;
  for (int u = 0; u <= t; ++u) s += weight[u] * past[u];
  out[row * T + t] = s;
}""",
    "shared": """
KERNEL shared(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[T];
  int row = blockIdx.x, t = threadIdx.x;
  weight[t] = w[row % C * T + t];
  past[t] = k[row * T + t];
  __syncthreads();
  float s = eps;
  for (int u = 0; u <= t; ++u) s += weight[T - 1 - t + u] * past[u];
  out[row * T + t] = s;
}""",
    "four": """
KERNEL four(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[T];
  int row = blockIdx.x, last = 4 * threadIdx.x + 3;  // of this thread's steps
  for (int t = threadIdx.x; t < T; t += T / 4) {
    weight[t] = w[row % C * T + t];
    past[t] = k[row * T + t];
  }
  __syncthreads();
  Sums sums;
  for (int u = last; u >= 0; --u) add(sums, past[u], weight[T - 1 - last + u]);
  for (int i = 0; i < 4; ++i) out[row * T + last - i] = eps + sums.s[i];
}""",
    "rows": """
KERNEL rows(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[ROWS][T];
  int c = blockIdx.x % C, first = blockIdx.x / C * ROWS * C + c, last = 4 * threadIdx.x + 3;
  for (int t = threadIdx.x; t < T; t += T / 4) {
    weight[t] = w[c * T + t];
    for (int r = 0; r < ROWS; ++r) past[r][t] = k[(first + r * C) * T + t];
  }
  __syncthreads();
  Sums sums[ROWS];
  for (int u = last; u >= 0; --u) {
    float y = weight[T - 1 - last + u];
    for (int r = 0; r < ROWS; ++r) add(sums[r], past[r][u], y);
  }
  for (int r = 0; r < ROWS; ++r)
    for (int i = 0; i < 4; ++i) out[(first + r * C) * T + last - i] = eps + sums[r].s[i];
}""",
    "gradient": """
KERNEL gradient(float* gw, float* gk, const float* w, const float* k, const float* g, int B) {
  __shared__ float weight[T], past[T], back[T];
  int c = blockIdx.x, C = gridDim.x, first = 4 * threadIdx.x;  // of this thread's lags and steps
  for (int t = threadIdx.x; t < T; t += T / 4) weight[t] = w[c * T + t];
  Sums of_w;
  for (int b = 0; b < B; ++b) {
    int row = (b * C + c) * T;
    __syncthreads();  // before the next row overwrites this one
    for (int t = threadIdx.x; t < T; t += T / 4) past[t] = k[row + t], back[t] = g[row + t];
    __syncthreads();
    Sums of_k;
    for (int i = 0; i < 3; ++i) of_w.last[i] = 0;
    for (int t = first; t < T; ++t) {
      add(of_k, back[t], weight[T - 1 - t + first]);
      add(of_w, back[t], past[t - first]);
    }
    for (int i = 0; i < 4; ++i) gk[row + first + i] = of_k.s[i];
  }
  for (int i = 0; i < 4; ++i) gw[c * T + T - 1 - first - i] = of_w.s[i];
}""",
}


def source(name: str, *, steps: int, rows: int = ROWS) -> str:
    """One kernel, with the constants that it is compiled for.

    Args:
        name: one of SOURCES.
        steps: T, a multiple of 4.
        rows: of a block of "rows".

    Raises:
        ValueError: for another name, and for steps that 4 does not divide.
    """
    one_of("name", name, SOURCES)
    if steps % 4:
        fail("steps", steps, "a multiple of 4")
    return f"#define T {steps}\n#define ROWS {rows}\n{HEAD}{SOURCES[name]}\n"


def launch(name: str, b: int, c: int, t: int, rows: int = ROWS) -> tuple[int, int]:
    """Blocks, and threads of a block.

    Args:
        name: one of SOURCES.
        b, c, t: rows, channels and steps.
        rows: of a block of "rows".
    """
    one_of("name", name, SOURCES)
    blocks = {"gradient": c, "rows": b // rows * c}.get(name, b * c)
    return blocks, t if name in ("plain", "shared") else t // 4


def compiled(name: str, b: int, c: int, t: int, *, chip: str = "rtx3090") -> GpuKernel:
    """One kernel compiled by NVRTC and ptxas, as it would be launched.

    Args:
        name: one of SOURCES.
        b, c, t: rows, channels and steps.
        chip: one of kernels.gpu.CHIPS.

    Raises:
        ValueError: for another name or chip.
        MissingPackage: without NVIDIA's tools.
    """
    blocks, many = launch(name, b, c, t)
    return cuda(source(name, steps=t), chip=chip, grid=(blocks, 1, 1), threads=many)


def on_threads(
    w: Any, k: Any, eps: float, g: Any, *, rows: int = ROWS, watch: str = "races"
) -> dict[str, np.ndarray]:
    """Run all kernels on threads of the CPU, under a sanitizer.

    Args:
        w, k, g: float32 [C, T], [B, C, T], [B, C, T]: weights, inputs, and what comes back.
        eps: added to each result.
        rows: of a block of "rows"; divides B.
        watch: as kernels.gpu.threads.run_on_threads takes it.

    Returns:
        The result of each forward kernel by its name; of the gradient's "gw" and "gk".

    Raises:
        RuntimeError: where the sanitizer finds something.
        ValueError: for rows that do not divide B, and for steps that 4 does not divide.
        MissingPackage: without g++.
    """
    (b, c, t), shapes = k.shape, {"gw": w.shape, "gk": k.shape}
    if b % rows:
        fail("rows", rows, f"one that divides the {b} rows of k")
    lines = [
        *(_array(name, each) for name, each in (("w", w), ("k", k), ("g", g))),
        "auto show = [](const char* name, const std::vector<float>& v) {",
        '  printf("%s", name);',
        '  for (float x : v) printf(" %.9g", x);',
        '  printf("\\n");',
        "};",
    ]
    for name in SOURCES:
        blocks, many = launch(name, b, c, t, rows)
        place = f"launch(dim3({blocks}), dim3({many}), [&] "
        if name == "gradient":
            lines += [f"std::vector<float> gw({w.size}), gk({k.size});"]
            call = f"gradient(gw.data(), gk.data(), w.data(), k.data(), g.data(), {b});"
            lines += [f"{place}{{ {call} }});", 'show("gw", gw); show("gk", gk);']
            continue
        call = f"{name}(out.data(), w.data(), k.data(), {eps:.9g}f, {c});"
        lines += [f"{{ std::vector<float> out({k.size});", f"{place}{{ {call} }});"]
        lines += [f'show("{name}", out); }}']
        shapes[name] = k.shape
    found = threads.run_on_threads(_all(t, rows), "\n".join(lines), watch=watch)
    if found.problem:
        raise RuntimeError(f"{found.problem} in line {found.line} of the kernels")
    results = {}
    for line in found.printed.splitlines():
        name, *numbers = line.split()
        results[name] = np.array(numbers, np.float64).reshape(shapes[name])
    return results


def _all(steps: int, rows: int) -> str:
    return source("plain", steps=steps, rows=rows) + "".join(list(SOURCES.values())[1:])


def _array(name: str, values: Any) -> str:
    numbers = ", ".join(f"{float(x)!r}f" for x in np.asarray(values, np.float32).ravel())
    return f"std::vector<float> {name} = {{{numbers}}};"
