"""Exercises of the chapter "Depthwise convolution in Taichi"."""

import numpy as np

from kernels import taichi
from kernels.backends.python import PYTHON
from kernels.backends.taichi import TAICHI
from kernels.depthwise_conv import reference
from kernels.exercises.exercise import Exercise, prediction, problems
from kernels.ladder import Refused
from kernels.workload import Workload, values


def _loads(n, m):
    """A round of the inner loop, counted: which weights and which rows its products name."""
    products = [(("w", i), ("k", b)) for i in range(n) for b in range(m)]
    return len({operand for product in products for operand in product}) / len(products)


def _zeros(steps):
    padded = np.pad(np.ones(steps), (steps - 1, 0))
    return 1 - np.lib.stride_tricks.sliding_window_view(padded, steps).mean()


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


# Each function, and whether it is causal; the order is that of the workloads.
JUDGED = (_causal, _circular, _one_ahead, _first_only, _centred)


def _judges(answer, number, *, interpret):
    function = JUDGED[number]
    said = np.asarray(answer(function))
    if said.dtype != bool or said.shape:
        raise Refused(f"the result is {said}, where True or False is wanted")
    if said != (function is _causal):
        raise Refused(f"the result is {said} for this one: {function.__doc__}")
    return said


EXERCISES = (
    prediction(
        "conv_loads",
        "Write loads(n, m): the loads for each product, in the inner loop of a tile of n steps "
        "and m rows.",
        _loads,
        Workload("v0", {"n": 1, "m": 1}),
        Workload("v2", {"n": 4, "m": 1}),
        Workload("v3", {"n": 4, "m": 4}),
        Workload("oblong", {"n": 2, "m": 8}),
        hint="For each u there are n weights and m elements of k.",
    ),
    Exercise(
        "conv_decay",
        "Write the Taichi kernel decay(out, a, k), [B, C, T], [C], [B, C, T], for the weights "
        "w[c, (T-1) - d] = a[c]^d and an eps of 0, in T steps a row; it sees its arguments and "
        "ti, no more.",
        _decayed,
        _launch,
        problems(
            _decaying,
            Workload("small", {"b": 2, "c": 3, "t": 40}),
            Workload("one", {"b": 1, "c": 1, "t": 1}),
            Workload("long", {"b": 5, "c": 4, "t": 257}, why="rows that run at the same time"),
            Workload("wide", {"b": 3, "c": 2, "t": 64}, values="wide"),
        ),
        rungs=("interpret", "simulate"),
        backend=TAICHI,
        magnitude=lambda a, k: _decayed(a, abs(k)),
        hint="out[t] = a out[t-1] + k[t]: only rows may run at the same time.",
    ),
    prediction(
        "conv_zeros",
        "Write zeros(steps): which share of the products of `in_pytorch` has a factor that is zero "
        "because it lies before the first step.",
        _zeros,
        Workload("chapter", {"steps": 768}),
        Workload("one", {"steps": 1}),
        Workload("few", {"steps": 5}),
        hint="Of T² products of a row, T (T + 1) / 2 are needed.",
    ),
    Exercise(
        "conv_causal",
        "Write is_causal(function): whether function(w, k, eps), float32 [C, T], [B, C, T] and a "
        "number → [B, C, T], lets no step see a later one; it is called as often as you like.",
        lambda number: JUDGED[number] is _causal,
        _judges,
        problems(
            lambda workload, rng: tuple(workload.sizes.values()),
            *(
                Workload(function.__name__[1:], {"number": number})
                for number, function in enumerate(JUDGED)
            ),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="Change a step of k, and look at the steps before it. Which step, and how much?",
    ),
)
