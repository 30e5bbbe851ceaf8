"""The lint finds what a compiler refuses, says where, and leaves the rest alone."""

import functools
import math

import numpy as np
import pytest

from kernels import neuron
from kernels.giou import neuronxcc as old
from kernels.giou import nki as new
from kernels.neuron import NeuronError
from kernels.neuron.beta1 import jit as beta_jit
from kernels.neuron.beta1 import language as bl
from kernels.neuron.modern import isa as nisa
from kernels.neuron.modern import jit
from kernels.neuron.modern import language as nl


def plain(x, n=3):
    """Everything here is allowed."""
    rows, columns = x.shape
    assert rows <= nl.tile_size.pmax, f"{rows} rows"
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    tiles, names = [], {"a": 1}
    tiles.append(tile)
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
    for kernel in (jit(plain), new.giou_kernel, old.giou_kernel):
        assert neuron.lint(kernel) == []


def comprehension(x):
    return [nl.ndarray(x.shape, dtype=x.dtype) for _ in range(2)]


def generator(x):
    return sum(n for n in x.shape)


def try_(x):
    try:
        return x.shape
    except ValueError:
        return None


def with_(x):
    with open("file") as file:
        return file


def lambda_(x):
    return (lambda n: n + 1)(x.shape[0])


def inner_function(x):
    def inner(n):
        return n

    return inner(x.shape[0])


def raise_(x):
    raise ValueError(x.shape)


def operator(x):
    a = nl.ndarray(x.shape, dtype=x.dtype)
    b = a[:, 0:2]
    return b * 2.0


def negation(x):
    return -x[0:1, :]


def augmented(x):
    a = nl.ndarray(x.shape, dtype=x.dtype)
    a += 1.0
    return a


def comparison(x):
    return x[0, 0] > 3


def branch(x):
    if x[0:1, 0:1]:
        return x
    return None


def loop(x):
    for row in x[0:4, :]:
        return row


def assignment(x):
    a = nl.ndarray(x.shape, dtype=x.dtype)
    a[:, 0:1] = x
    return a


def mask(x):
    nisa.tensor_copy(dst=x, src=x, mask=x.shape[0] < 3)


def arange(x):
    return nl.arange(128)


def load(x):
    return nl.load(x)


def divide(x):
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.divide)


def no_dst(x):
    nisa.reciprocal(data=x)


def numpy_call(x):
    return np.zeros(x.shape)


def math_call(x):
    return math.ceil(x.shape[0] / 128)


def other_generation(x):
    return bl.zeros(x.shape, dtype=x.dtype)


@jit
def decorated(tile):
    nisa.memset(dst=tile, value=0.0)


def decorated_helper(x):
    decorated(x)


def in_a_helper(x):
    operator(x)


MODERN = [
    (comprehension, "a list comprehension is not in the kernel language", "appends to a list"),
    (generator, "a generator is not in the kernel language", "a for loop"),
    (try_, "try is not", "assert"),
    (with_, "with is not", "plain statements"),
    (lambda_, "a lambda is not", "beside the kernel"),
    (inner_function, "a function inside the kernel is not", "beside the kernel"),
    (raise_, "raise is not", "assert condition"),
    (operator, r"an operator on a tile, b * 2.0", "nisa.tensor_tensor"),
    (negation, "an operator on a tile, -x", "nisa.tensor_scalar"),
    (augmented, "an operator on a tile, a += 1.0", "nisa.tensor_tensor"),
    (comparison, "a comparison of a tile, x[0, 0] > 3", "nisa.tensor_scalar"),
    (branch, "a branch on a tile", "a condition on shapes"),
    (loop, "a loop over a tile", "a range, and slices"),
    (assignment, "assignment into a tile", "nisa.tensor_copy"),
    (mask, "mask= is gone", "min()"),
    (arange, "nl.arange is gone", "a slice"),
    (load, "nl.load is gone", "nisa.dma_copy"),
    (divide, "nl.divide is gone", "nisa.reciprocal"),
    (no_dst, "nisa.reciprocal without dst", "dst=tile"),
    (numpy_call, "a call of numpy.zeros in a kernel", "plain Python"),
    (math_call, "a call of math.ceil in a kernel", "plain Python"),
    (other_generation, "kernels.neuron.beta1.language.zeros in a kernel of modern NKI", "nki"),
    (decorated_helper, "decorated is called in a kernel and has @nki.jit", "without the decorator"),
    (in_a_helper, "an operator on a tile, b * 2.0", "nisa.tensor_tensor"),
]


@pytest.mark.parametrize(("kernel", "what", "instead"), MODERN, ids=[m[0].__name__ for m in MODERN])
def test_a_planted_fault_is_found(kernel, what, instead):
    from kernels.neuron.simulator import Kernel

    found = neuron.lint(Kernel(kernel, "nki"))
    assert len(found) == 1, found
    (finding,) = found
    assert what in finding.what and instead in finding.instead
    here = operator if kernel is in_a_helper else kernel
    first = here.__code__.co_firstlineno
    assert finding.file == "test_neuron_linter.py" and first < finding.line <= first + 8
    assert str(finding).endswith(f"(test_neuron_linter.py:{finding.line})")


def test_all_findings_are_told_at_once():
    @jit
    def kernel(x):
        a = nl.load(x)
        b = [n for n in x.shape]
        return a, b, x[0:1, :] + 1

    assert len(neuron.lint(kernel)) == 3


# --- beta 1 --------------------------------------------------------------------------------------


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
    found = neuron.lint(beta_jit(kernel))
    assert [f.what for f in found] == ([what] if what else [])


# --- lower ---------------------------------------------------------------------------------------


def test_lower_says_how_far_it_went():
    from kernels.giou import giou

    boxes = np.zeros((3, 5, 4), np.float32)
    for name, module in (("nki", "nki"), ("neuronxcc", "neuronxcc.nki")):
        if neuron.vendor.find(name):
            pytest.skip(f"{module} is installed")
        note = neuron.lower(functools.partial(giou, implementation=name), boxes, boxes)
        assert note == f"linted only: the vendor's compiler ({module}) is not installed"


def test_lower_refuses_what_the_lint_finds_even_where_it_does_not_run():
    def function(x, *, interpret):
        return neuron.run(jit(comprehension), x, interpret=interpret)

    with pytest.raises(NeuronError, match="a list comprehension is not in the kernel language"):
        neuron.lower(function, np.ones((4, 4), np.float32))


def test_lower_needs_a_kernel():
    with pytest.raises(NeuronError, match="no kernel was started"):
        neuron.lower(lambda x, *, interpret: x, np.ones(3))


def test_a_kernel_without_source_is_refused():
    scope = {}
    exec("def made(x):\n    return x", scope)
    with pytest.raises(NeuronError, match="the source of made is not to be had"):
        neuron.lint(jit(scope["made"]))


def test_a_call_that_fails_before_its_kernel_starts_says_why():
    def function(x, *, interpret):
        raise ValueError("x is wrong")

    with pytest.raises(ValueError, match="x is wrong"):
        neuron.lower(function, np.ones(3))
