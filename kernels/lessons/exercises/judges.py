"""What an exercise may ask of a program beyond its result: read from the trace, or compiled.

A judge takes the programs of an answer, each a function and its arrays; it returns what it found,
in a few words, or raises ladder.Refused with what is wrong.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from kernels.machines import gpu, neuron, tpu
from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.pallas.calls import calls_in
from kernels.proof.ladder import Refused

CHIP = "v5e"
Judge = Callable[[list[Any]], str]

# What an answer may do around its kernel: nothing of it computes.
AROUND = ("pallas_call", "reshape", "broadcast_in_dim", "squeeze", "expand_dims")


def _asking(judge: Callable[..., str]) -> Callable[..., Judge]:
    """Its limits first: a judge with these, which then takes the programs."""

    @functools.wraps(judge)
    def limited(*limits: Any, **named: Any) -> Judge:
        return lambda programs: judge(programs, *limits, **named)

    return limited


def _trace(programs: list[Any], place: int = 0) -> Any:
    function, arrays = programs[place]
    return jaxprs.trace(function, *arrays)


def only_kernel(programs: list[Any]) -> str:
    """Nothing but the kernel may compute."""
    outside = jax_pallas.outside_kernels(_trace(programs))
    # What runs another program, as jit does, is judged by that.
    run = [jaxprs.operation(e) for e in outside if not any(jaxprs.inner_jaxprs(e))]
    if names := [name for name in run if name not in AROUND]:
        raise Refused(f"{names[0]} runs outside the kernel, on an array in HBM")
    return "nothing runs outside the kernel"


def lowered(programs: list[Any]) -> str:
    """The lowering for a TPU takes every program; it knows blocks, dtypes and operations."""
    for function, arrays in programs:
        tpu.lower(function, *arrays, chip=CHIP)
    return f"lowered for a {CHIP}"


def both(*judges: Judge) -> Judge:
    """What several judges say."""
    return lambda programs: ", ".join(judge(programs) for judge in judges)


@_asking
def kernels(programs: list[Any], least: int) -> str:
    """At least so many pallas_calls in the last program: that of the gradient, if there is one."""
    count = len(calls_in(_trace(programs, -1)))
    if count < least:
        words = "kernels in the program, its gradients included"
        raise Refused(f"{words}: {count}, wanted {least}")
    return f"{count} kernel{'s' * (count != 1)}"


@_asking
def grid(programs: list[Any], dimensions: int, block: int) -> str:
    """The first kernel has a grid of so many dimensions, and no side of its blocks is longer."""
    (call, *_) = calls_in(_trace(programs))
    if len(call.grid) != dimensions:
        raise Refused(f"the grid is {call.grid}, wanted one of {dimensions} dimensions")
    for operand in call.operands:
        if max(operand.block) > block:
            words = f"a block of {operand.name} is {operand.block}"
            raise Refused(f"{words}, wanted at most {block} a side")
    return f"a grid of {call.grid}"


@_asking
def products(programs: list[Any], most: int) -> str:
    """No matrix product in a kernel may have more numbers than that."""
    sizes = [math.prod(jaxprs.shape(jaxprs.outputs(p)[0])) for p, _ in _products(programs)]
    if not sizes:
        raise Refused("no matrix product is left")
    if max(sizes) > most:
        raise Refused(f"a product of it has {max(sizes)} numbers, at most {most} wanted")
    return f"no product of more than {most} numbers"


def copies_ahead(programs: list[Any]) -> str:
    """A second copy is on its way before the kernel waits for the first."""
    names = map(jaxprs.operation, jaxprs.equations(_trace(programs)))
    order = [name for name in names if name in ("dma_start", "dma_wait")]
    if not order:
        raise Refused("the kernel starts no copy")
    started = order.index("dma_wait") if "dma_wait" in order else len(order)
    if started < 2:
        raise Refused(
            f"{started} copy is under way when the kernel first waits, wanted 2: the next one has "
            "to be started before"
        )
    return f"{started} copies are under way when it first waits"


def _products(programs: list[Any]) -> list[tuple[Any, list[str]]]:
    """The matrix products of the first program, and the dtypes of each one's factors."""
    return [
        (equation, [jaxprs.dtype(v) for v in jaxprs.inputs(equation)])
        for equation in jaxprs.equations(_trace(programs))
        if jaxprs.operation(equation) == "dot_general"
    ]


def int8_products(programs: list[Any]) -> str:
    """Some matrix product has int8 factors."""
    if not any(set(factors) == {"int8"} for _, factors in _products(programs)):
        raise Refused("no matrix product of it has int8 factors")
    return "it multiplies in int8"


