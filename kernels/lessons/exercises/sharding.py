"""Exercises of the chapter "Sharding, and what it sends"."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from kernels.lessons.exercises.bars import CHIP, Bar, at
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.machines import tpu
from kernels.proof.backends.pallas_tpu_mesh import over
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.xla import XLA
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases, values

CHIPS = 8  # along the axis "x"
SHARE = 1 - 1 / CHIPS  # of an array, that a chip sends on a ring

# What is compiled to count the bytes.
ROWS, DEPTH, COLUMNS = 64, 1024, 256
WIDE = at(chips=CHIPS, rows=ROWS, columns=COLUMNS)
LEARNING = at("bfloat16", chips=CHIPS, batch=DEPTH, rows=DEPTH // CHIPS, columns=COLUMNS)
TOKENS = at(chips=CHIPS, tokens=DEPTH, width=COLUMNS)


def on_each(answer, *arrays):
    """Run what each chip runs, on all of them: the first dimension of an array is the chips'."""
    return jax.jit(jax.vmap(answer, axis_name="x"))(*arrays)


def sent(answer, arrays):
    """(kind, bytes) of what a chip sends, in the program that is compiled for a ring of chips."""
    whole = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    cut = {"mesh": {"x": CHIPS}, "in_specs": (P("x"),) * len(whole), "out_specs": P("x")}
    call = over(lambda *parts: answer(*(part[0] for part in parts))[None], **cut)
    return tpu.hlo.parse(tpu.compile(call, *whole, chip=CHIP, executable=False, **cut).hlo).sent


def sending(figure, workload, per, bar, ours):
    """A bar of bytes sent, per so many of what the figure names."""
    measure = lambda tried: sum(size for _, size in sent(tried.answer, tried.arguments)) / per
    return Bar(figure, measure, bar, ours, ",.4g", workload)


def _smooth(x):
    rows = x.reshape(-1, x.shape[-1])
    return ((np.roll(rows, 1, 0) + rows + np.roll(rows, -1, 0)) / 3).reshape(x.shape)


def _gradient(part, x, y):
    """The rows of w, and a batch of examples, of each chip."""
    w, x, y = (a.reshape(-1, a.shape[-1]) for a in (part, x, y))
    return (x.T @ (x @ w - y)).reshape(part.shape)


def _losses(logits, labels):
    whole = np.concatenate([*logits], axis=1)
    above = whole - whole.max(1, keepdims=True)
    mine = above[np.arange(len(whole)), labels[0]]
    return (np.log(np.exp(above).sum(1)) - mine).reshape(len(logits), -1)


def _labelled(workload, rng):
    chips, tokens, width = workload.sizes.values()
    logits = values(workload.values, (chips, tokens, width), workload.dtype, rng)
    return logits, np.stack([rng.integers(chips * width, size=tokens).astype(np.int32)] * chips)


def _layer_specs(answer, x, inward, outward, *, interpret):
    """Whether four specs came; and for the judge the specs themselves."""
    specs = answer()
    kinds = [type(spec) for spec in specs] if isinstance(specs, tuple) else []
    if kinds != [P] * 4:
        raise Refused(f"{specs!r} is returned, wanted: four of PartitionSpec")
    return np.True_ if interpret else specs


def _exchanges_sums(programs):
    """Compiled over 2 × 2 chips, only the result's sums are exchanged, and no chip holds more than
    half of the arguments.
    """
    function, arguments = programs[0]
    *in_specs, out = function(*arguments)
    mesh = {"x": 2, "y": 2}
    options = {"mesh": mesh, "in_specs": tuple(in_specs), "out_specs": out, "executable": False}
    layer = lambda x, inward, outward: jnp.maximum(x @ inward, 0) @ outward
    compiled = tpu.compile(layer, *arguments, chip=CHIP, **options)
    held, half = compiled.memory.arguments, sum(a.nbytes for a in arguments) // 2
    if held > half:
        raise Refused(f"a chip holds {held} bytes of arguments, at most {half}")
    exchanges = tpu.hlo.parse(compiled.hlo).collectives
    words = ", ".join(f"{i.opcode} over {i.group_size} chips" for i in exchanges) or "none"
    if [i.opcode for i in exchanges] != ["all-reduce"]:
        raise Refused(f"the exchanges are {words}; wanted is one all-reduce")
    if (size := exchanges[0].results[0].bytes) > (most := arguments[0].nbytes // 2):
        raise Refused(f"{words} of {size} bytes on each; half of the result are {most}")
    return f"{words}, {held} bytes of arguments on each of 4 chips"


on_chips = functools.partial(Exercise, call=on_each, backend=XLA, rungs=("interpret",))
EXERCISES = (
    on_chips(
        "smooth_rows",
        _smooth,
        drawn("chips rows columns"),
        cases(
            "chips rows columns",
            several=(4, 3, 5),
            one_row=(8, 1, 3, "both neighbours are on other chips"),
        ),
        magnitude=lambda x: _smooth(abs(x)),
        bar=sending("rows sent by a chip", WIDE, 4 * COLUMNS, bar=2, ours=2),
    ),
    Exercise(
        "layer_specs",
        lambda x, inward, outward: np.True_,
        drawn("n d", "d hidden", "hidden d"),
        cases("n d hidden", wide=(512, 256, 1024), again=(512, 256, 1024)),
        call=_layer_specs,
        backend=PYTHON,
        judge=_exchanges_sums,
    ),
    on_chips(
        "sharded_gradient",
        _gradient,
        drawn("chips rows columns", "chips batch chips*rows", "chips batch columns"),
        cases("chips batch rows columns", several=(4, 3, 2, 5), two=(2, 8, 16, 8)),
        magnitude=lambda part, x, y: _gradient(abs(part), abs(x), -abs(y)),
        bar=sending(
            "times the bytes of w, sent by a chip",
            *(LEARNING, 2 * DEPTH * COLUMNS, 2 * SHARE, 2 * SHARE),
        ),
    ),
    on_chips(
        "sharded_losses",
        _losses,
        _labelled,
        cases(
            "chips tokens width",
            several=(4, 8, 5),
            narrow=(2, 6, 1),
            large=(4, 16, 32, {"values": "wide"}, "an exponential overflows"),
        ),
        magnitude=lambda logits, labels: (
            _losses(logits, labels) + 2 * abs(logits).max((0, 2)).reshape(len(logits), -1)
        ),
        bar=sending(
            "bytes sent by a chip for each token", TOKENS, DEPTH, bar=16 * SHARE, ours=8 * SHARE
        ),
    ),
)
