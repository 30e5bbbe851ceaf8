"""The lint finds what a compiler refuses, says where, and leaves the rest alone."""

import functools
import json
import math
import os
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

from kernels import neuron
from kernels.giou import giou
from kernels.giou import neuronxcc as old
from kernels.giou import nki as new
from kernels.machines.neuron import NeuronError
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import jit as beta_jit
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl
from kernels.machines.neuron.modern.isa import memset
from kernels.machines.neuron.simulator import NkiKernel


def plain(x, n=3):
    """Everything here is allowed."""
    rows, columns = x.shape
    assert rows <= nl.tile_size.pmax, f"{rows} rows"
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    tiles, names = [tile], {"a": 1}
    nisa.dma_copy(tile, x[0:rows, :])
    half = columns // 2 + n * 2
    while half > columns:
        half -= 1
    for i in range(min(n, 2)):
        if i % 2 == 0 and x.shape[0] > 1 and tile is not None:
            nisa.memset(dst=tiles[0][:, half : half + 1], value=-0.5 * names["a"])
    helper(tile, n=half if half else 1)
    return tile


def helper(tile, n):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=n + 1.0)


def test_what_is_allowed_is_left_alone():
    for kernel in (plain, shipped):
        assert neuron.lint(jit(kernel)) == []
    for kernel in (new.giou_kernel, old.giou_kernel, beta_jit(shipped_beta)):
        assert neuron.lint(kernel) == []


# After `a = nl.ndarray(x.shape, dtype=x.dtype)` in a kernel of x: what is found, and advised.
DATA = Path(__file__).with_name("data")
FAULTS = json.loads((DATA / "linter_faults.json").read_text())


def doubled(x):
    a = nl.ndarray(x.shape, dtype=x.dtype)
    b = a[:, 0:2]
    return b * 2.0


def _checked(condition, message):
    if not condition:
        raise AssertionError(message + str(math.prod((2, 3))) + os.linesep)


def _product(sizes):
    number = 1
    for size in sizes:
        number *= size
    return number


@jit
def _inner(tile):
    nisa.memset(dst=tile, value=0.0)


def shipped(x, needed, sizes, bias=None, cache=None):
    """Patterns of kernels that AWS ships, in our own words."""
    _checked(x.shape[0] <= 128, f"{x.shape[0]} partitions")
    y = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=y, src=x)
    if bias != None and bias.shape[0] == x.shape[0]:  # noqa: E711
        nisa.tensor_tensor(dst=y, data1=y, data2=bias, op=nl.add)
    if cache:
        nisa.tensor_copy(dst=y, src=cache[0])
    for size, wanted in zip(sizes, needed):
        if not needed[0] and not wanted:
            continue
        for at in range(math.ceil(size / 128)):
            nisa.memset(dst=x[at : at + 1, :], value=0.0)
    _inner(x)  # a kernel in a kernel
    if nisa.get_nc_version() >= nisa.nc_version.gen3:
        register = nisa.register_alloc(0)
        nisa.register_load(register, x[0:1, 0:1])
    nl.store(x, nl.multiply(nl.load(x), 2.0))

    def body(row):
        memset(x.ap([[4, 128], [1, 4]], scalar_offset=row), 0.0)  # imported by its name

    nl.fori_loop(0, 512, body, step=128)
    tiles = []
    for k in nl.affine_range(4):
        tile = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[k * 128 : (k + 1) * 128, 0:4])
        tiles.append(tile)
    total = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
    for k in nl.sequential_range(4):
        nisa.nc_matmul(total, tiles[k], tiles[k], accumulate=(k > 0))
    return _product(x.shape[1:]) + _product([x.shape[0]])


def shipped_beta(x, y):
    total = bl.zeros((4, 4), dtype=bl.float32, buffer=bl.psum)
    for k in bl.affine_range(2):
        total += bisa.nc_matmul(x[k], y[k])
        total[...] += bl.matmul(x[k], y[k], transpose_x=True)
    return total


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path):
    body, what, instead = FAULTS[name]
    source = "def kernel(x):\n    a = nl.ndarray(x.shape, dtype=x.dtype)\n" + indent(body, "    ")
    path, scope = tmp_path / "planted.py", {**globals()}
    path.write_text(source)
    exec(compile(source, path, "exec"), scope)
    (finding,) = neuron.lint(NkiKernel(scope["kernel"], "nki"))
    assert what in finding.what and instead in finding.instead
    file, lines = "planted.py", range(3, 4 + body.count("\n"))
    if name == "in a helper":
        file, lines = "test_neuron_linter.py", (doubled.__code__.co_firstlineno + 3,)
    assert finding.file == file and finding.line in lines
    assert str(finding).endswith(f"({file}:{finding.line})")


def test_all_findings_are_told_at_once():
    @jit
    def kernel(x):
        return nl.arange(4), [n for n in x.shape], x[0:1, :] + 1

    assert len(neuron.lint(kernel)) == 3


def beta_min(x):
    for i in bl.affine_range(4):
        first = i * 128
        bl.load(x[first : min(first + 128, 500), :])


def beta_branch(x):
    for i in bl.sequential_range(4):
        if i == 0:
            bl.load(x)


def beta_count(x):
    total = 0
    for _ in bl.affine_range(4):
        total += 1
    return total


def beta_allowed(x):
    for i in bl.affine_range(4):
        a = bl.load(x[i * 128 + bl.arange(128)[:, None], 0], mask=i * 128 < x.shape[0])
        b = a * 2.0 + a
        for _ in range(min(3, x.shape[1])):
            bl.store(x, b)


BETA = [
    (beta_min, "min(first + 128, 500) of the index of nl.affine_range"),
    (beta_branch, "a branch on the index of nl.sequential_range"),
    (beta_count, "total += 1 in a loop of nl.affine_range, whose body is traced once"),
    (beta_allowed, None),
]


@pytest.mark.parametrize(("kernel", "what"), BETA, ids=[b[0].__name__ for b in BETA])
def test_beta_1_s_loops_are_traced_once(kernel, what):
    assert [f.what for f in neuron.lint(beta_jit(kernel))] == ([what] if what else [])


def test_lower_says_how_far_it_went():
    boxes = np.zeros((3, 5, 4), np.float32)
    for name, module in (("nki", "nki"), ("neuronxcc", "neuronxcc.nki")):
        if neuron.vendor.find(name):
            pytest.skip(f"{module} is installed")
        note = neuron.lower(functools.partial(giou, implementation=name), boxes, boxes)
        assert note == f"linted only: the vendor's compiler ({module}) is not installed"


def test_lower_refuses_what_the_lint_finds_and_passes_on_why_there_is_no_kernel():
    function = lambda x, *, interpret: neuron.run(jit(doubled), x, interpret=interpret)
    with pytest.raises(NeuronError, match="an operator on a tile, b"):
        neuron.lower(function, np.ones((4, 4), np.float32))  # even where it does not run
    with pytest.raises(NeuronError, match="no kernel was started"):
        neuron.lower(lambda x, *, interpret: x, np.ones(3))

    def function(x, *, interpret):
        raise ValueError("x is wrong")

    with pytest.raises(ValueError, match="x is wrong"):
        neuron.lower(function, np.ones(3))


def test_a_kernel_without_source_is_refused():
    scope = {}
    exec("def made(x):\n    return x", scope)
    with pytest.raises(NeuronError, match="the source of made is not to be had"):
        neuron.lint(jit(scope["made"]))
