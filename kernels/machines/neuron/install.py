"""The simulator under the vendor's names, for a script that says `import nki`."""

import contextlib
import importlib.abc
import sys
from collections.abc import Iterable, Iterator

from kernels.machines.neuron import beta1, modern, vendor  # noqa: F401  both enter themselves
from kernels.machines.neuron.errors import MissingImport, NeuronError, place
from kernels.machines.neuron.kernel import standing


class _Missing(importlib.abc.MetaPathFinder):
    """Names the modules of the vendor's that are not simulated."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.modules = sorted(modules)

    def find_spec(self, name: str, path=None, target=None) -> None:
        """Whatever it is asked for under the vendor's names is missing."""
        if name.split(".")[0] in vendor.MODULES:
            known = ", ".join(self.modules)
            raise MissingImport(f"not simulated: {name}; simulated are {known}", place())


@contextlib.contextmanager
def install() -> Iterator[None]:
    """Let `import nki` and `import neuronxcc.nki` find the simulator, inside a `with` block.

    Afterwards the names are gone again. NeuronError where the vendor's package is installed: then
    the names are taken, and neuron.simulate runs a kernel of it as it is.
    """
    taken = [name for name in vendor.MODULES if vendor.find(name)]
    if taken:
        raise NeuronError(
            f"the vendor's {taken[0]} is installed, and keeps its name; neuron.simulate runs its "
            "kernels without install()"
        )
    modules = standing()
    for module in modules.values():  # so that a submodule that is missing is named
        vars(module).setdefault("__path__", [])
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update(modules)
    missing = _Missing(modules)
    sys.meta_path.insert(0, missing)
    try:
        yield
    finally:
        if missing in (sys.meta_path or ()):  # it is None when Python ends
            sys.meta_path.remove(missing)
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(before)
