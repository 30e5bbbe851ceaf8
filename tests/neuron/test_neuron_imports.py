"""No module of kernels/neuron imports itself through others, not even inside a function."""

import ast
import graphlib
from pathlib import Path

from kernels import neuron

FOLDER = Path(neuron.__file__).parent
ROOT = FOLDER.parent.parent


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, known: set[str]) -> set[str]:
    """The modules among `known` that a source imports anywhere; of a package, its parts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                part = f"{node.module}.{alias.name}"
                found |= {part if part in known else node.module} & known
    return found


def test_no_module_imports_itself_through_others():
    files = {name_of(path): path for path in FOLDER.rglob("*.py")}
    graph = {name: imports(path.read_text(), set(files)) - {name} for name, path in files.items()}
    assert sum(map(len, graph.values())) > 30
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_an_import_inside_a_function_counts():
    source = "def f():\n    from kernels.neuron import machine\n    import kernels.neuron.chips\n"
    known = {"kernels.neuron", "kernels.neuron.machine", "kernels.neuron.chips"}
    assert imports(source, known) == {"kernels.neuron.machine", "kernels.neuron.chips"}
