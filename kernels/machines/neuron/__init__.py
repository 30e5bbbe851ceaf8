"""AWS Neuron as far as a laptop reaches it: simulate a kernel, lint it, estimate its time."""

from kernels.machines.lazy import lazy
from kernels.machines.neuron.chips import CHIPS, NeuronChip
from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.estimator import EngineSlot, EngineUse, NeuronEstimate, estimate
from kernels.machines.neuron.install import install
from kernels.machines.neuron.launch import NkiLaunch, lower, run, watched
from kernels.machines.neuron.linter import LintFinding, lint
from kernels.machines.neuron.simulator import InterpretParams, simulate
from kernels.machines.neuron.vendor import device

__all__ = [
    "CHIPS",
    "EngineSlot",
    "EngineUse",
    "InterpretParams",
    "LintFinding",
    "NeuronChip",
    "NeuronError",
    "NeuronEstimate",
    "NkiLaunch",
    "beta1_nki",
    "beta1_nl",
    "device",
    "estimate",
    "gpsimd",
    "install",
    "lint",
    "lower",
    "nisa",
    "nki",
    "nl",
    "run",
    "simulate",
    "watched",
]

_NKI = dict.fromkeys(("beta1_nki", "beta1_nl", "nisa", "nki", "nl"), f"{__name__}.api")
__getattr__ = lazy(__name__, _NKI | {"gpsimd": f"{__name__}.gpsimd"})
