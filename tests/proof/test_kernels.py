"""Every kernel in an operator's folder is reached from an Implementation, which has rungs.

A kernel is what names, under any alias, `pallas_call`, `core_map`, `plgpu.kernel`, `ti.kernel`,
`nki.jit` or `triton.jit`, or is a source in C++: a string with `__global__`, or a file.
"""

import ast
import re
from pathlib import Path

import pytest

from kernels.proof.catalog import OPERATORS

ROOT = Path(__file__).resolve().parents[2]
MAKES = re.compile(
    r"(.+\.)?(pallas_call|core_map|as_torch_kernel"
    r"|(pl|pallas|plgpu|mosaic_gpu|ti|taichi|quadrants)\.kernel|(nki|triton)\.jit)"
)
SOURCES = (".cc", ".cpp", ".cu")


def is_kernel(statement, full):
    """Whether a statement at the top of a module makes a kernel."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            if MAKES.fullmatch(full.get(first, first) + dot + rest):
                return True
        if isinstance(node, ast.Constant) and "__global__" in str(node.value):
            return True
    return False


def defined(statement):
    """The names that a statement defines; of a call such as f.defvjp(…), what it is called on."""
    if hasattr(statement, "name"):
        return {statement.name}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    if isinstance(statement, ast.Expr) and names:
        return {min(names, key=lambda name: (name.lineno, name.col_offset)).id}
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


class Folder:
    """The modules of an operator's folder, and which of their names use which."""

    def __init__(self, path):
        self.path, self.kernels, self.uses = path, set(), {}
        for file in sorted(path.rglob("*.py")):
            parts = file.relative_to(path).with_suffix("").parts
            self.read(".".join(p for p in parts if p != "__init__"), ast.parse(file.read_text()))

    def read(self, module, tree):
        own, full = {}, {}  # name → (module, name), or the module alone; and in full
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            parent = "" if isinstance(node, ast.Import) else f"{node.module}."
            full |= {name.asname or name.name: parent + name.name for name in node.names}
            package = parent.partition(f"kernels.{self.path.name}.")
            if not package[1]:
                continue
            source = package[2].rstrip(".")
            for name in node.names:
                own[name.asname or name.name] = (source, name.name) if source else name.name
        for statement in tree.body:
            own |= {name: (module, name) for name in defined(statement)}
        for statement in tree.body:
            used = set()
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute):  # of a module
                    name = own.get(getattr(node.value, "id", ""))
                    used |= {(name, node.attr)} if isinstance(name, str) else set()
                elif isinstance(node, ast.Name) and isinstance(own.get(node.id), tuple):
                    used.add(own[node.id])
                if isinstance(node, ast.Constant) and str(node.value).endswith(SOURCES):
                    used.add(node.value)
            for name in defined(statement):
                self.uses.setdefault((module, name), set()).update(used)
                if is_kernel(statement, full):
                    self.kernels.add((module, name))

    def strays(self, sources):
        """Kernels that are not reached from the sources of implementations."""
        todo = [tuple(source.split(":")) for source in sources]
        reached = set()
        while todo:
            if (name := todo.pop()) not in reached:
                reached.add(name)
                todo += self.uses.get(name, ())
        files = {p.name for p in self.path.rglob("*") if p.suffix in SOURCES}
        return sorted(map(str, (self.kernels - reached) | (files - reached)))


FOLDERS = sorted({o.package.rpartition(".")[2] for o in OPERATORS.values()})


def sources(folder):
    own = (o for o in OPERATORS.values() if o.package == f"kernels.{folder}")
    return [i.source for o in own for i in o.implementations]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kernel_is_an_implementation_s(folder):
    assert Folder(ROOT / "kernels" / folder).strays(sources(folder)) == []


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_every_implementation_has_rungs(operator):
    for implementation in operator.implementations:
        assert implementation.rungs or implementation.needs, implementation.name


USED = """
import functools
from kernels.moments import shared
def _kernel(x_ref, o_ref): pass
def _forward(x):
    return pl.pallas_call(_kernel, grid=())(x)
v0, v1 = (functools.partial(shared.tile, rows=n) for n in (1, 2))
def moments(x):
    from kernels.moments.late import program
    return program(_differentiable(x))
_differentiable = jax.custom_vjp(lambda x: x)
_differentiable.defvjp(_forward, _forward)
"""


@pytest.mark.parametrize(
    ("file", "planted"),
    [
        ("stray.py", "def f(x):\n    return pl.pallas_call(g)(x)"),
        ("pallas.py", "def unused(x):\n    return plgpu.kernel(g, out_type=x)(x)"),
        ("late.py", "@ti.kernel\ndef unused(): pass"),
        ("shared.py", "def made(of):\n    @ti.kernel\n    def kernel(): pass\n    return kernel"),
        ("cuda.py", 'SOURCE = "__global__ void f() {}"'),
        ("moments.cu", "__global__ void f() {}"),
        ("a.py", "@functools.partial(pl.core_map, mesh)\ndef f(): pass"),
        ("a.py", "from jax.experimental.pallas import pallas_call as call\nf = call(g)"),
        ("a.py", "from nki import jit\n@jit\ndef f(x): pass"),
        ("a.py", "from taichi import kernel as k\n@k\ndef f(x): pass"),
        ("a.py", "f = plgpu.as_torch_kernel(g)"),
    ],
)
def test_a_stray_kernel_is_found(tmp_path, file, planted):
    folder = tmp_path / "moments"
    folder.mkdir()
    (folder / "pallas.py").write_text(USED)
    (folder / "shared.py").write_text("@ti.kernel\ndef tile(rows): pass\n")
    (folder / "late.py").write_text("SOURCE = '__global__'\ndef program(x):\n    return SOURCE\n")
    declared = ["pallas:moments", "pallas:v1"]
    assert Folder(folder).strays(declared) == [] and Folder(folder).strays(declared[1:]) != []
    with open(folder / file, "a") as text:
        text.write(f"{planted}\n")
    assert len(Folder(folder).strays(declared)) == 1
