"""The arrows between modules run one way, and importing the package imports nothing heavy."""

import ast
import contextlib
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from commands import process

from kernels.machines.optional import MissingPackage
from kernels.proof.catalog import OPERATORS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernels"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LINTER = Path(sys.executable).with_name("lint-imports")


def lint_imports(root):
    """The contracts of pyproject.toml on the package in `root`: exit status, and what was said."""
    done = process(
        LINTER, "--no-logo", "--no-cache", cwd=root, env=os.environ | {"PYTHONPATH": str(root)}
    )
    return done.returncode, done.stdout + done.stderr


def test_imports_run_one_way():
    status, said = lint_imports(ROOT)
    assert status == 0, said


# File of the package → a line that does not belong there, and what is said of it.
PLANTED = {
    "machines/tpu/chips.py": ("import kernels.proof.catalog", "kernels.machines is not allowed"),
    "proof/budget.py": (
        "def late():\n    from kernels.proof import ladder",
        "kernels.proof.budget is not allowed to import kernels.proof.ladder",
    ),
    "nms/stray.py": ("import kernels.giou", "kernels.nms is not allowed to import"),
    "cholesky/operator.py": ("import kernels.figures.store", "kernels.cholesky is not"),
    "figures/report.py": (
        "def late():\n    from validation import comparisons",
        "kernels.figures.report -> validation.comparisons",
    ),
    "machines/tpu/x.py": ("import kernels.machines.tpu.y", "No cycles are allowed in"),
    "machines/tpu/y.py": ("import kernels.machines.tpu.x", "kernels.machines.tpu"),
    "stray.py": ("", "- kernels.stray"),
}


@pytest.mark.slow
def test_each_arrow_that_runs_the_other_way_is_found(tmp_path):
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("kernels", "tools", "validation"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, (line, _) in PLANTED.items():
        target = tmp_path / "kernels" / path
        if not target.parent.exists():
            target.parent.mkdir()
            (target.parent / "__init__.py").touch()
        with open(target, "a") as file:
            file.write(f"\n{line}\n")
    status, said = lint_imports(tmp_path)
    assert status
    for _, says in PLANTED.values():
        assert says in said, said


def test_importing_the_package_imports_nothing_heavy():
    door = (PACKAGE / "machines" / "compat").glob("[!_]*.py")
    modules = ", ".join(f"kernels.machines.compat.{path.stem}" for path in door)
    code = (
        "import sys, kernels.figures.schema, kernels.figures.store\n"
        "early = {'kernels.proof.catalog', 'kernels.proof.ladder', 'jax'} & set(sys.modules)\n"
        "assert not early, early\n"
        "import kernels, kernels.proof.catalog, kernels.cli, kernels.vector, kernels.matmul\n"
        f"import kernels.padding, kernels.machines.taichi, {modules}\n"
        "heavy = {'jax', 'torch', 'matplotlib', 'taichi', 'quadrants', 'libtpu', 'nbmake'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_folder_with_a_reference_is_in_the_catalog():
    folders = {path.parent.name for path in PACKAGE.glob("*/reference.py")}
    assert folders == {operator.package.split(".")[1] for operator in OPERATORS.values()}


OURS = ("kernels", "validation")


def is_ours(value):
    return inspect.ismodule(value) and value.__name__.split(".")[0] in OURS


def hidden(source):
    """What a notebook takes of a module of the package that is not in the module's __all__."""
    code = "\n".join("" if line.startswith(("%", "!")) else line for line in source.splitlines())
    names, offences = {}, {}  # what a name of the notebook stands for; in the order of the text

    def member(module, name, node):
        if not is_ours(module):
            return None
        if name not in getattr(module, "__all__", ()) or name.startswith("_"):
            offences[ast.unparse(node)] = None
            return None
        with contextlib.suppress(MissingPackage):
            home = f"{module.__name__}.{name}"
            return getattr(module, name, None) or importlib.import_module(home)

    def value(node):
        if isinstance(node, ast.Attribute):
            return member(value(node.value), node.attr, node)
        return names.get(node.id) if isinstance(node, ast.Name) else None

    for statement in ast.parse(code).body:
        nodes = [*ast.walk(statement)]
        for node in nodes:
            value(node)
            called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
            looked = called in ("getattr", "vars") and is_ours(value(node.args[0]))
            if looked or called in ("import_module", "__import__"):
                offences[ast.unparse(node)] = None
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                path = getattr(node, "module", alias.name) or ""
                if path.split(".")[0] in OURS:
                    module, name = importlib.import_module(path), alias.asname or alias.name
                    imports = isinstance(node, ast.Import)
                    names[name] = module if imports else member(module, alias.name, node)
                    if "." in path if imports else not hasattr(module, "__path__"):
                        offences[ast.unparse(node)] = None
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names |= dict.fromkeys(stored, value(getattr(statement, "value", None)))
    return [*offences]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_takes_public_names_only(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not hidden("\n".join(cell.source for cell in cells if cell.cell_type == "code"))


@pytest.mark.parametrize(
    ("source", "offence"),
    [
        ("%time\nfrom kernels.matmul import operator", "from kernels.matmul import operator"),
        ("if x:\n    import kernels.machines.child", "import kernels.machines.child"),
        ("from kernels.machines.compat.libtpu import FLAGS", None),
        ("from validation.comparisons import read", None),
        ("import kernels\nkernels.machines.compat.libtpu.FLAGS", "kernels.machines"),
        ("from kernels import tpu\ntpu.chips", "tpu.chips"),
        ("from validation import blackwell as b\nb._basic", "b._basic"),
        ("from kernels import tpu\nif x:\n    print(tpu.hlo.re)", "tpu.hlo.re"),
        ("from kernels import tpu\nh = tpu.hlo\nh.re.compile", "h.re"),
        ("import importlib as i\ni.import_module('kernels')", "i.import_module('kernels')"),
        ("from kernels import tpu\ngetattr(tpu, 'chips')", "getattr(tpu, 'chips')"),
    ],
)
def test_a_hidden_name_is_found(source, offence):
    assert hidden(source) == [offence or source]
