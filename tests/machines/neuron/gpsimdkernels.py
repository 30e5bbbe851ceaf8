"""Sources of operators for the emulated GpSimd engine, right ones and wrong ones."""

import functools
from pathlib import Path

import numpy as np
import pytest

from kernels.machines.neuron import gpsimd
from kernels.machines.neuron.gpsimd import compiler

DATA = Path(__file__).with_name("data")
HEADERS = (DATA / "headers.h").read_text()
SHAPES = """
#include <torch/torch.h>
#include "torchneuron/register.h"
torch::Tensor same(torch::Tensor x) { return torch::empty(x.sizes(), torch::kFloat); }
"""


def library(*names):
    """The host's file for kernels of these names."""
    lines = "".join(f'm.def("{name}", &same, "{name}");' for name in names)
    return f"{SHAPES}NEURON_LIBRARY(tests, m) {{ {lines} }}"


SHAPE = library("twice")


def twice(body, name="twice"):
    """A kernel of a body that ends in `return out;`."""
    return f"torch::Tensor {name}(const torch::Tensor& x) {{{body}}}\n"


def alone(body):
    """The sources of a library of one kernel, `twice`."""
    return [HEADERS + twice(body), SHAPE]


def body(
    begin="id * share",
    end="std::min(n, begin + share)",
    allocate="(float*)tcm_malloc(share * sizeof(float))",
    guard="if (!t) abort();",
    load="in.tensor_to_tcm<float>(t, begin, end - begin);",
    compute="for (size_t i = 0; i < end - begin; ++i) t[i] = 2 * t[i];",
    store="to.tcm_to_tensor<float>(t, begin, end - begin);",
    free="tcm_free(t);",
    result="get_dst_tensor()",
):
    """2 x on all cores; a test replaces one line by a wrong one."""
    return f"""
      torch::Tensor out = {result};
      const size_t n = x.numel(), id = get_cpu_id(), count = get_cpu_count();
      const size_t share = (n + count - 1) / count;
      const size_t begin = {begin}, end = {end};
      if (begin >= n || begin >= end) return out;
      float* t = {allocate};
      {guard}
      auto in = x.tcm_accessor();
      auto to = out.tcm_accessor();
      {load}
      {compute}
      {store}
      {free}
      return out;"""


def right(**lines):
    """The sources of 2 x, with some lines replaced."""
    return alone(body(**lines))


@functools.cache
def libraries(many):
    """Kernel → sources, for many kernels in few libraries: each is compiled once."""
    sources = {}
    for first in range(0, len(many), compiler.MOST_KERNELS):
        part = many[first : first + compiler.MOST_KERNELS]
        names = [f"twice_{first + i}" for i in range(len(part))]
        kernels = "".join(twice(body(**dict(lines)), name) for lines, name in zip(part, names))
        sources.update(dict.fromkeys(names, (HEADERS + kernels, library(*names))))
    return sources


def one_of_many(all_lines, place):
    """The sources and the name of the kernel with the lines all_lines[place]."""
    name = f"twice_{place}"
    return libraries(tuple(tuple(lines.items()) for lines in all_lines))[name], name


X = np.arange(1, 97, dtype=np.float32).reshape(2, 48)


def refuse(sources, *words, name="twice", **options):
    with pytest.raises(gpsimd.GpSimdError) as caught:
        gpsimd.run(sources, name, X, **options)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return caught.value.finding
