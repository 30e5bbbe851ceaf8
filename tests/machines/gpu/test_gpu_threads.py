"""CUDA C++ on the CPU's threads: sanitizers find what a GPU would not tell."""

import pytest

from kernels import optional
from kernels.machines.gpu.threads import run_on_threads

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not optional.available("g++"), reason="g++ is not installed"),
]
REVERSE = """__global__ void reverse(float* o, const float* x) {
  __shared__ float s[32];
  int i = threadIdx.x, b = blockIdx.x * 32;
  s[i] = x[b + i];
  __syncthreads();
  o[b + i] = s[31 - i];
}"""
MAIN = """
std::vector<float> x(64), o(64);
for (int i = 0; i < 64; i++) x[i] = i;
launch(dim3(2), dim3(32), [&] { reverse(o.data(), x.data()); });
printf("%g %g", o[0], o[63]);
"""


@pytest.mark.parametrize("watch", ["races", "bounds"])
def test_nothing_is_found_in_a_right_kernel(watch):
    found = run_on_threads(REVERSE, MAIN, watch=watch)
    assert (found.problem, found.line, found.printed) == ("", 0, "31 32")


def test_a_missing_barrier_is_a_race_at_its_line():
    found = run_on_threads(REVERSE.replace("__syncthreads();", ""), MAIN)
    assert found.problem == "data race" and found.line in (4, 6)


def test_a_write_out_of_bounds_is_found_at_its_line():
    found = run_on_threads(REVERSE.replace("o[b + i]", "o[b + i + 1]"), MAIN, watch="bounds")
    assert found.problem == "heap-buffer-overflow" and found.line == 6


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="source is refused by g\\+\\+, line 4"):
        run_on_threads(REVERSE.replace("x[b", "y[b"), MAIN)
    with pytest.raises(ValueError, match="watch is 'leaks'; accepted: races, bounds"):
        run_on_threads(REVERSE, MAIN, watch="leaks")