def float32_products(programs: list[Any]) -> str:
    """No matrix product, in a kernel or outside, rounds its float32 factors on a TPU."""
    wide = [product for product, factors in _products(programs) if "float32" in factors]
    if any(jaxprs.precisions(product) != ("HIGHEST", "HIGHEST") for product in wide):
        raise Refused(
            'a product rounds its float32 factors to bfloat16 on a TPU; precision="highest" '
            "keeps them"
        )
    return "no factor is rounded"


@_asking
def fetches(programs: list[Any], **most: int) -> str:
    """An input's block may be fetched so many times, over the whole grid."""
    (call, *_) = calls_in(_trace(programs))
    notes = []
    for operand, (name, limit) in zip(call.inputs, most.items(), strict=False):
        times = int(operand.moved.sum())
        if times > limit:
            raise Refused(f"{name} is fetched {times} times, {limit} would do")
        notes.append(f"{name} is fetched {times} times")
    return ", ".join(notes)


@_asking
def schedule(programs: list[Any], *, bundles: int | None = None, spills: int | None = None) -> str:
    """The compiled kernel may have so many bundles in a grid step, and so many spills."""
    function, arrays = programs[0]
    kernel = tpu.schedule(function, *arrays, chip=CHIP)[0]
    if spills is not None and kernel.spills > spills:
        raise Refused(f"{kernel.spills} spills on a {CHIP}, at most {spills} wanted")
    if bundles is not None and kernel.step_bundles > bundles:
        raise Refused(
            f"{kernel.step_bundles} bundles in a step on a {CHIP}, at most {bundles} wanted"
        )
    return f"{kernel.step_bundles} bundles in a step, {kernel.spills} spills on a {CHIP}"


def for_hopper(program: Any) -> Any:
    """A function and its arrays → the kernels.gpu.GpuProgram that an H100 gets."""
    function, arrays = program
    return gpu.compile(function, *arrays, passes=False)


@_asking
def on_gpu(programs: list[Any], *, uses: str, registers: int = 255, blocks: int = 1) -> str:
    """The only kernel, compiled for an H100: no spill, at most so many registers a thread, at least
    so many blocks an SM, `uses` in its code, and each block of a result by one program alone."""
    for output in (o for call in calls_in(_trace(programs)) for o in call.outputs if o.blocked):
        if len(set(map(tuple, output.starts.tolist()))) < len(output.starts):
            raise Refused(f"several programs write one block of {output.name}, at once on a GPU")
    kernel = for_hopper(programs[0]).kernel()
    if kernel.spills:
        raise Refused(f"{kernel.spills} bytes spilled on an H100, none wanted")
    if kernel.registers > registers:
        raise Refused(f"{kernel.registers} registers a thread, at most {registers} wanted")
    held = kernel.occupancy
    if held.blocks < blocks:
        raise Refused(f"{held.blocks} block an SM because of {held.limiter}, {blocks} wanted")
    if missing := [name for name in uses.split() if not kernel.counts[name]]:
        raise Refused(f"no {missing[0]} in its machine code")
    many = f"{held.blocks} block{'s' * (held.blocks != 1)}"
    return f"{kernel.registers} registers, {many} an SM of an H100"


def no_relayout(programs: list[Any]) -> str:
    """No operation of the program compiled by XLA may only move data inside HBM."""
    module, _ = _compiled(programs)
    moves = [i for i in module.run if i.opcode in ("copy", "reshape") or module.only_moves(i)]
    if moves:
        move = moves[0]
        raise Refused(f"{move.opcode} {move.name} only moves data, to {move.results[0]}")
    return f"no relayout among {len(module.run)} operations on a {CHIP}"


@_asking
def read_by(programs: list[Any], most: int) -> str:
    """So many kernels of the program compiled by XLA may read an array as large as the first."""
    module, arrays = _compiled(programs)
    reading = [i for i in module.run if arrays[0].shape in [o.shape for o in i.operands]]
    readers = [i.name for i in reading if not i.opcode.startswith("copy-")]
    if len(readers) > most:
        raise Refused(f"{len(readers)} kernels read x: {', '.join(readers)}; wanted {most}")
    return f"x is read by {len(readers)} of {len(module.run)} operations on a {CHIP}"


def _compiled(programs: list[Any]) -> Any:
    function, arrays = programs[0]
    return tpu.hlo.parse(tpu.compile(function, *arrays, chip=CHIP, executable=False).hlo), arrays


def on_neuron(refusal: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """What runs an answer in NKI; refusal(estimate, *arrays) says what is wrong with its cost."""

    def call(kernel: Any, *arrays: Any, interpret: Any) -> Any:
        result = neuron.run(kernel, *arrays, interpret=interpret)
        simulated = isinstance(interpret, neuron.InterpretParams)
        words = refusal(neuron.estimate(kernel, *arrays), *arrays) if refusal and simulated else ""
        if words:
            raise Refused(words)
        return result

    return call
