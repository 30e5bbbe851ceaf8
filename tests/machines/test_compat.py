"""Other packages' private names stand behind one door and nowhere else; what it says is heard."""

import ast
import contextlib
import functools
import sys
import types
from pathlib import Path

import pytest

from kernels.machines import compat
from kernels.machines.compat import Changed
from kernels.machines.compat.taichi import is_started
from kernels.machines.compat.torch import autocast_of_torchax

ROOT = Path(__file__).resolve().parents[2]
DOOR = ROOT / "kernels" / "machines" / "compat"
# Doors of those who alone use what they name.
OTHERS = (ROOT / "validation" / "tokamax_door.py", ROOT / "tests" / "door.py")
FOLDERS = (
    *("kernels/**/*.py", "validation/*.py", "tests/**/*.py", "tools/*.py", "notebooks/*.py"),
    "book/**/*.py",
)
FILES = sorted(
    path
    for pattern in FOLDERS
    for path in ROOT.glob(pattern)
    if DOOR not in path.parents and path not in (*OTHERS, Path(__file__))  # which plants them
)
# Public in name only: their packages say that they may change with any release.
UNPROMISED = ("jax.interpreters", "jax.extend", "jaxlib", "torch.utils._python_dispatch")
# Of JAX's traced programs, of its interpreter, of torchax and of nbmake.
NAMES = {
    *("eqns", "invars", "outvars", "constvars", "primitive", "aval", "inner_aval", "source_info"),
    *("grid_mapping", "block_mappings", "index_map_jaxpr", "debug_info", "block_aval"),
    *("autocast_policy", "NotebookRun", "NotebookFailedException"),
}
# Of JAX's equations: what .params holds. Click and pytest have a public .params of their own.
PARAMETERS = {
    *("jaxpr", "call_jaxpr", "fun_jaxpr", "body_jaxpr", "cond_jaxpr", "branches", "length"),
    *("grid_mapping", "compiler_params", "input_output_aliases", "out_avals", "axis", "interpret"),
    "dimension_numbers",
}


@functools.cache
def ours(files=FILES):
    """Every name that these files define themselves."""
    names = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
    return names


NAMED_TUPLE = ("_asdict", "_field_defaults", "_fields", "_make", "_replace")  # Python's, and public


def private(name):
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def foreign(module):
    """Whether a module is neither ours nor Python's own."""
    return module.split(".")[0] not in sys.stdlib_module_names | {"kernels", "validation"}


def unpromised(module):
    """Whether what is imported is private, or public in name only."""
    told = any(f"{module}.".startswith(f"{each}.") for each in UNPROMISED)
    return foreign(module) and (told or any(map(private, module.split("."))))


def faults(text, own):
    """(line, what) of each private name of another package that a file uses."""
    found = []
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [(node.lineno, f"import {module}") for module in modules if unpromised(module)]
        if isinstance(node, ast.Attribute) and (
            node.attr in NAMES
            or (private(node.attr) and node.attr not in own and foreign(ast.unparse(node.value)))
        ):
            found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, (ast.Subscript, ast.Call)) and parameter(node) in PARAMETERS:
            found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.Constant) and str(node.value).startswith(("jax._src", "torch._")):
            found.append((node.lineno, repr(node.value)))
        if isinstance(node, ast.Call) and named(node) and named(node) not in own:
            found.append((node.lineno, ast.unparse(node)))
    return found


def parameter(node):
    """The x of `….params["x"]` and `….params.get("x")`."""
    if isinstance(node, ast.Subscript):
        holder, key = node.value, node.slice
    else:
        holder = getattr(node.func, "value", None) if _called(node) == "get" else None
        key = node.args[0] if node.args else None
    if isinstance(holder, ast.Attribute) and holder.attr == "params":
        return getattr(key, "value", None)
    return None


def named(call):
    """The private name that getattr and its like are given."""
    if _called(call) not in {"getattr", "hasattr", "setattr", "delattr"}:
        return None
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((text for text in texts if private(text)), None)


def _called(call):
    return getattr(call.func, "id", None) or getattr(call.func, "attr", None)


def test_private_names_stand_behind_the_door():
    told = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in FILES
        for line, what in faults(path.read_text(encoding="utf-8"), ours())
    ]
    assert not told, (
        "private names of other packages belong into kernels/machines/compat:\n" + "\n".join(told)
    )


def test_flags_of_libtpu_stand_there_too():
    """libtpu documents none of these; XLA's own begin otherwise."""
    holds = [p for p in (ROOT / "kernels").rglob("*.py") if "xla_jf_" in p.read_text("utf-8")]
    assert [path.relative_to(ROOT) for path in holds] == [Path("kernels/machines/compat/libtpu.py")]


def test_a_private_name_is_found_and_a_public_one_is_not():
    names = Path(__file__).with_name("names.txt").read_text(encoding="utf-8")
    private, public = names.split("\n\n")
    for line in private.splitlines():
        assert faults(line, ours()), line
    assert not faults(public, ours() | {"_CLIMB"})


def test_a_change_names_the_package_and_its_release_and_fails_a_test():
    """Warnings of this kind are errors in every test; a reader sees them once."""
    with pytest.raises(Changed, match=r"^numpy \d+\.\S+: it has no arrays any more$"):
        compat.changed("numpy", "it has no arrays any more")
    assert compat.release("no-such-package") == ""


def test_a_taichi_that_is_built_otherwise_is_said_aloud():
    def taichi(**state):
        runtime = types.SimpleNamespace(**state)
        impl = types.SimpleNamespace(get_runtime=lambda: runtime)
        return types.SimpleNamespace(__name__="taichi", lang=types.SimpleNamespace(impl=impl))

    assert is_started(taichi(_prog=object())) and is_started(taichi(prog=object()))
    assert not is_started(taichi(_prog=None)) and not is_started(taichi(prog=None))
    with pytest.warns(Changed, match="keeps no program"):
        assert not is_started(taichi(engine=object()))


def test_torchax_has_its_table_back(monkeypatch):
    policy = {"matmul": "low", "sum": "high"}
    torchax, amp = types.ModuleType("torchax"), types.ModuleType("torchax.amp")
    torchax.amp, amp.autocast_policy = amp, dict(policy)
    amp.CastPolicy = types.SimpleNamespace(LOWER_PRECISION_FP="low")
    for module in (torchax, amp):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with contextlib.suppress(KeyError), autocast_of_torchax(["linear", "sum"]):
        assert amp.autocast_policy == {"matmul": "low", "sum": "low", "linear": "low"}
        raise KeyError
    assert amp.autocast_policy == policy
