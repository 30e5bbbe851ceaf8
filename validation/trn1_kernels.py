"""Kernels that others timed on Trn1, written anew in beta 1: the same operations, sizes, blocks.

Running them through `estimate` and setting the result beside what was published says how far the
model can be trusted. Which of them a figure may be fitted to is settled by a hash of the name, and
every figure that was fitted stands in FITTED. `validation.trn1_times` keeps both in results/.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from kernels.machines.neuron import beta1 as nki
from kernels.machines.neuron.beta1 import isa as nisa
from kernels.machines.neuron.beta1 import language as nl
from kernels.machines.neuron.estimator import NeuronEstimate, estimate

__all__ = ["FIT", "FITTED", "HALVES", "KERNELS", "MAMBAS", "MATMULS", "TEST", "adamw"]
__all__ += ["adamw_folded"]
HALVES = FIT, TEST = "fit", "test"

TUTORIALS = "AWS Neuron documentation of SDK 2.20 to 2.26"
MATMULS = f"{TUTORIALS}, matrix multiplication tutorial (Trn1, bfloat16)"
MAMBAS = f"{TUTORIALS}, fused Mamba tutorial (Trn1, float32)"
NKIBENCH = (
    "zhang677/AccelOpt, experiments/full_complete_local/profile_results.csv (trn1.32xlarge, "
    "neuron-profile, float32)"
)
# What the fitted half says, by source. The tutorials' slowest product does nothing but copy: 5.436
# GB in 51.8 ms are 105 GB/s; nothing was fitted to the others of 2024. In NKIBench's silu the
# Vector engine is busy for 0.985 ms, in which it multiplies 448 times 512 elements by others, at
# 2 cycles each; what is left for the reciprocals is at most 2.8 cycles an element, where the
# documents say 8.
FITTED: Mapping[str, Mapping[str, float]] = {
    MATMULS: {"dma_bytes_per_second": 105e9},
    MAMBAS: {"dma_bytes_per_second": 105e9},
    NKIBENCH: {"reciprocal_cycles": 2.8},
}


@dataclass(frozen=True)
class TimedKernel:
    """A kernel of others, and how long it ran.

    Args:
        operator, version: what it computes, and which way.
        sizes: of the problem, as published.
        arguments: shapes.
        dtype: theirs.
        published_ms: on one core of Trn1.
        source: who says so.
    """

    operator: str
    version: str
    sizes: Mapping[str, int]
    kernel: Callable[..., Any]
    arguments: tuple[tuple[int, ...], ...]
    dtype: np.dtype
    published_ms: float
    source: str

    @property
    def name(self) -> str:
        """Operator and version."""
        return f"{self.operator} {self.version}".strip()

    @property
    def part(self) -> str:
        """Whether figures may be fitted to it: one of HALVES, settled by a hash."""
        return HALVES[hashlib.sha256(self.text.encode()).digest()[0] % 2]

    @property
    def text(self) -> str:
        """Name and sizes."""
        return " ".join([self.name, *(f"{name} {size}" for name, size in self.sizes.items())])

    def estimate(self, **options: Any) -> NeuronEstimate:
        """What the model says, with the figures that were fitted for this source."""
        shapes = [SimpleNamespace(shape=shape, dtype=self.dtype) for shape in self.arguments]
        return estimate(self.kernel, *shapes, chip="trn1", **{**FITTED[self.source], **options})


# --- products: xt [k, m], y [k, n] → [m, n] ------------------------------------------------------


def _rows(source: Any, first: int, count: int, left: int, width: int) -> Any:
    """So many tiles of 128 rows from `first` on, some columns of each, in SBUF."""
    tiles = nl.ndarray((count, nl.par_dim(128), width), dtype=source.dtype, buffer=nl.sbuf)
    at = nl.mgrid[0:128, 0:width]
    for step in nl.affine_range(count):
        tiles[step, at.p, at.x] = nl.load(source[first + step * 128 + at.p, left + at.x])
    return tiles


def _column(a: Any, b: Any, steps: int, up: int, right: int) -> Any:
    """The sum over steps of 128 rows of a, columns from `up`, times b's, from `right`, in PSUM."""
    total: Any = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    left, moving = nl.mgrid[0:128, 0:128], nl.mgrid[0:128, 0:512]
    for step in nl.affine_range(steps):
        total += nl.matmul(
            a[step, left.p, up + left.x], b[step, moving.p, right + moving.x], transpose_x=True
        )
    return total


