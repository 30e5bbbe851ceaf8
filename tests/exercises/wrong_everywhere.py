"""Wrong answers to the exercises of the last chapter, and what is said of each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels.giou import xla
from kernels.giou.formula import score


def never_gives_up(share, wanted):
    return share / (1 / wanted - (1 - share))


def forgets_the_rest(share, wanted):
    return 1 + (wanted - 1) / share


def trusts_estimates(ours, theirs, our_band, their_band):
    return np.sign(theirs - ours).astype(np.int64)


def bands_of_one(ours, theirs, our_band, their_band):
    return (ours * (1 + our_band) < theirs).astype(np.int64)


def giou(preds, targets, *, interpret, block=256):
    def kernel(preds_ref, targets_ref, o_ref):
        pairs = pl.program_id(0) * block + jnp.arange(block)
        inside = pairs < o_ref.shape[0]
        pred, target = (
            [plgpu.load(ref.at[4 * pairs + c], mask=inside, other=0.0) for c in range(4)]
            for ref in (preds_ref, targets_ref)
        )
        plgpu.store(o_ref.at[pairs], score(pred, target), mask=inside)

    samples, boxes, _ = preds.shape
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((samples * boxes,), preds.dtype),
        grid=(pl.cdiv(samples * boxes, block),),
        compiler_params=plgpu.CompilerParams(),
        interpret=interpret,
    )(preds.reshape(-1), targets.reshape(-1)).reshape(samples, boxes)


def a_block_of_its_own(preds, targets, *, interpret):
    return giou(preds, targets, interpret=interpret, block=100)


def no_kernel(preds, targets, *, interpret):
    return xla.giou(preds, targets)


def swaps_corners(preds, targets, *, interpret):
    return giou(preds[..., ::-1], targets, interpret=interpret)


def forgets_the_gradients(blocks, rows, width):
    return 1e3 * blocks * 2 * rows * 12 * width**2 / 197e12


def in_seconds(blocks, rows, width):
    return 3 * blocks * 2 * rows * 12 * width**2 / 197e12


WRONG = (
    ("needed_speedup", never_gives_up, "interpret", "not finite"),
    ("needed_speedup", forgets_the_rest, "interpret", "allowed"),
    ("ahead", trusts_estimates, "interpret", "estimated"),
    ("ahead", bands_of_one, "interpret", "estimated"),
    ("linears_at_peak", forgets_the_gradients, "interpret", "allowed"),
    ("linears_at_peak", in_seconds, "interpret", "allowed"),
    ("giou_on_a_gpu", swaps_corners, "interpret", "allowed"),
    ("giou_on_a_gpu", a_block_of_its_own, "compile", "power of 2"),
    ("giou_on_a_gpu", no_kernel, "compile", "pallas_call"),
)
