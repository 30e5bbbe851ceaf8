"""The simulator under the vendor's names, for a script that says `import nki`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType

from kernels.neuron import vendor
from kernels.neuron.errors import NeuronError


def modules() -> dict[str, ModuleType]:
    """The vendor's module names, and the simulator's modules that stand for them."""
    from kernels.neuron import beta1, modern

    package = ModuleType("neuronxcc", "The simulator of kernels.neuron, under the vendor's name.")
    package.nki = beta1
    return {
        "nki": modern,
        "nki.language": modern.language,
        "nki.isa": modern.isa,
        "neuronxcc": package,
        "neuronxcc.nki": beta1,
        "neuronxcc.nki.language": beta1.language,
    }


@contextlib.contextmanager
def install() -> Iterator[None]:
    """Let `import nki` and `import neuronxcc.nki` find the simulator, inside a `with` block.

    Afterwards the names are gone again. NeuronError where the vendor's package is installed: then
    the names are taken, and neuron.simulate runs a kernel of it as it is.
    """
    taken = [name for name in ("nki", "neuronxcc") if vendor.find(name)]
    if taken:
        raise NeuronError(
            f"the vendor's {taken[0]} is installed, and keeps its name; neuron.simulate runs its "
            "kernels without install()"
        )
    standing = modules()
    before = {name: sys.modules[name] for name in standing if name in sys.modules}
    sys.modules.update(standing)
    try:
        yield
    finally:
        for name in standing:
            sys.modules.pop(name, None)
        sys.modules.update(before)
