"""Kernels of tokamax for a TPU, called at blocks of our own and held against plain references."""

import jax.numpy as jnp
import numpy as np
from jax_kernels import attention, grouped, groups, normal

import kernels
from validation import tokamax_door as tokamax

HEADS = dict(block_q=128, block_kv=128, block_kv_compute=128, use_experimental_scheduler=False)
LAYOUTS = {f"{name}_layout": 1 for name in "qkv"}  # the features last, as its tunings have it


def tokens_first(rng):
    return tuple(normal(rng, 1, 256, 2, 128) for _ in "qkv")


def attention_tokens_first(q, k, v):
    swapped = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
    return jnp.swapaxes(attention(*swapped), 1, 2)


@kernels.proves(attention_tokens_first, arguments=tokens_first, values=("given",))
def tokamax_attention(q, k, v):
    attend = tokamax.function(tokamax.op("attention", "tpu", HEADS | LAYOUTS))
    return attend(q, k, v, logits_scale=128**-0.5)


@kernels.proves(grouped, arguments=groups, values=("given",))
def tokamax_ragged_dot(lhs, rhs, group_sizes):
    product = tokamax.function(tokamax.op("ragged_dot", "tpu", {}))
    return product(lhs, rhs, group_sizes=jnp.asarray(group_sizes, np.int32))
