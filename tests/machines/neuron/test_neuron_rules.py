"""As strict as the documents: each rule with a kernel that breaks it and one that keeps it."""

import inspect

import numpy as np
import pytest
from close import assert_close
from nkikernels import full, into, stored
from refused import refuses

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, modern
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl

X = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
CMD = nisa.reduce_cmd


def product(
    stationary=nl.bfloat16, moving=nl.bfloat16, dst=nl.float32, start=0, rows=32, n=64, **options
):
    """A kernel of one product; its operands have `rows` partitions from `start` on."""

    @jit
    def kernel(x):
        a = full((128, 64), 1.0, dtype=stationary)
        b = full((128, n), 1.0, dtype=moving)
        total = nl.ndarray((64, n), dtype=dst, buffer=nl.psum)
        end = start + rows
        nisa.nc_matmul(total, a[start:end, :], b[start:end, :], **options)
        return stored(total)

    return kernel


def elementwise(instruction):
    """A kernel of one instruction on a tile of x."""

    @jit
    def kernel(x):
        a = nl.load(x)
        b = nl.ndarray(a.shape, dtype=a.dtype)
        instruction(b, a)
        return stored(b)

    return kernel


def half_column(dtype=nl.float16):
    return full((128, 1), 0.5, dtype=dtype)


def simulate(kernel, x=X, chip="inf2"):
    return neuron.simulate(kernel, x, params=InterpretParams(chip=chip))


