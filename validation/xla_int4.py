"""XLA's own int4: weights as an array of jnp.int4, which it packs, against those kept in bytes.

    python -m validation xla-int4 [--chip v5e]

An opponent of quantized_matmul outside of its contract, whose int4 share a byte: the plain formula
of kernels.matmul.xla takes such an array as it is. In results/estimated.csv as "xla, jnp.int4".
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from kernels.figures.schema import Key, Record
from kernels.figures.store import add
from kernels.matmul import xla
from kernels.proof.catalog import OPERATORS

__all__ = ["layer", "record"]
NAME = "xla, jnp.int4"


def layer(x, y, y_scale, bias):
    """[m, k] floats, jnp.int4 [k, n], float32 [groups, n] and [n] → [m, n] in x's dtype."""
    return xla.quantized_matmul(x, y, None, y_scale, bias, out_dtype=str(x.dtype))


def record(chips: Iterable[str], workload: str = "decode_int4") -> list[Record]:
    """Estimate quantized_matmul's workload on each chip, and keep the records, which it returns.

    Raises:
        MissingPackage: without libtpu.
        TpuCompileError: for what the compiler refuses.
    """
    from kernels.machines.tpu.estimate import estimate

    problem = OPERATORS["quantized_matmul"].workloads[workload]
    m, k, n, groups = (problem.sizes[name] for name in ("m", "k", "n", "groups"))
    array = jax.ShapeDtypeStruct
    shapes = (
        *(array((m, k), problem.dtype), array((k, n), jnp.int4)),
        *(array((groups, n), jnp.float32), array((n,), jnp.float32)),
    )
    records = []
    for chip in chips:
        key = Key.of("quantized_matmul", NAME, problem, chip)
        records.append(key.estimated(estimate(layer, *shapes, chip=chip), workload))
    add("estimated.csv", records)
    return records
