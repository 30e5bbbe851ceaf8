"""The child that runs a script for AWS Neuron as it is: the simulator has the vendor's names.

python nki_script.py BYTES SCRIPT.py [ARGUMENT ...]
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import PathFinder
from types import SimpleNamespace


def main() -> None:
    """Run it; what goes wrong is told in a line."""
    from kernels.machines import neuron
    from kernels.machines.checks import located
    from kernels.yours import memory

    most, script, *_ = sys.argv[1:]
    memory.limit(int(most))
    sys.argv[:] = sys.argv[2:]
    sys.path.insert(0, folder := os.path.dirname(os.path.abspath(script)))  # as Python does
    own, ours = PathFinder.find_spec("kernels", [folder]), sys.modules["kernels"]
    if own and own.origin != ours.__file__:  # its neighbour has this package's name: to it that one
        own.submodule_search_locations = [*(own.submodule_search_locations or ()), *ours.__path__]
        find = lambda name, *_: own if name == "kernels" else None
        sys.meta_path.insert(0, SimpleNamespace(find_spec=find))  # type: ignore[arg-type]
        del sys.modules["kernels"]
    try:
        with neuron.install():
            runpy.run_path(script, run_name="__main__")
    except neuron.NeuronError as error:
        words = f"refused: {error}"
    except Exception as error:  # whatever the script raises
        words = memory.plainly(located(error))
    else:
        return
    sys.stdout.flush()
    sys.exit(words)


if __name__ == "__main__":
    main()
