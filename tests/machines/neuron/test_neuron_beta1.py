"""Beta 1: a small kernel for each name, held against NumPy; grids, masks, and planted faults."""

import nkiarrays as like
import numpy as np
import pytest
from nkiarrays import RNG, WHOLE, X, Y, tiles
from nkikernels import holds, old

from kernels import neuron
from kernels.machines.neuron import InterpretParams, NeuronError, beta1
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl


def test_a_grid_of_beta_1():
    @beta1.jit
    def kernel(x):
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        i = bl.program_id(0) * 16 + bl.arange(16)[:, None]
        j = bl.program_id(1) * 24 + bl.arange(24)[None, :]
        bl.store(out[i, j], bl.load(x[i, j]) * 2.0)
        return out

    assert np.array_equal(kernel[bl.spmd_dim(bl.nc(2), 2), 2](X), 2 * X)
    assert np.array_equal(kernel[bl.nc(2) * 2, 2](X), 2 * X)


FEW = bl.arange(48)[None, :] < 20


def triangle(a):
    return bisa.affine_select(bl.arange(64)[:, None] >= bl.arange(48)[None, :], a, -1.0)


def masked_difference(a):
    tall, wide = bl.arange(128)[:, None], bl.arange(48)[None, :]
    inside, tile = (tall < 64) & (wide < 48), bl.ndarray((128, 48), dtype=a.dtype)
    tile[0:64, :] = a
    total = bl.sum(tile[tall, wide], axis=[1], keepdims=True, mask=inside)
    return bl.copy(bl.subtract(tile, total, mask=inside)[0:64, :])


def kept_under_a_mask(a):
    tile = bl.zeros((64, 48), bl.float32)
    tile[...] = bl.copy(a[bl.arange(48)[None, :] < 48], mask=FEW)
    tile[...] = bl.multiply(a, 2.0, mask=False)
    ran = bisa.tensor_tensor_scan(a, tile, 0.0, np.multiply, np.add, mask=bl.arange(48) < 40)
    return bl.copy(ran[:, 0:40])


def by_mesh(a):
    part, i = bl.ndarray((64, 24), dtype=a.dtype), bl.mgrid[0:64, 0:24]
    part[i.p, i.x] = a[i.p, 2 * i.x]
    return part


def by_blocks(a):
    blocks = bl.ndarray((3, bl.par_dim(64), 16), dtype=a.dtype)
    for block in bl.affine_range(3):
        blocks[block] = bisa.activation(bl.exp, a[:, bl.ds(16 * block, 16)])
    return blocks[2]


def summed_in_psum(a, b):
    total = bl.zeros((48, 48), dtype=bl.float32, buffer=bl.psum)
    for _ in bl.affine_range(2):
        total += bisa.nc_matmul(a, b)
    return bl.copy(total)


def reduced_beside(a):
    total = bl.ndarray((64, 1), dtype=bl.float32)
    bisa.activation_reduce(np.exp, a, reduce_op=np.add, reduce_res=total)
    return total


def all_of_a_kind(a):
    return bl.add(
        bl.full(a.shape, 2.0, bl.float32),
        bl.add(bl.ones(a.shape, bl.float32), bl.add(bl.zeros_like(a), bl.zeros(a.shape, a.dtype))),
    )


def products(x, y):
    return x.T @ y


def magnitude_of_products(x, y):
    return np.abs(x).T @ np.abs(y)


def norm(x, y):
    return x * y / np.sqrt((x * x).mean(1, keepdims=True) + x.dtype.type(1e-6))


def cumulated(a):
    tile = bl.ndarray(a.shape, dtype=bl.float32)
    bisa.tensor_scalar_cumulative(dst=tile, src=a, op0=np.multiply, op1=np.add, imm0=2.0)
    return tile


