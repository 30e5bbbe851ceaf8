"""Wrong answers to the exercises of the last chapter, and what is said of each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels.giou import xla
from kernels.giou.formula import score
from kernels.machines.compat import jaxprs


def all_differences(x, y):
    return ((x[:, None] - y) ** 2).sum(-1)


def expanded(x, y, precision="highest", twice=2):
    products = jnp.dot(x, y.T, precision=precision)
    return (x * x).sum(1)[:, None] + (y * y).sum(1) - twice * products


def rounded(x, y):
    return expanded(x, y, precision=None)


def one_product(x, y):
    return expanded(x, y, twice=1)


def trusts_estimates(ours, theirs, our_band, their_band):
    return np.sign(theirs - ours).astype(np.int64)


def bands_of_one(ours, theirs, our_band, their_band):
    return (ours / (1 + our_band[0]) < theirs).astype(np.int64)


def one_number_for_a_band(ours, theirs, our_band, their_band):
    ours_off, theirs_off = abs(our_band).max(0), abs(their_band).max(0)
    surely = ours * (1 + ours_off) < theirs * (1 - theirs_off)
    hardly = theirs * (1 + theirs_off) < ours * (1 - ours_off)
    return surely.astype(np.int64) - hardly.astype(np.int64)


def multiplies_by_errors(ours, theirs, our_band, their_band):
    surely = ours * (1 + our_band[1]) < theirs * (1 + their_band[0])
    hardly = theirs * (1 + their_band[1]) < ours * (1 + our_band[0])
    return surely.astype(np.int64) - hardly.astype(np.int64)


def level_is_ahead(ours, theirs, our_band, their_band):
    surely = ours / (1 + our_band[0]) <= theirs / (1 + their_band[1])
    hardly = theirs / (1 + their_band[0]) < ours / (1 + our_band[1])
    return surely.astype(np.int64) - hardly.astype(np.int64)


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


def product_flops(function, *arguments, inside=True, turns=True, each=2):
    def count(jaxpr):
        found = 0
        for equation in jaxprs.own_equations(jaxpr):
            if jaxprs.operation(equation) == "dot_general":
                depth = int(np.prod(jaxprs.contracted(equation)))
                found += each * depth * int(np.prod(jaxprs.shape(jaxprs.outputs(equation)[0])))
            elif inside:
                repeated = turns and jaxprs.operation(equation) == "scan"
                times = jaxprs.scan(equation).length if repeated else 1
                found += times * sum(map(count, jaxprs.inner_jaxprs(equation)))
        return found

    return count(jax.make_jaxpr(function)(*arguments))


def looks_into_nothing(function, *arguments):
    return product_flops(function, *arguments, inside=False)


def one_turn(function, *arguments):
    return product_flops(function, *arguments, turns=False)


def multiply_adds(function, *arguments):
    return product_flops(function, *arguments, each=1)


WRONG = (
    ("distances", all_differences, "speed", "the bar is 150,000"),
    ("distances", rounded, "compile", "rounds its float32 factors to bfloat16"),
    ("distances", one_product, "interpret", "allowed"),
    ("ahead", trusts_estimates, "interpret", "estimated"),
    ("ahead", bands_of_one, "interpret", "estimated"),
    ("ahead", one_number_for_a_band, "interpret", "estimated"),
    ("ahead", multiplies_by_errors, "interpret", "estimated"),
    ("ahead", level_is_ahead, "interpret", "measured"),
    ("product_flops", multiply_adds, "interpret", "the result is 480, the reference 960"),
    ("product_flops", looks_into_nothing, "interpret", "on batched"),
    ("product_flops", one_turn, "interpret", "on loop"),
    ("giou_on_a_gpu", swaps_corners, "interpret", "allowed"),
    ("giou_on_a_gpu", a_block_of_its_own, "compile", "power of 2"),
    ("giou_on_a_gpu", no_kernel, "compile", "pallas_call"),
)
