"""The arrows between modules run one way, and importing the package imports nothing heavy."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from kernels.proof.catalog import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernels"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LINTER = Path(sys.executable).with_name("lint-imports")


def lint_imports(root):
    """The contracts of pyproject.toml on the package in `root`: exit status, and what was said."""
    done = subprocess.run(
        [LINTER, "--no-logo", "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_imports_run_one_way():
    status, said = lint_imports(ROOT)
    assert status == 0, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (
            {"machines/tpu/chips.py": "import kernels.proof.catalog"},
            "kernels.machines is not allowed",
        ),
        (
            {"proof/budget.py": "def late():\n    from kernels.proof import ladder"},
            "kernels.proof.budget is not allowed to import kernels.proof.ladder",
        ),
        ({"nms/stray.py": "import kernels.giou"}, "kernels.nms is not allowed to import"),
        ({"cholesky/operator.py": "import kernels.figures.store"}, "kernels.cholesky is not"),
        ({"stray.py": ""}, "- kernels.stray"),
        (
            {"figures/report.py": "def late():\n    from validation import comparisons"},
            "kernels.figures.report -> validation.comparisons",
        ),
        (
            {f"machines/tpu/{a}.py": f"import kernels.machines.tpu.{b}" for a, b in ("xy", "yx")},
            "No cycles are allowed in kernels.machines.tpu",
        ),
    ],
    ids=["machine", "base", "operator", "new-operator", "unknown", "validation", "circle"],
)
def test_an_arrow_that_runs_the_other_way_is_found(tmp_path, planted, says):
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "kernels", ignore=ignore)
    for folder in ("tools", "validation"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, line in planted.items():
        target = tmp_path / "kernels" / path
        if not target.parent.exists():
            target.parent.mkdir()
            (target.parent / "__init__.py").touch()
        with open(target, "a") as file:
            file.write(f"\n{line}\n")
    status, said = lint_imports(tmp_path)
    assert status and says in said, said


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, kernels, kernels.proof.catalog, kernels.cli, kernels.vector, kernels.matmul\n"
        "import kernels.padding, kernels.machines.taichi\n"
        "heavy = {'jax', 'torch', 'matplotlib', 'taichi', 'quadrants', 'libtpu'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_folder_with_a_reference_is_in_the_catalog():
    folders = {path.parent.name for path in PACKAGE.glob("*/reference.py")}
    assert folders == {operator.package.split(".")[1] for operator in OPERATORS.values()}


OURS = ("kernels", "validation")


def imported(source):
    """What a cell of a notebook imports of the package: module and name, "" for `import`."""
    code = "\n".join("" if line.startswith(("%", "!")) else line for line in source.splitlines())
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if name.split(".")[0] in OURS and "." in name)


def hidden(source):
    """The imports that no package lists in its __all__."""
    for module, name in imported(source):
        package = importlib.import_module(module)
        if not hasattr(package, "__path__") or name not in getattr(package, "__all__", ()):
            yield f"from {module} import {name}" if name else f"import {module}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_public_names_only(path):
    cells = nbformat.read(path, as_version=4).cells
    found = [line for cell in cells if cell.cell_type == "code" for line in hidden(cell.source)]
    assert not found


def test_a_hidden_name_is_found():
    assert not list(hidden("from kernels import tpu\nfrom kernels.matmul import matmul, reference"))
    planted = "%time\nfrom kernels.matmul import operator\nif x:\n    import kernels.machines.child"
    assert [*hidden(planted)] == [
        "from kernels.matmul import operator",
        "import kernels.machines.child",
    ]
    assert [*hidden("from kernels.machines.compat.libtpu import FLAGS")]
    assert [*hidden("from validation.comparisons import read")]
    assert not [*hidden("from validation import comparisons")]
