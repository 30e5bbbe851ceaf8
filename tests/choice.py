"""Which workloads and chips the tests of the rungs take, by tier.

full is everything. test covers: over all kernels of an operator every kind of workload stands at
every rung, and every workload that says why it is there is judged at one; every kernel is compiled
for every chip. Without gradients, a workload that is simulated is not interpreted too, but for one
of each kernel: the same numbers are judged alike. Few stand at the one rung of a library's form,
and, over several chips, beside the simulation: the program of each device takes seconds to trace.
quick takes one workload of each, the same for all, and compiles it for one chip.
"""

import functools
import itertools

from kernels import ladder
from kernels.proof.backends.cuda import CUDA
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.pallas_tpu_mesh import PALLAS_TPU_MESH
from kernels.proof.backends.xla_mesh import XLA_MESH
from kernels.proof.catalog import OPERATORS, RUNGS

TIERS = ("quick", "test", "full")
DRAWS = 2  # random workloads beside the named ones
SEED = 1
FEW = 3
COST = {CUDA: 3, MOSAIC_GPU: 6}  # seconds of a workload beside those of another backend, roughly


def has_gradient(operator, implementation, workload):
    """Whether the rungs prove the gradients of this workload too."""
    smooth = workload.dtype in ("float32", "bfloat16") and workload.values != "nonfinite"
    return bool(operator.differentiable) and implementation.differentiable and smooth


def on_mesh(implementation):
    """Whether its workloads run on several chips."""
    return implementation.backend in (PALLAS_TPU_MESH, XLA_MESH)


def is_of_a_library(implementation):
    """Whether it is a library's form, which claims one rung, or a kernel that JAX ships."""
    return len(implementation.rungs) == 1 or implementation.name.startswith("jax_")


def offered(operator, implementation):
    """Everything that a claim is proven on in the tier full."""
    return ladder.workloads(operator, implementation, draws=DRAWS, seed=SEED)


def workloads(tier, operator, implementation, rung):
    """Those on which `implementation` is proven at `rung`."""
    if tier == "full":
        return offered(operator, implementation)
    if tier == "quick":
        return _few(operator, implementation, "")
    if is_of_a_library(implementation):
        return _few(operator, implementation, rung)
    return _chosen(operator.name)[rung, implementation.name]


def kinds(operator, implementation, workload, rung):
    """What a workload stands for at a rung: its dtype, values and options, and, where it has them,
    each of these with gradients, with a size that no tile divides, and with both."""
    named = {workload.dtype, workload.values, *workload.sizes, *workload.tuning}
    if not any(workload.options.values()):  # or else a mask may hide what another one lets through
        named.add(("plain", *workload.tuning))
    for name, v in workload.options.items():
        named.add((name, v if isinstance(v, (bool, str)) else getattr(v, "__name__", "")))
    uneven = any(size % 8 and size > 1 for size in workload.sizes.values())
    smooth = rung != "simulate" and has_gradient(operator, implementation, workload)
    marks = {"", "uneven" * uneven, "smooth" * smooth, "both" * (uneven and smooth)}
    return set(itertools.product(named, marks))


@functools.cache
def _chosen(name):
    """(rung, implementation's name) → workloads, of those that _cover deals."""
    operator, dealt, chosen = OPERATORS[name], {}, {}
    for rung in ("simulate", "interpret", "measure", "compile"):
        able = [i for i in operator.implementations if rung in i.rungs]
        kernels = [i for i in able if not is_of_a_library(i)]
        for kernel in kernels:
            share = _cover(operator, kernels, rung)[kernel.name]
            if on_mesh(kernel) and rung != "simulate":
                share = _few(operator, kernel, rung)
            stands_for = {w: kinds(operator, kernel, w, rung) for w in share}
            left, needed = set().union(*stands_for.values()), []
            few = len(kernel.backend.compiled_for) if rung == "compile" else 1
            while left or len(needed) < min(len(share), few):
                rest = [w for w in share if w not in needed]
                needed.append(max(rest, key=lambda w: len(stands_for[w] & left)))
                left -= stands_for[needed[-1]]
            dealt[rung, kernel.name], chosen[rung, kernel.name] = share, needed
    judged = {w for (rung, _), share in chosen.items() if rung != "compile" for w in share}
    for place, share in dealt.items():
        if place[0] != "compile":
            chosen[place] += [w for w in share if w.why and w not in judged]
            judged.update(share)
    return chosen


def _few(operator, implementation, rung):
    """The smallest named one that is more than one element; as many as chips, each of another kind
    if it can, of what is compiled."""
    named = [w for w in operator.workloads.named if implementation.accepts(w)]
    named.sort(key=lambda w: (w.name == "one", sum(w.sizes.values())))
    kinds = {}
    for workload in named:
        kinds.setdefault((workload.dtype, workload.values, tuple(workload.options)), workload)
    few = list(dict.fromkeys([*kinds.values(), *named]))
    return few[: max(1, len(implementation.backend.compiled_for)) if rung == "compile" else 1]


def _cover(operator, kernels, rung):
    """name → workloads: each goes where the work is least so far, and all get a few."""
    turn = RUNGS.index(rung)  # who comes first: so a kernel gets others at another rung
    kernels = [*kernels[turn % len(kernels) :], *kernels[: turn % len(kernels)]]
    takes = {each.name: offered(operator, each) for each in kernels}
    share = {name: [] for name in takes}
    for workload in dict.fromkeys(itertools.chain(*takes.values())):
        able = [i for i in kernels if workload in takes[i.name]]
        # A simulation is of the call alone.
        proves = [i for i in able if rung != "simulate" and has_gradient(operator, i, workload)]
        if rung == "interpret" and not proves and any("simulate" in each.rungs for each in able):
            continue
        least = min(proves or able, key=lambda i: (len(share[i.name]) + 1) * COST.get(i.backend, 1))
        share[least.name].append(workload)
    for each in kernels:
        dealt, spread = share[each.name], takes[each.name][:: max(1, len(takes[each.name]) // FEW)]
        few, smooth = FEW, any(has_gradient(operator, each, workload) for workload in spread)
        if rung == "interpret" and "simulate" in each.rungs and not smooth:
            few, spread = 1, spread[-1:]
        dealt += [w for w in spread if w not in dealt][: max(0, few - len(dealt))]
    return share


def chips(tier, operator, implementation, problems):
    """[(chips, workloads)]: what of `problems` is compiled for which of the backend's chips: in the
    tier test each for one, and each chip gets those with gradients and those without in turn."""
    known = implementation.backend.compiled_for
    if tier == "full" or len(known) < 2:
        return [(known, problems)]
    if tier == "quick":
        return [(known[:1], problems)]
    parts = {chip: [] for chip in known}
    turn = itertools.cycle(known)
    for smooth in (True, False):
        for workload in problems:
            if has_gradient(operator, implementation, workload) == smooth:
                parts[next(turn)].append(workload)
    return [((chip,), part) for chip, part in parts.items() if part]
