"""The kernel for a GPU, run by Python's threads: its lanes, its shared memory, its barriers.

Taichi compiles it only where there is a GPU. Here its source runs as Python, one thread a lane,
with a barrier for `sync`; an access out of bounds raises, and shared memory begins as NaN.
"""

import builtins
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from close import assert_same_formula
from conv_samples import draw

from kernels import optional
from kernels.depthwise_conv import reference

pytestmark = pytest.mark.skipif(
    not optional.available("taichi"), reason="taichi is not installed: pip install -e '.[taichi]'"
)
BLOCK = 8


class Checked:
    """An array that refuses an index outside, negative ones among them."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape

    def _at(self, index):
        index = index if isinstance(index, tuple) else (index,)
        assert len(index) == len(self.shape)
        assert all(0 <= i < n for i, n in zip(index, self.shape, strict=True)), index
        return index

    def __getitem__(self, index):
        return self.values[self._at(index)]

    def __setitem__(self, index, value):
        self.values[self._at(index)] = value


class Block:
    """What the lanes of a block have in common, and how each of them starts."""

    def __init__(self):
        self.barrier = threading.Barrier(BLOCK)
        self.lock = threading.Lock()
        self.memory = {}
        self.own = threading.local()

    def shared_array(self, shape, dtype):
        self.own.arrays += 1
        with self.lock:
            return self.memory.setdefault(self.own.arrays, Checked(np.full(shape, np.nan)))

    def sync(self):
        self.barrier.wait(timeout=20)

    def range(self, *bounds):
        """The first loop of a kernel is shared out: a lane has every BLOCK-th of it."""
        if self.own.started:
            return builtins.range(*bounds)
        self.own.started = True
        return builtins.range(self.own.lane, bounds[0], BLOCK)

    def lane(self, number, kernel, arguments):
        self.own.lane, self.own.started, self.own.arrays = number, False, 0
        try:
            kernel(*arguments)
        except BaseException:
            self.barrier.abort()
            raise


def run(w, k, eps):
    from kernels.depthwise_conv import shared

    block = Block()
    simt = SimpleNamespace(block=SimpleNamespace(SharedArray=block.shared_array, sync=block.sync))
    ti = SimpleNamespace(
        kernel=lambda function: function,
        static=lambda value: value,
        types=SimpleNamespace(ndarray=lambda *_, **__: None),
        Vector=lambda values: np.array(values),
        loop_config=lambda **_: None,
        simt=simt,
        min=min,
        max=max,
    )
    names = {**vars(shared), "ti": ti, "BLOCK": BLOCK, "range": block.range}
    kernel = types.FunctionType(shared.tiled.__wrapped__.__code__, names)("float64")
    out = np.full(k.shape, np.nan)
    taken = kernel, (*map(Checked, (out, w, k)), eps)
    with ThreadPoolExecutor(BLOCK) as pool:
        lanes = [pool.submit(block.lane, i, *taken) for i in range(BLOCK)]
    for lane in lanes:
        lane.result()
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 2, 7), (4, 1, 8), (6, 3, 21), (1, 2, 33)])
def test_the_kernel_is_right_lane_by_lane(shape):
    w, k = draw(*shape, "float64")
    want, size = (
        f(w, k, 0.5) for f in (reference.depthwise_conv, reference.depthwise_conv_magnitude)
    )
    assert_same_formula(run(w, k, 0.5), want, size)


def test_an_infinity_does_not_reach_an_earlier_step():
    w, k = draw(1, 1, 21, "float64")
    k[0, 0, 10] = np.inf
    assert np.isfinite(run(w, k, 0.0)[0, 0]).tolist() == [True] * 10 + [False] * 11