OLD = {
    "tensor_tensor": (lambda a, b: bisa.tensor_tensor(a, b, np.multiply), lambda x, y: x * y),
    "tensor_scalar": (lambda a: bisa.tensor_scalar(a, np.add, 1.0, op1=bl.multiply, operand1=3.0),
        lambda x: (x + 1) * 3),
    "scalar_tensor_tensor": (
        lambda a, b: bisa.scalar_tensor_tensor(
            data=a, op0=np.add, operand0=1.0, op1=np.multiply, operand1=b
        ),
        lambda x, y: (x + 1) * y,
    ),
    "tensor_reduce": (lambda a: bisa.tensor_reduce(np.max, a, axis=[1]),
        lambda x: x.max(1, keepdims=True)),
    "tensor_reduce with mask": (lambda a: bisa.tensor_reduce(np.add, a, axis=[1], mask=FEW),
        lambda x: like.sums(x[:, :20]),
        lambda x: like.sums(np.abs(x[:, :20]))),
    "tensor_scalar_cumulative": (cumulated, lambda x: np.cumsum(2 * x, 1),
        lambda x: np.cumsum(2 * np.abs(x), 1)),
    "reciprocal": (lambda a: bisa.reciprocal(a), lambda x: 1 / x),
    "activation": (lambda a, c: bisa.activation(np.exp, a, bias=c, scale=0.5),
        lambda x, c: np.exp(x / 2 + c)),
    "activation_reduce": (reduced_beside, lambda x: like.sums(np.exp(x))),
    "tensor_tensor_scan": (lambda a, b: bisa.tensor_tensor_scan(a, b, 0.0, np.multiply, np.add),
        like.scanned, like.magnitude_of_scan),
    "nc_matmul into a sum": (summed_in_psum, lambda x, y: 2 * products(x, y),
        lambda x, y: 2 * magnitude_of_products(x, y)),
    "nc_transpose": (lambda a: bl.copy(bisa.nc_transpose(a)), np.transpose),
    "nl.transpose": (lambda a: bl.copy(bl.transpose(a)), np.transpose),
    "nl.matmul": (lambda a, b: bl.copy(bl.matmul(a, b, transpose_x=True)), products,
        magnitude_of_products),
    "iota": (lambda a: bisa.iota(2 * bl.arange(64)[:, None] + bl.arange(48)[None, :], bl.int32),
        lambda x: 2 * np.arange(64)[:, None] + np.arange(48)),
    "affine_select": (triangle, like.triangle),
    "affine_select from PSUM": (lambda a: triangle(bl.transpose(bl.transpose(a))), like.triangle),
    "kept under a mask": (kept_under_a_mask,
        lambda x: like.scanned(x, np.where(FEW, x, 0))[:, :40]),
    "subtract with mask": (masked_difference, lambda x: x - like.sums(x)),
    "memset": (lambda a: bisa.memset((64, 3), 2.0, bl.float32), lambda x: np.full((64, 3), 2.0)),
    "mgrid": (by_mesh, lambda x: x[:, ::2]),
    "par_dim": (by_blocks, lambda x: np.exp(x[:, 32:])),
    "ds": (lambda a: bl.copy(a[:, bl.ds(4, 8)]), lambda x: x[:, 4:12]),
    "broadcast_to": (lambda a: bl.broadcast_to(a[0:1, :], shape=(64, 48)),
        lambda x: np.tile(x[:1], (64, 1))),
    "full, ones, zeros, zeros_like": (all_of_a_kind, lambda x: np.full_like(x, 3)),
    "gather_flattened": (lambda a, places: bl.gather_flattened(a, places), like.taken),
    "nl.rms_norm": (lambda a, b: bl.rms_norm(a, b, axis=1, n=48), norm),
    "nl.mean": (lambda a: bl.mean(a, axis=1), lambda x: x.mean(1, keepdims=True),
        lambda x: np.abs(x).mean(1, keepdims=True)),
    "nl.where": (lambda a, b: bl.where(bl.less(a, b), a, b), np.minimum),
    "nl.static_cast": (lambda whole: bl.static_cast(whole, bl.int32), lambda x: WHOLE),
    "max8": (lambda a: bisa.max8(src=a), like.largest_first),
    "bn_stats": (lambda a: bisa.bn_aggr(bisa.bn_stats(a)), like.moments,
        lambda x: like.moments(np.abs(x)) + 1),
    "tensor_partition_reduce": (lambda a: bisa.tensor_partition_reduce(np.add, a),
        lambda x: x.sum(0, keepdims=True), lambda x: np.abs(x).sum(0, keepdims=True)),
    "operators": (lambda a, b: (a - b) * 2.0 / (a * a + 1) + -a,
        lambda x, y: (x - y) * 2 / (x * x + 1) - x,
        lambda x, y: (np.abs(x) + np.abs(y)) * 2 / (x * x + 1) + np.abs(x)),
    "shared_constant": (lambda a: bl.load(bl.shared_constant(Y)), lambda x: Y),
    "shared_identity_matrix": (lambda a: bl.load(bl.shared_identity_matrix(8, dtype=bl.float32)),
        lambda x: np.eye(8)),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_beta_1(name):
    body, formula, *magnitude = OLD[name]
    arrays = tiles(body)
    holds(old(body, *arrays), formula, *arrays, magnitude=next(iter(magnitude), None))


def test_transposed_loads_and_masks_of_beta_1():
    @beta1.jit
    def kernel(x):
        n = 24 * bl.constants.sizeinbytes(bl.bfloat16)
        out = bl.ndarray((n, 64), dtype=bl.bfloat16, buffer=bl.shared_hbm)
        bl.store(out, bl.load_transpose2d(x.reshape(shape=(64, 48)), dtype=bl.bfloat16))
        return out

    assert np.array_equal(kernel(X.reshape(-1)), bl.static_cast(X.T, bl.bfloat16))  # on the host


def test_random_numbers_repeat_with_their_seed():
    def body(a):
        bl.random_seed(3)
        bl.rand(a.shape, bl.float32)
        bl.random_seed(3)
        return bl.rand(a.shape, bl.float32)

    drawn = old(body, X)
    assert np.array_equal(drawn, old(body, X)) and 0 <= drawn.min() < drawn.max() < 1


@pytest.mark.parametrize(("op", "like"), [(np.add, np.sum), (np.maximum, np.max)])
@pytest.mark.parametrize(("over", "n"), [("i", 3), ("j", 2), ("ij", 1)])
@pytest.mark.parametrize("order", [None, 3])
@pytest.mark.parametrize("loop", [bl.affine_range, bl.sequential_range, bl.static_range])
def test_loop_reduce(op, like, over, n, order, loop):
    @beta1.jit
    def kernel(x, assigned):
        totals = bl.zeros((n, bl.par_dim(64), 48), dtype=bl.float32) if assigned else {}
        out = bl.ndarray((n, 64, 48), dtype=bl.float32, buffer=bl.shared_hbm)
        for i in bl.affine_range(2):
            for j in (bl.affine_range if "j" in over else loop)(3):
                indices = [{"i": i, "j": j}[name] for name in over]
                part = bl.loop_reduce(bl.load(x[i, j]), op=op, loop_indices=indices)
                totals[int({"i": j, "j": i, "ij": 0}[over])] = part
        for at in range(n):
            bl.store(out[at], totals[at] * 2.0)
        return out

    x, axis = RNG.standard_normal((2, 3, 64, 48)).astype(np.float32), tuple(map("ij".index, over))
    magnitude = lambda x: 2 * np.abs(x).sum(axis)
    for assigned in (False, True):
        with pytest.warns(UserWarning, match="loop_reduce begins with its first tile"):
            got = neuron.simulate(kernel, x, assigned, params=InterpretParams(order=order))
        holds(got if n > 1 else got[0], lambda x: 2 * like(x, axis), x, magnitude=magnitude)


def test_annotations_and_allocators_of_beta_1_say_nothing():
    from kernels.machines.neuron import typing as nt
    from kernels.machines.neuron.beta1 import compiler as ncc

    @ncc.skip_middle_end_transformations
    @beta1.jit(platform_target="trn2")
    def kernel(x: nt.tensor):
        tile: nt.tensor[64, 48] = bl.ndarray(
            (bl.par_dim(64), 48), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0)
        )
        assert bisa.get_nc_version() == bisa.nc_version.gen3
        tile[...] = bl.load(x)
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, tile)
        return out

    assert np.array_equal(kernel(X), X)


