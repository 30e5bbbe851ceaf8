"""Kernels around one call, for the tests of the simulated core."""

import numpy as np
from close import assert_close

from kernels import neuron
from kernels.machines.neuron import InterpretParams, beta1, modern
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import language as nl


def full(shape, value, dtype=nl.float32, buffer=nl.sbuf):
    """A new tile of one number."""
    tile = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.memset(tile, value)
    return tile


def made(shape, buffer=nl.sbuf, dtype=nl.float32):
    """A new tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def in_psum(tile):
    """A copy in PSUM."""
    copy = made(tile.shape, nl.psum, tile.dtype)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def into(shape, dtype, instruction, *arguments, **options):
    """What an instruction leaves in a tile of another shape than its source's."""
    tile = nl.ndarray(shape, dtype=dtype)
    instruction(tile, *arguments, **options)
    return tile


def fetched(x):
    """An argument, in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile, shape=None):
    """A tile, as the kernel's output; by way of SBUF, where it is in PSUM."""
    if tile.buffer == nl.psum:
        copy = nl.ndarray(tile.shape, dtype=tile.dtype)
        nisa.tensor_copy(copy, tile)
        tile = copy
    out = nl.ndarray(shape or tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out if shape is None else out[0 : tile.shape[0], 0 : tile.shape[1]], src=tile)
    return out


def run(body, *arrays, chip="inf2", dtype=None, shape=None):
    """body(dst, *tiles): what it returns, or leaves in dst, a tile of the first array's shape."""

    @modern.jit
    def kernel(*given):
        tiles = [fetched(g) for g in given]
        dst = nl.ndarray(shape or arrays[0].shape, dtype=dtype or arrays[0].dtype)
        result = body(dst, *tiles)
        return stored(dst if result is None else result)

    return neuron.simulate(kernel, *arrays, params=InterpretParams(chip=chip))


def old(body, *arrays):
    """body(*tiles) of beta 1: the tile that it makes."""

    @beta1.jit
    def kernel(*given):
        tile = body(*[bl.load(g) for g in given])
        out = bl.ndarray(tile.shape, dtype=tile.dtype, buffer=bl.shared_hbm)
        bl.store(out, tile)
        return out

    return neuron.simulate(kernel, *arrays)


def holds(result, formula, *arrays, magnitude=None):
    """A result keeps the error budget: the formula in float64 is the oracle, in float32 plain."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    plain = np.asarray(formula(*arrays)).astype(result.dtype)
    size = None if magnitude is None else magnitude(*wide)
    assert_close(result, np.asarray(formula(*wide)), plain, size)