ILLEGAL = {  # what is refused, what the error says, what is not refused, and on which chip
    "float32 with bfloat16": (product(stationary=nl.float32),
        "is float32 and .* bfloat16; float32 and tfloat32 go with each other only",
        product(stationary=nl.float32, moving=nl.float32)),
    "a float16 destination": (product(dst=nl.float16), "on trn2: .* is float16; accepted: float32",
        product(), "trn2"),
    "a bfloat16 destination before v4": (product(dst=nl.bfloat16),
        "on trn2: .* is bfloat16; accepted: float32", product(), "trn2"),
    "operands from partition 5 on": (product(start=5),
        "starts at partition 5; 32 partitions may start at 0, 32, 64, 96", product(start=64)),
    "whole numbers": (product(stationary=nl.int8, moving=nl.int8), "is int8; accepted: float32",
        product(stationary=nl.float8_e4m3, moving=nl.bfloat16)),
    "513 moving columns": (product(n=513), "at most 128 stationary and 512 moving", product(n=512),
        "trn2"),
    "a tile of the engine of 32 rows on v2": (product(tile_position=(0, 0), tile_size=(32, 64)),
        "accepted: sizes 64, 128", product(tile_position=(0, 0), tile_size=(64, 64))),
    "a tile of the engine without a size": (product(tile_position=(64, 0)), "set both, or none",
        product(tile_position=(64, 0), tile_size=(64, 128))),
    "a float16 operand of tensor_scalar": (
        lambda b, a: nisa.tensor_scalar(b, a, nl.multiply, half_column()),
        "operand: tile .* is float16; accepted: float32",
        lambda b, a: nisa.tensor_scalar(b, a, nl.multiply, half_column(nl.float32))),
    "tensor_copy on the Scalar engine of v2": (
        lambda b, a: nisa.tensor_copy(b, a, engine=nisa.engine.scalar),
        "not supported on the Scalar engine of NeuronCore-v2; write nisa.activation",
        lambda b, a: nisa.activation(b, op=nl.copy, data=a)),
    "a maximum on the Scalar engine of v3": (
        lambda b, a: nisa.tensor_scalar(b, a, nl.maximum, 1.0, engine=nisa.engine.scalar),
        "nl.maximum on the Scalar engine of trn2; accepted: multiply and add, multiply, add",
        lambda b, a: nisa.tensor_scalar(b, a, nl.add, 1.0, engine=nisa.engine.scalar), "trn2"),
    "a number as bias on v2": (lambda b, a: nisa.activation(b, nl.exp, a, bias=0.5),
        "bias is the number 0.5, which needs NeuronCore-v3",
        lambda b, a: nisa.activation(b, nl.exp, a, bias=half_column(nl.float32))),
    "a reduction over partitions": (lambda b, a: nisa.tensor_reduce(b, op=nl.add, data=a, axis=0),
        r"axis is 0 of tile .*; accepted: \(1,\)",
        lambda b, a: nisa.tensor_reduce(b[:, 0:1], nl.add, a, 1) or nisa.memset(b, 0)),
    "an operation that does not reduce": (
        lambda b, a: nisa.tensor_reduce(b, op=nl.mod, data=a, axis=1),
        "nl.mod does not reduce; accepted: add, subtract, multiply, maximum, minimum",
        lambda b, a: nisa.tensor_copy(b, a)),
    "the sine of 9": (lambda b, a: nisa.activation(b, nl.sin, a, scale=100.0),
        "are out of the range in which the Scalar engine knows nl.sin: -3.14159 to 3.14159",
        lambda b, a: nisa.activation(b, nl.sin, a, scale=0.1)),
    "33 rows on the Vector engine": (
        lambda b, a: nisa.nc_transpose(b[0:64, 0:32], a[0:32, :], nisa.engine.vector),
        r"the Vector engine transposes at most \[32, 32\]",
        lambda b, a: (
            nisa.memset(b, 0) or nisa.nc_transpose(b[0:32, 0:32], a[0:32, 0:32], nisa.engine.vector)
        ),
    ),
    "an accumulator that nothing was put into": (
        lambda b, a: nisa.activation(b, nl.exp, a, reduce_op=nl.add, reduce_cmd=CMD.reduce),
        "nothing was put into the accumulators; start with reset_reduce",
        lambda b, a: nisa.activation(b, nl.exp, a, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_the_documents_forbid_is_refused_and_its_twin_is_not(name):
    kernel, says, twin, chip = (*ILLEGAL[name], "inf2")[:4]
    if inspect.isfunction(kernel):
        kernel, twin = elementwise(kernel), elementwise(twin)
    kernel, twin = (elementwise(k) if k.__name__ == "<lambda>" else k for k in (kernel, twin))
    with pytest.raises(NeuronError, match=says) as caught:
        simulate(kernel, chip=chip)
    assert "\n" not in str(caught.value) and simulate(twin, chip=chip) is not None


def scratch(x):
    """HBM that is written, read, and written again."""
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in range(2):
        nisa.dma_copy(between, tile)
        tile = nl.multiply(nl.load(between), 2.0)
    nl.store(out, tile)
    return out


def other_shapes(x):
    tile, out = nl.ndarray((64, 128), x.dtype), nl.ndarray((32, 256), x.dtype, nl.shared_hbm)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


copied = elementwise(lambda b, a: nisa.tensor_copy(b, a))
LEGAL = {
    "copies of as many elements": (jit(other_shapes), X, X.reshape(32, 256)),
    "scratch in HBM": (jit(scratch), X, 4 * X),
    "a number as bias from v3 on": (
        elementwise(lambda b, a: nisa.activation(b, nl.copy, a, bias=0.5, scale=2.0)),
        *(X, 2 * X + np.float32(0.5), "trn2")),
    "bfloat16 sums from v4 on": (product(dst=nl.bfloat16), X, np.full((64, 64), 32), "trn3"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_what_the_documents_allow_is_accepted(name):
    kernel, x, want, chip = (*LEGAL[name], "inf2")[:4]
    assert np.array_equal(simulate(kernel, x, chip), want)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_tensors_of_pytorch_come_back_as_such(name):
    @jit
    def kernel(x, y, dtype):
        assert dtype is np.float32
        tile = nl.load(x)
        nisa.dma_copy(y, tile)
        return stored(tile)

    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.ceil(X)).abs().to(getattr(torch, name))
    y = torch.zeros_like(x)
    got = modern.simulate(kernel)[1](x, dtype=np.float32, y=y)
    assert got.dtype == x.dtype and bool((got == x).all()) and bool((y == x).all())


@jit
def padded(x, use=False):
    """A tile of which 100 partitions are written, moved whole; perhaps its padding is used."""
    part, whole = (nl.ndarray((128, 64), dtype=x.dtype) for _ in range(2))
    nisa.dma_copy(part[0:100, :], x[0:100, :])
    nisa.tensor_copy(whole, part)
    out = nl.ndarray((128 if use else 100, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, whole if use else whole[0:100, :])
    return out


def test_padding_may_be_moved_and_must_not_reach_the_result():
    assert np.array_equal(simulate(padded), X[:100])
    says = (
        r"1792 of 8192 elements of the output .* are undefined: tensor_copy reads 1792 elements of "
        r"tile 1 \[128, 64\] in sbuf that were never written \(test_neuron_rules.py:\d+\)"
    )
    with pytest.raises(NeuronError, match=says):
        neuron.simulate(padded, X, True)


def summed(a):
    total = nl.ndarray((128, 1), dtype=nl.float32)
    into(a.shape, nl.float32, nisa.activation_reduce, nl.square, a, nl.add, total)
    return total


def in_psum(shape, instruction, *arguments):
    tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    instruction(tile, *arguments)
    return tile


def kept_of(a):
    return into(
        *(a.shape, nl.float32, nisa.affine_select),
        **{"pattern": [[-1, 65]], "offset": 63, "channel_multiplier": 0},
        **{"on_true_tile": a, "on_false_value": 0.0, "cmp_op": nl.greater_equal},
    )


THROUGH = {  # what one column of 65 that nobody wrote makes undefined
    "gathered": (lambda a: in_psum((64, 64), nisa.nc_matmul, a[:, 0:64], a[:, 0:64]), 0),
    "largest": (lambda a: into((128, 8), nl.float32, nisa.max8, a), 128 * 8),
    "ran": (
        lambda a: into(a.shape, nl.float32, nisa.tensor_tensor_scan, a, a, 0.0, nl.add, nl.add),
        128,
    ),
    "summed": (summed, 128),
    "turned": (lambda a: in_psum((65, 128), nisa.nc_transpose, a), 128),
    "added": (lambda a: into((128, 1), nl.float32, nisa.tensor_reduce, nl.add, a, axis=1), 128),
    "compared": (lambda a: into(a.shape, nl.float32, nisa.tensor_scalar, a, nl.greater, 0.0), 128),
    "kept_of": (kept_of, 0),
}


@pytest.mark.parametrize("name", THROUGH)
def test_what_is_undefined_is_followed_through(name):
    body, loose = THROUGH[name]

    @jit
    def kernel(x):
        a = nl.ndarray((128, 65), dtype=nl.float32)
        nisa.dma_copy(a[:, 0:64], x)
        return stored(body(a))

    if not loose:
        assert np.isfinite(simulate(kernel, chip="trn2")).all()
        return
    with pytest.raises(NeuronError, match=rf"^{loose} of \d+ elements of the output .* undefined"):
        simulate(kernel, chip="trn2")


def test_an_argument_that_is_written_in_part_keeps_the_rest():
    @jit
    def kernel(cache, x, first, scale):
        tile = nl.multiply(nl.load(x[0:32, :]), scale)
        nisa.dma_copy(cache[first : first + 32, :], tile)
        return cache

    got = neuron.simulate(kernel, np.ones_like(X), X, np.int64(32), np.float32(2))
    assert np.array_equal(got[32:64], 2 * X[:32]) and (np.delete(got, np.s_[32:64], 0) == 1).all()


def test_results_that_only_go_into_a_sum_may_be_thrown_into_one_place():
    @jit
    def kernel(x, use=False):
        tile = nl.load(x)
        place = nl.ndarray((128, 1), dtype=nl.bfloat16)
        total = nl.ndarray((128, 1), dtype=nl.float32)
        nisa.activation_reduce(
            place.ap([[1, 128], [0, 64]]), nl.square, tile, reduce_op=nl.add, reduce_res=total
        )
        out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        if use:
            nisa.tensor_copy(total, place)
        nisa.dma_copy(out, total)
        return out

    # The sum is of float32, whatever the results are cast to.
    want = (X.astype(np.float64) ** 2).sum(1, keepdims=True)
    assert_close(simulate(kernel), want, (X**2).sum(1, keepdims=True), want)
    with pytest.raises(NeuronError, match=r"128 of 128 elements of .* undefined|never written"):
        neuron.simulate(kernel, X, True)


def test_a_pattern_may_reach_out_of_a_tile_while_nobody_uses_it():
    @jit
    def kernel(x, use=False):
        tile = nl.load(x)
        beyond = tile.ap([[64, 128 - (use > 1)], [1, 32]], offset=33)
        nisa.tensor_copy(tile[: 128 - (use > 1), 0:32], beyond if use else tile[:, 32:64])
        return stored(tile)

    assert np.array_equal(simulate(kernel)[:, :32], X[:, 32:])
    for use, says in ((1, "reaches element 8192 of"), (2, "takes elements 33 to 64 of a part")):
        with pytest.raises(NeuronError, match=f"the pattern {says}"):
            neuron.simulate(kernel, X, use)


def test_a_tile_is_there_and_says_so():
    @jit
    def kernel(x):
        tile = nl.load(x)
        return stored(tile if tile else None)

    with pytest.warns(UserWarning, match="the truth of tile 1 .* numbers are not known"):
        simulate(kernel)


test_python_s_own_words_do_not_reach_the_reader = refuses(
    lambda body: simulate(elementwise(body)),
    (lambda b, a: -a, "the operator - on tile 1 .*: a tile has no operators"),
    (lambda b, a: np.exp(a), "np.exp of tile 1 .*: NumPy knows no tile"),
    (lambda b, a: np.concatenate([a, a]), "np.concatenate of tile 1"),
    (lambda b, a: abs(a), "the operator abs on tile 1"),
    (lambda b, a: nisa.tensor_tensor(b, a, a, nl.add, stride=2), "has no argument 'stride'"),
    error=NeuronError,
)


@pytest.mark.parametrize(("chip", "kib"), [("inf2", 192), ("trn2", 224), ("trn3", 256)])
def test_each_core_has_its_own_room(chip, kib):
    @jit
    def kernel(x, size):
        assert nl.tile_size.total_available_sbuf_size == kib * 1024
        assert int(nisa.get_nc_version()) == {"inf2": 2, "trn2": 3, "trn3": 4}[chip]
        nl.ndarray((128, size), dtype=nl.float32)
        return other_shapes(x)

    params = InterpretParams(chip=chip)
    neuron.simulate(kernel, X, kib * 256, params=params)
    with pytest.raises(NeuronError, match=f"which has {kib} KiB"):
        neuron.simulate(kernel, X, kib * 256 + 1, params=params)


@pytest.mark.parametrize("options", [{"platform_target": "trn3"}, {}])
def test_the_decorator_chooses_the_chip_or_the_vendor_s_variable(options, monkeypatch):
    @jit(**options)
    def kernel(x):
        assert nisa.get_nc_version() == nisa.nc_version.gen4
        return other_shapes(x)

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen2" if options else "trn3")
    assert nl.tile_size.total_available_sbuf_size == (192 if options else 256) * 1024
    assert neuron.simulate(kernel, X) is not None and neuron.run(kernel, X) is not None
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    with pytest.warns(UserWarning, match="NKI_PRECISE_FP=0 has no effect"):
        assert kernel(X) is not None
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "inf9")
    with pytest.raises(ValueError, match="TARGET_OVERRIDE is 'inf9'; accepted: inf2, trn1"):
        neuron.simulate(copied, X)
    with pytest.raises(ValueError, match="chip is 'trn9'; accepted: inf2, trn1, trn2, trn3"):
        InterpretParams(chip="trn9")