def _leave(z: Any, total: Any, top: int, left: int) -> None:
    at = nl.mgrid[0:128, 0:512]
    nl.store(z[top + at.p, left + at.x], value=nl.copy(total, dtype=z.dtype))


@nki.jit
def tiled(xt: Any, y: Any) -> Any:
    """Every product fetches both of its tiles."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 512):
            total: Any = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for step in nl.affine_range(k // 128):
                a = nl.load(xt[step * 128 : step * 128 + 128, i * 128 : i * 128 + 128])
                b = nl.load(y[step * 128 : step * 128 + 128, j * 512 : j * 512 + 512])
                total += nl.matmul(a, b, transpose_x=True)
            _leave(z, total, i * 128, j * 512)
    return z


@nki.jit
def hoisted(xt: Any, y: Any) -> Any:
    """Columns of x are fetched once for all of y."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        a = _rows(xt, 0, k // 128, i * 128, 128)
        for j in nl.affine_range(n // 512):
            b = _rows(y, 0, k // 128, j * 512, 512)
            _leave(z, _column(a, b, k // 128, 0, 0), i * 128, j * 512)
    return z


@nki.jit
def blocked(xt: Any, y: Any) -> Any:
    """Blocks of 256 rows and 1024 columns of the result, fetched tile by tile."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 256):
        a = [_rows(xt, 0, k // 128, i * 256 + up * 128, 128) for up in range(2)]
        for j in nl.affine_range(n // 1024):
            b = [_rows(y, 0, k // 128, j * 1024 + right * 512, 512) for right in range(2)]
            for up in range(2):
                for right in range(2):
                    total = _column(a[up], b[right], k // 128, 0, 0)
                    _leave(z, total, i * 256 + up * 128, j * 1024 + right * 512)
    return z


@nki.jit
def all_blocked(xt: Any, y: Any) -> Any:
    """Blocks of 2048 rows, 1024 columns and 1024 of k; sums of blocks of k are added in SBUF."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    at = nl.mgrid[0:128, 0:512]
    for j in nl.affine_range(n // 1024):
        sums = nl.zeros((m // 2048, 16, 2, nl.par_dim(128), 512), dtype=xt.dtype, buffer=nl.sbuf)
        for block in nl.sequential_range(k // 1024):
            b = _rows(y, block * 1024, 8, j * 1024, 1024)
            for i in nl.affine_range(m // 2048):
                a = _rows(xt, block * 1024, 8, i * 2048, 2048)
                for right in nl.affine_range(2):
                    for up in nl.affine_range(16):
                        total = _column(a, b, 8, up * 128, right * 512)
                        sums[i, up, right, at.p, at.x] += total[at.p, at.x]
        for i in nl.affine_range(m // 2048):
            for up in nl.affine_range(16):
                row = nl.ndarray((128, 1024), dtype=z.dtype, buffer=nl.sbuf)
                for right in nl.affine_range(2):
                    row[at.p, right * 512 + at.x] = nl.copy(sums[i, up, right, at.p, at.x])
                wide = nl.mgrid[0:128, 0:1024]
                top = i * 2048 + up * 128
                nl.store(z[top + wide.p, j * 1024 + wide.x], value=row[wide.p, wide.x])
    return z


@nki.jit
def ragged(xt: Any, y: Any) -> Any:
    """Blocks of 1024 rows and of 1024 columns, the last of which is cut; all of k is held."""
    (k, m), n = xt.shape, y.shape[1]
    z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 1024):
        a = _rows(xt, 0, k // 128, i * 1024, 1024)
        for j in nl.static_range((n + 1023) // 1024):
            width = min(1024, n - j * 1024)
            b = _rows(y, 0, k // 128, j * 1024, width)
            for up in nl.affine_range(8):
                out = nl.ndarray((128, width), dtype=z.dtype, buffer=nl.sbuf)
                for right in range(0, width, 512):
                    wide = min(512, width - right)
                    total: Any = nl.zeros((128, wide), nl.float32, buffer=nl.psum)
                    one, other = nl.mgrid[0:128, 0:128], nl.mgrid[0:128, 0:wide]
                    for step in nl.affine_range(k // 128):
                        total += nisa.nc_matmul(
                            a[step, one.p, up * 128 + one.x], b[step, other.p, right + other.x]
                        )
                    out[other.p, right + other.x] = nl.copy(total)
                all_of = nl.mgrid[0:128, 0:width]
                top = i * 1024 + up * 128
                nl.store(z[top + all_of.p, j * 1024 + all_of.x], value=out)
    return z


# --- the state space of Mamba: delta, u [channels, l], a [channels, states], b, c [states, l] ----


def _scanned(delta: Any, u: Any, decay: Any, b: Any, c: Any, start: Any) -> tuple[Any, Any]:
    """One state: h = exp(delta decay) h + delta u b along the row; h, and h c."""
    raised = nisa.activation(op=nl.exp, data=delta, scale=decay)
    fed = nisa.tensor_tensor(delta, u, op=nl.multiply)
    fed = nisa.tensor_tensor(fed, b.broadcast_to(delta.shape), op=nl.multiply)
    h = nisa.tensor_tensor_scan(raised, fed, initial=start, op0=np.multiply, op1=np.add)
    return h, nisa.tensor_tensor(h, c.broadcast_to(delta.shape), op=nl.multiply)


@nki.jit
def states_outside(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """The loop over states outside: delta and u are fetched for each."""
    (channels, length), states = delta.shape, a.shape[1]
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    shape = channels // 128, nl.par_dim(128), length
    sums = nl.zeros(shape, dtype=delta.dtype)
    for state in nl.affine_range(states):
        for tile in nl.affine_range(channels // 128):
            top = tile * 128
            d = nl.load(delta[top : top + 128, 0:length])
            decay = nl.load(a[top : top + 128, state])
            v = nl.load(u[top : top + 128, 0:length])
            feed = nl.load(b[state : state + 1, 0:length])
            read = nl.load(c[state : state + 1, 0:length])
            sums[tile, 0:128, 0:length] += _scanned(d, v, decay, feed, read, 0)[1]
    for tile in nl.affine_range(channels // 128):
        nl.store(out[tile * 128 : tile * 128 + 128, 0:length], sums[tile, 0:128, 0:length])
    return out


@nki.jit
def states_inside(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """The loop over states inside: delta and u are fetched once."""
    (channels, length), states = delta.shape, a.shape[1]
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for tile in nl.affine_range(channels // 128):
        top = tile * 128
        total: Any = nl.zeros((nl.par_dim(128), length), dtype=delta.dtype)
        d = nl.load(delta[top : top + 128, 0:length])
        v = nl.load(u[top : top + 128, 0:length])
        for state in nl.affine_range(states):
            decay = nl.load(a[top : top + 128, state])
            feed = nl.load(b[state : state + 1, 0:length])
            read = nl.load(c[state : state + 1, 0:length])
            total[0:128, 0:length] += _scanned(d, v, decay, feed, read, 0)[1]
        nl.store(out[top : top + 128, 0:length], total[0:128, 0:length])
    return out


@nki.jit
def in_pieces(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """As states_inside, 512 elements of a row at a time."""
    (channels, length), states = delta.shape, a.shape[1]
    out = nl.ndarray((channels, length), dtype=delta.dtype, buffer=nl.shared_hbm)
    for tile in nl.affine_range(channels // 128):
        top = tile * 128
        total: Any = nl.zeros((nl.par_dim(128), length), dtype=delta.dtype)
        d = nl.load(delta[top : top + 128, 0:length])
        v = nl.load(u[top : top + 128, 0:length])
        for state in nl.affine_range(states):
            decay = nl.load(a[top : top + 128, state])
            start = nl.zeros((128, 1), dtype=delta.dtype)
            for piece in nl.static_range(length // 512):
                here = slice(piece * 512, piece * 512 + 512)
                feed, read = (
                    nl.load(b[state : state + 1, here]),
                    nl.load(c[state : state + 1, here]),
                )
                h, seen = _scanned(d[0:128, here], v[0:128, here], decay, feed, read, start)
                start[...] = h[0:128, 511]
                total[0:128, here] += seen
        nl.store(out[top : top + 128, 0:length], total[0:128, 0:length])
    return out


# --- elementwise, and norms around a product -----------------------------------------------------


@nki.jit
def silu(x: Any) -> Any:
    """x / (1 + exp(−x)) of [128, 32, 7168], in pieces of 1024, and those in halves."""
    p, rows, n = x.shape
    out = nl.ndarray((p, rows, n), dtype=x.dtype, buffer=nl.shared_hbm)
    lanes, whole, half = (
        nl.arange(128)[:, None],
        nl.arange(1024)[None, :],
        nl.arange(512)[None, :],
    )
    for row in nl.affine_range(rows):
        for piece in nl.affine_range(n // 1024):
            a = nl.load(x[lanes, row, piece * 1024 + whole])
            b = nl.ndarray((nl.par_dim(128), 1024), dtype=x.dtype, buffer=nl.sbuf)
            for part in nl.affine_range(2):
                here = a[lanes, part * 512 + half]
                raised = nisa.activation(op=nl.exp, data=here, scale=-1.0)
                below = nisa.tensor_scalar(raised, op0=nl.add, operand0=1.0)
                b[lanes, part * 512 + half] = nl.multiply(here, nisa.reciprocal(below))
            nl.store(out[lanes, row, piece * 1024 + whole], value=b)
    return out


@nki.jit
def adamw(theta: Any, gradient: Any, m: Any, v: Any) -> Any:
    """θ after a step of AdamW, of [rows, 2048]: 128 rows, 1024 columns and those in halves."""
    return _by_blocks(_adamw, theta, gradient, m, v)


@nki.jit
def adamw_folded(theta: Any, gradient: Any, m: Any, v: Any) -> Any:
    """As adamw; what combines a tile with itself takes one pass over it."""
    return _by_blocks(_adamw_folded, theta, gradient, m, v)


def _by_blocks(step: Any, theta: Any, gradient: Any, m: Any, v: Any) -> Any:
    rows, n = theta.shape
    out = nl.ndarray((rows, n), dtype=theta.dtype, buffer=nl.shared_hbm)
    lanes, whole, half = (
        nl.arange(128)[:, None],
        nl.arange(1024)[None, :],
        nl.arange(512)[None, :],
    )
    for block in nl.affine_range((rows + 127) // 128):
        inside = block * 128 + lanes < rows
        for piece in nl.affine_range(n // 1024):
            at = block * 128 + lanes, piece * 1024 + whole
            t, m0, v0, g = (nl.load(x[at], mask=inside) for x in (theta, m, v, gradient))
            new = nl.ndarray((nl.par_dim(128), 1024), dtype=theta.dtype, buffer=nl.sbuf)
            for part in nl.affine_range(2):
                here = lanes, part * 512 + half
                new[here] = step(t[here], g[here], m0[here], v0[here], inside)
            nl.store(out[at], value=new, mask=inside)
    return out


def _times(x: Any, factor: float, mask: Any) -> Any:
    return nisa.tensor_scalar(x, op0=nl.multiply, operand0=factor, mask=mask)


def _adamw(t: Any, g: Any, m: Any, v: Any, mask: Any) -> Any:
    decayed = nl.subtract(t, _times(t, 1e-5, mask), mask=mask)
    first = nl.add(_times(m, 0.9, mask), _times(g, 0.1, mask), mask=mask)
    square = nl.multiply(_times(g, 0.001, mask), g, mask=mask)
    return _stepped(decayed, first, _times(v, 0.999, mask), square, mask)


def _adamw_folded(t: Any, g: Any, m: Any, v: Any, mask: Any) -> Any:
    first = nl.add(_times(m, 0.9, mask), _times(g, 0.1, mask), mask=mask)
    square = nisa.activation(op=nl.square, data=g, scale=0.001**0.5, mask=mask)
    return _stepped(_times(t, 1 - 1e-5, mask), first, _times(v, 0.999, mask), square, mask)


def _stepped(decayed: Any, first: Any, second: Any, square: Any, mask: Any) -> Any:
    second = nl.add(second, square, mask=mask)
    root = nisa.activation(op=nl.sqrt, data=second, scale=1000.0, mask=mask)
    below = nisa.tensor_scalar(root, op0=nl.add, operand0=1e-8, mask=mask)
    step = nl.multiply(_times(first, 0.01, mask), nisa.reciprocal(below, mask=mask), mask=mask)
    return nl.subtract(decayed, step, mask=mask)


def _normed(x: Any, weight: Any, eps: float) -> Any:
    """x over the root of its rows' mean square, times weights [1, n]."""
    mean = nl.sum(nl.square(x), axis=[1]) / x.shape[1]
    scaled = nl.multiply(x, nl.rsqrt(nl.add(mean, eps)))
    return nl.multiply(scaled, weight.broadcast_to(x.shape))


def _product_of(x: Any, w: Any, left: int) -> Any:
    """x [128, k] times columns of w [k, n] from `left` on: 512 of them, fetched tile by tile."""
    total: Any = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for step in nl.affine_range(w.shape[0] // 128):
        b = nl.load(w[step * 128 : step * 128 + 128, left : left + 512])
        total += nl.matmul(x[:, step * 128 : step * 128 + 128], b)
    return nl.copy(total, dtype=x.dtype)


@nki.jit
def add_norm_product(x: Any, w: Any, z: Any, g: Any) -> Any:
    """norm(x + z, g) w of [m, k], [k, n], [m, k], [1, k]."""
    (m, k), n = x.shape, w.shape[1]
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.load(g)
    for i in nl.affine_range(m // 128):
        rows = slice(i * 128, i * 128 + 128)
        a = nl.add(nl.load(x[rows, 0:k]), nl.load(z[rows, 0:k]))
        normed = _normed(a, weight, 1e-6)
        for j in nl.affine_range(n // 512):
            nl.store(out[rows, j * 512 : j * 512 + 512], value=_product_of(normed, w, j * 512))
    return out


@nki.jit
def product_add_norm(x: Any, w: Any, z: Any, g: Any) -> Any:
    """norm(x w + z, g) of [m, k], [k, n], [m, n], [1, n]."""
    (m, k), n = x.shape, w.shape[1]
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.load(g)
    lanes, some = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for i in nl.affine_range(m // 128):
        rows = slice(i * 128, i * 128 + 128)
        a, whole = nl.load(x[rows, 0:k]), nl.ndarray((128, n), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(n // 512):
            whole[lanes, j * 512 + some] = _product_of(a, w, j * 512)
        added = nl.add(whole, nl.load(z[rows, 0:n]))
        nl.store(out[rows, 0:n], value=_normed(added, weight, 1e-6))
    return out


@nki.jit
def rotary(x: Any, cos: Any, sin: Any) -> Any:
    """x [128, s], cos and sin [64, s]: halves of the partitions turned, 512 columns at a time."""
    d, length = x.shape
    half = d // 2
    out = nl.ndarray((d, length), dtype=x.dtype, buffer=nl.shared_hbm)
    up, some = nl.arange(half)[:, None], nl.arange(512)[None, :]
    for piece in nl.affine_range(length // 512):
        here = piece * 512 + some
        a = nl.load(x[nl.arange(d)[:, None], here])
        c, s = nl.load(cos[up, here]), nl.load(sin[up, here])
        even, odd = a[up, some], nl.copy(a[up + half, some])
        turned = nl.ndarray((d, 512), dtype=x.dtype, buffer=nl.sbuf)

        def times(one: Any, other: Any) -> Any:
            return nisa.tensor_tensor(one, other, nl.multiply)

        turned[up, some] = nisa.tensor_tensor(times(even, c), times(odd, s), nl.subtract)
        turned[up + half, some] = nisa.tensor_tensor(times(odd, c), times(even, s), nl.add)
        nl.store(out[nl.arange(d)[:, None], here], turned)
    return out


# --- what they took ------------------------------------------------------------------------------

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def _product(version: str, kernel: Any, milliseconds: float) -> TimedKernel:
    sizes = {"M": 4096, "K": 8192, "N": 8192}
    shapes = (8192, 4096), (8192, 8192)
    return TimedKernel("matmul", version, sizes, kernel, shapes, BF16, milliseconds, MATMULS)


def _mamba(
    version: str, kernel: Any, channels: int, length: int, milliseconds: float
) -> TimedKernel:
    sizes = {"channels": channels, "L": length}
    row, states = (channels, length), 16
    shapes = row, row, (channels, states), (states, length), (states, length)
    return TimedKernel("mamba", version, sizes, kernel, shapes, F32, milliseconds, MAMBAS)


def _bench(
    operator: str, kernel: Any, sizes: dict[str, int], milliseconds: float, *shapes: tuple[int, ...]
) -> TimedKernel:
    return TimedKernel(operator, "", sizes, kernel, shapes, F32, milliseconds, NKIBENCH)


# Of NKIBench: eight kernels spill nothing, of which two more are products of the same kinds.
KERNELS = (
    _product("tiled", tiled, 51.80),
    _product("hoisted loads", hoisted, 42.96),
    _product("blocked free dimensions", blocked, 22.07),
    _product("fully optimised", all_blocked, 6.97),
    _mamba("v1", states_outside, 256, 512, 0.17293),
    _mamba("v1", states_outside, 4096, 512, 2.34),
    _mamba("v2", states_inside, 4096, 512, 1.61),
    _mamba("v3", in_pieces, 4096, 8192, 27.8),
    _bench("silu", silu, {"M": 4096, "N": 7168}, 1.333232, (128, 32, 7168)),
    _bench("adamw", adamw, {"M": 10944, "N": 2048}, 1.999829, *[(10944, 2048)] * 4),
    _bench(
        "add_rmsnorm_matmul",
        add_norm_product,
        {"M": 4096, "N": 2048, "K": 1024},
        1.221911,
        *[(4096, 1024), (1024, 2048), (4096, 1024), (1, 1024)],
    ),
    _bench(
        "matmul_add_rmsnorm",
        product_add_norm,
        {"M": 4096, "N": 2048, "K": 2048},
        2.66658,
        *[(4096, 2048), (2048, 2048), (4096, 2048), (1, 2048)],
    ),
    _bench(
        "transpose_matmul",
        ragged,
        {"M": 4096, "N": 10944, "K": 2048},
        9.610311,
        *[(2048, 4096), (2048, 10944)],
    ),
    _bench(
        "rope",
        rotary,
        {"H": 64, "N": 4096, "D": 128},
        4.33301,
        *[(128, 64 * 4096), (64, 64 * 4096), (64, 64 * 4096)],
    ),
)