def beta(kernel, *arguments, **options):
    return neuron.simulate(beta1.jit(kernel), *arguments, **options)


TALL = RNG.standard_normal((128, 64)).astype(np.float32)
P, F = bl.arange(128)[:, None], bl.arange(64)[None, :]
THIRTY_TWO = bl.arange(32)[:, None]


def beta_stores(body):
    """A kernel that stores what body(x, tile of x, bad) makes."""

    def kernel(x, bad):
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        bl.store(out, body(x, bl.load(x), bad))
        return out

    return kernel


def beta_no_mask(x, bad):
    out = bl.ndarray((100, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    bl.store(out[P, F], bl.load(x[P, F], mask=P < 100), mask=None if bad else P < 100)
    return out


def beta_stride(x, bad):
    out = bl.ndarray((64, 64), dtype=x.dtype, buffer=bl.shared_hbm)
    bl.store(out, bl.load(x)[(2 if bad else 1) * bl.arange(64)[:, None], F] + 1.0)
    return out


def beta_start(x, bad):
    out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
    tile = bl.load(x)
    for part in range(4):
        shift = 16 if bad and part == 0 else 32 * part
        bl.store(out[32 * part + THIRTY_TWO, F], tile[shift + THIRTY_TWO, F] * 2.0)
    return out


BETA_FAULTS = {
    "mixed index": (beta_stores(lambda x, t, bad: bl.load(x[P, 0:64] if bad else x[P, F])),
        "one a slice; accepted: for each a grid of nl.arange"),
    "grids": (beta_stores(lambda x, t, bad: bl.load(x[P, F[..., None] if bad else F])),
        "indexed by grids of .* which cannot be broadcast to each other"),
    "widths": (beta_stores(lambda x, t, bad: t + t[:, 0 : 2 if bad else 1]),
        "cannot be broadcast to each other"),
    "load of a tile": (beta_stores(lambda x, t, bad: bl.load(t) if bad else t),
        "load: src tile 1 .*; accepted: a tensor in HBM"),
    "store into a tile": (beta_stores(lambda x, t, bad: bl.store(bl.load(x), t) if bad else t),
        "store: dst tile 2 .*; accepted: a tensor in HBM"),
    "store of other shapes": (beta_stores(lambda x, t, bad: t[:, 0:32] if bad else t),
        "store: .* differ in shape"),
    "start": (beta_start, "starts at partition 16"),
    "too many rows": (beta_stores(lambda x, t, bad: t[bl.arange(128 + bad)[:, None], F] + 1.0),
        "has 129 partitions"),
    "numbers": (beta_stores(lambda x, t, bad: t + (bl.add(1.0, 2.0) if bad else 3.0)),
        "add of 1.0 and 2.0: at least one operand is a tile"),
    "text": (beta_stores(lambda x, t, bad: t + ("1" if bad else 1.0)),
        "an operand is a str; accepted: tiles and numbers"),
    "no mask": (beta_no_mask, "store: .* out of bounds|takes .* that a mask had left out"),
    "masked garbage": (
        beta_stores(lambda x, t, bad: bl.load(x[P, F], mask=(100 if bad else 128) > P) + 1.0),
        "store takes 1792 undefined elements .* that a mask had left out"),
    "HBM operand": (beta_stores(lambda x, t, bad: t + (x if bad else t)), "nl.load it first"),
    "stride": (beta_stride, "takes partitions with a step"),
    "and": (beta_stores(lambda x, t, bad: bl.load(x, mask=(P < 128 and F < 64) if bad else None)),
        "neither true nor false: join masks with &"),
    "loop_reduce": (
        beta_stores(lambda x, t, bad: bl.loop_reduce(t, op=np.add, loop_indices=[0]) if bad else t),
        r"loop_reduce over \[0\]; accepted: indices of"),
}  # fmt: skip


@pytest.mark.parametrize("name", BETA_FAULTS)
def test_a_fault_in_beta_1_is_refused_and_its_twin_is_not(name):
    kernel, says = BETA_FAULTS[name]
    assert beta(kernel, TALL, False) is not None
    with pytest.raises(NeuronError, match=says):
        beta(kernel, TALL, True)


def test_what_comes_last_is_known_unless_iterations_do_it():
    def kernel(x, loop):
        out = bl.ndarray((64, 64), dtype=x.dtype, buffer=bl.shared_hbm)
        for i in loop(2):
            bl.store(out, bl.load(x[64 * i : 64 * i + 64, :]))
        return out

    with pytest.warns(UserWarning, match=r"a second time: .* the order written is kept"):
        assert np.array_equal(beta(kernel, TALL, range), TALL[64:])
    with pytest.raises(NeuronError, match=r"store writes 4096 elements of .* a second time"):
        beta(kernel, TALL, bl.affine_range)


def test_simulate_kernel_writes_into_its_arguments():
    def kernel(x, out):
        bl.store(out, bl.load(x) * 2.0)

    out = np.empty_like(X)
    beta1.simulate_kernel(beta1.jit(kernel), X, out)
    assert np.array_equal(out, 2 * X)
