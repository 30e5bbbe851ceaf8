"""Exercises of the chapter "Depthwise convolution in Taichi"."""

import numpy as np

from kernels.depthwise_conv import reference
from kernels.lessons.exercises.bars import Bar, at
from kernels.lessons.exercises.counted import counted
from kernels.lessons.exercises.exercise import Exercise, drawn, numbers
from kernels.machines import taichi
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload, cases, values

MOST_LOADS, LOADS_OURS = 0.4, 0.327  # for each product: the bar, and our own; v3 has 0.512
MOST_ACCESSES = 16  # for each step of a row: one pass has 3 or 4, sums of all steps have 257


def _loads(tried):
    w, k = tried.arguments
    b, c, t = k.shape
    return counted(tried.answer, np.empty_like(k), w, k).loads / (b * c * t * (t + 1) / 2)


def _linear(*like):
    """A bar that T² steps a row miss; like: the arguments that results have the shape of."""

    def accesses(tried):
        blank = (np.zeros_like(tried.arguments[i]) for i in like)
        return counted(tried.answer, *blank, *tried.arguments).accesses / tried.arguments[1].size

    figure, sizes = "loads and stores for each step", at(b=2, c=3, t=256)
    return Bar(figure, accesses, MOST_ACCESSES, None, workload=sizes)


def _decaying(workload, rng):
    b, c, t = (workload.sizes[name] for name in "bct")
    a = rng.uniform(0.5, 0.99, c).astype(np.float32)
    return a, values(workload.values, (b, c, t), "float32", rng)


def _decayed(a, k):
    lags = np.arange(k.shape[-1])[::-1]
    return reference.depthwise_conv(a[:, None] ** lags, k)


def _launch(kernel, a, k):
    out = np.full(k.shape, np.nan, k.dtype)  # what nobody writes is seen
    taichi.launch(kernel.made(), out, a, k)
    return out


def _decaying_pull(workload, rng):
    a, k = _decaying(workload, rng)
    return a, k, values("normal", k.shape, "float32", rng)


def _pull(a, k, g):
    """Each lag by itself, as the sums are written; the gradients of k and, last, of a: flat."""
    steps = k.shape[-1]
    a, of_k, of_a = a[:, None], np.zeros_like(k), np.zeros_like(a)
    for d in range(steps):
        later, earlier = g[..., d:], k[..., : steps - d]
        of_k[..., : steps - d] += a**d * later
        of_a += d * a[:, 0] ** max(d - 1, 0) * (later * earlier).sum((0, 2))
    return np.append(of_k, of_a)


def _launch_pull(kernel, a, k, g):
    out, state = np.empty_like(k), np.zeros_like(k[..., 0])
    for t in range(k.shape[-1]):
        out[..., t] = state = a * state + k[..., t]
    of_k, of_a = np.full(k.shape, np.nan, k.dtype), np.full(a.shape, np.nan, k.dtype)
    taichi.launch(kernel.made(), of_k, of_a, a, out, g)
    return np.append(of_k, of_a)


def _causal(w, k, eps):
    """The reference itself."""
    return reference.depthwise_conv(w, k, eps)


def _circular(w, k, eps):
    """The end of a row comes round to its beginning."""
    steps = k.shape[-1]
    spectrum = np.fft.rfft(w[:, ::-1], steps) * np.fft.rfft(k, steps)
    return (eps + np.fft.irfft(spectrum, steps)).astype(k.dtype)


def _one_ahead(w, k, eps):
    """Each step sees the one after it too."""
    return _causal(w, k, eps) + np.append(k[..., 1:], 0 * k[..., :1], -1)


def _first_only(w, k, eps):
    """Causal but for the first step, which sees the middle."""
    out = _causal(w, k, eps)
    out[..., 0] += k[..., k.shape[-1] // 2]
    return out


def _centred(w, k, eps):
    """The mean of a row is taken away before: it is a mean of the future too."""
    return _causal(w, k - k.mean(-1, keepdims=True), eps)


# Each function, and whether it is causal.
JUDGED = ((_causal, True), *((f, False) for f in (_circular, _one_ahead, _first_only, _centred)))


def _about(name, functions):
    """An exercise that asks an answer about each of these functions, and knows what is right."""

    def call(answer, number, *, interpret):
        function, right = functions[number]
        with np.errstate(all="ignore"):  # there may be infinities
            said = np.asarray(answer(function))
        if said.dtype != bool or said.shape:
            raise Refused(f"the result is {said}, where True or False is wanted")
        if said != right:
            raise Refused(f"the result is {said} for this one: {function.__doc__}")
        return said

    problems = tuple(Workload(f.__name__[1:], {"number": i}) for i, (f, _) in enumerate(functions))
    formula = lambda number: functions[number][1]
    return Exercise(name, formula, numbers, problems, call=call, backend=PYTHON)


EXERCISES = (
    Exercise(
        "conv_fast",
        lambda w, k: reference.depthwise_conv(w, k),
        drawn("c t", "b c t"),
        cases("b c t", small=(4, 3, 40), one=(1, 1, 1), ragged=(5, 2, 33, "no tile divides it")),
        call=_launch,
        backend=TAICHI,
        bar=Bar(
            "loads for each product", _loads, MOST_LOADS, LOADS_OURS, ".3g", at(b=4, c=2, t=64)
        ),
        magnitude=lambda w, k: reference.depthwise_conv(abs(w), abs(k)),
    ),
    Exercise(
        "conv_decay",
        _decayed,
        _decaying,
        cases(
            "b c t",
            small=(2, 3, 40),
            one=(1, 1, 1),
            long=(5, 4, 257, "rows that run at the same time"),
            wide=(3, 2, 64, {"values": "wide"}),
        ),
        call=_launch,
        backend=TAICHI,
        bar=_linear(1),
        magnitude=lambda a, k: _decayed(a, abs(k)),
    ),
    Exercise(
        "conv_gradient",
        _pull,
        _decaying_pull,
        cases("b c t", small=(3, 2, 20), one=(1, 1, 1), long=(2, 3, 65)),
        call=_launch_pull,
        backend=TAICHI,
        bar=_linear(1, 0),
        magnitude=lambda a, k, g: _pull(a, abs(k), abs(g)),
    ),
    _about("conv_causal", JUDGED),
)
