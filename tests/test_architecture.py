"""The arrows between modules run one way, and importing the package imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.catalog import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernels"

# Each layer may import from itself and from those after it.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("bench",),
    ("gallery", "exercises"),
    ("ladder",),
    ("catalog",),
    tuple(sorted({operator.package.split(".")[1] for operator in OPERATORS.values()})),
    ("pictures",),
    ("tpu", "gpu", "neuron", "pallas", "taichi"),
    ("budget", "workload", "checks", "optional", "child", "compat", "__init__"),
)


def layer(module: str) -> int:
    top = module.split(".")[1] if "." in module else "__init__"
    return next(i for i, names in enumerate(LAYERS) if top in names)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(names if node.module == "kernels" else [node.module])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "kernels"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_run_one_way(path):
    importer = name_of(path)
    for imported in imports(path):
        assert layer(imported) >= layer(importer), f"{importer} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_operators_do_not_import_each_other(path):
    operators = {operator.package for operator in OPERATORS.values()}
    own = ".".join(name_of(path).split(".")[:2])
    if own in operators:
        others = {".".join(name.split(".")[:2]) for name in imports(path)} & operators
        assert others <= {own}


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, kernels, kernels.catalog, kernels.cli, kernels.vector, kernels.matmul\n"
        "import kernels.padding, kernels.taichi\n"
        "heavy = {'jax', 'torch', 'matplotlib', 'taichi', 'quadrants', 'libtpu'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_folder_with_a_reference_is_in_the_catalog():
    folders = {path.parent.name for path in PACKAGE.glob("*/reference.py")}
    assert folders == {operator.package.split(".")[1] for operator in OPERATORS.values()}
