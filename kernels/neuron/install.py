"""The simulator under the vendor's names, for a script that says `import nki`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from kernels.neuron import beta1, modern, vendor  # noqa: F401  both enter themselves
from kernels.neuron.errors import NeuronError
from kernels.neuron.kernel import standing


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
    modules = standing()
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(before)
