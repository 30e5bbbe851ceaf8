"""NKI, whoever provides it: the vendor's modules where they are installed, else the simulator's.

A kernel file says::

    from kernels.machines.neuron.api import nki, nisa, nl                      # modern
    from kernels.machines.neuron.api import beta1_nki as nki, beta1_nl as nl   # neuronxcc.nki

and is otherwise what the vendor's documentation would write.
"""

import importlib

from kernels.machines.neuron import vendor


def _module(generation: str, simulated: str, part: str = ""):
    if module := vendor.find(generation):
        return importlib.import_module(module.__name__ + part)
    return importlib.import_module(f"kernels.machines.neuron.{simulated}{part}")


nki = _module("nki", "modern")
nl = _module("nki", "modern", ".language")
nisa = _module("nki", "modern", ".isa")
beta1_nki = _module("neuronxcc", "beta1")
beta1_nl = _module("neuronxcc", "beta1", ".language")
