"""AWS Neuron as far as a laptop reaches it: simulate a kernel, lint it, estimate its time."""

from kernels.machines.lazy import lazy
from kernels.machines.neuron.chips import CHIPS, Chip
from kernels.machines.neuron.compiler import lower
from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.estimator import EngineUse, Estimate, Slot, estimate
from kernels.machines.neuron.install import install
from kernels.machines.neuron.launch import Launch, launched, run
from kernels.machines.neuron.linter import Finding, lint
from kernels.machines.neuron.simulator import InterpretParams, simulate
from kernels.machines.neuron.vendor import device

__all__ = [
    "CHIPS",
    "Chip",
    "EngineUse",
    "Estimate",
    "Finding",
    "InterpretParams",
    "Launch",
    "NeuronError",
    "Slot",
    "beta1_nki",
    "beta1_nl",
    "calibration",
    "device",
    "estimate",
    "gpsimd",
    "install",
    "launched",
    "lint",
    "lower",
    "nisa",
    "nki",
    "nl",
    "run",
    "simulate",
]

_NKI = ("beta1_nki", "beta1_nl", "nisa", "nki", "nl")
__getattr__ = lazy(__name__, dict.fromkeys(_NKI, "kernels.machines.neuron.api"))
