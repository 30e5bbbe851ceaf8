"""AWS Neuron as far as a laptop reaches it: simulate a kernel, lint it, estimate its time."""

from kernels.neuron.chips import CHIPS, Chip
from kernels.neuron.compiler import lower
from kernels.neuron.errors import NeuronError
from kernels.neuron.estimator import EngineUse, Estimate, Slot, estimate
from kernels.neuron.install import install
from kernels.neuron.launch import Launch, launched, run
from kernels.neuron.linter import Finding, lint
from kernels.neuron.simulator import InterpretParams, simulate
from kernels.neuron.vendor import device

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
    "device",
    "estimate",
    "install",
    "launched",
    "lint",
    "lower",
    "run",
    "simulate",
]
