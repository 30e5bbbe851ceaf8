"""What the compilers of modern NKI do not take, found in the kernel's source.

The simulator runs Python; the compilers of NKI 0.1 to 0.6 parse it, and know less of it. (From 0.7
on kernels are traced by Python, which takes more. What passes here, all of them take.) Refused:

- comprehensions, generators, lambda, try, with, raise, import, del, global, nonlocal, functions
  inside the kernel that are no body of nl.fori_loop, classes inside it, sets,
  await, match and the walrus: the compiler's syntax tree (KLR, its open front end) has no place
  for them; NKI's migration guide to 0.7 names generators and classes
- operators, comparisons, truth and loops on tiles, and assignment into one: a tile's numbers are
  not known while a kernel is compiled (NKI language guide). An argument may be None, a number or a
  list, so its truth, a loop over it and `x != None` are left alone
- nl.arange, nl.mgrid, mask=, nl.par_dim, nl.divide: removed in 0.1 and 0.2
- an instruction of nki.isa without dst (migration guide to beta 2)
- a call into NumPy or any other library but math, and into neuronxcc.nki, which 0.4 refuses

In a helper, raise and calls into libraries are left alone: the kernels that AWS ships check their
arguments so. test_neuron_linter.py holds the patterns of theirs that have to pass.

In beta 1 a loop's body was traced once, with an index that is no number. So refused in a loop over
nl.affine_range or nl.sequential_range of neuronxcc.nki: branches on the index, min, max and range
of it, and a Python number that is counted up (all from the same migration guide).
"""

import ast
import csv
import inspect
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.kernel import function_of, generation_of
from kernels.machines.neuron.modern.language import REMOVED
from kernels.machines.neuron.simulator import NkiKernel

# Where instructions are, imported by their names.
OURS = ("kernels.machines.neuron.", "nki.", "neuronxcc.")
# What the language has not, and what to write instead.
with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _rows:
    SYNTAX = {getattr(ast, row.pop("node")): tuple(row.values()) for row in csv.DictReader(_rows)}
# Names of nki.isa that write no tile.
WITHOUT_DST = (
    *("get_nc_version", "register_alloc", "register_load"),
    *("core_barrier", "sendrecv", "set_rng_seed", "quantize_mx"),
)
PLAIN = ("math", "builtins")
MAKERS = ("ndarray", "zeros", "ones", "full", "zeros_like", "empty_like", "load")
MODERN = ("nki", "kernels.machines.neuron.modern")
BETA1 = ("neuronxcc", "kernels.machines.neuron.beta1")
ORDERED = ("affine_range", "sequential_range")  # loops of beta 1 whose body was traced once


@dataclass(frozen=True)
class LintFinding:
    """One thing that a compiler does not take.

    Args:
        file, line: where it stands.
        what: is not taken.
        instead: what to write.
    """

    file: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.what}: write {self.instead} ({self.file}:{self.line})"


def lint(kernel) -> list[LintFinding]:
    """What the vendor's compiler would refuse in a kernel and in the functions that it calls.

    Args:
        kernel: a function with @nki.jit, of either generation; what is refused is listed at
            the top of this module.

    Returns:
        Findings in the order of the source; an empty list where there are none.

    Raises:
        NeuronError: where the source is not to be had.
    """
    beta1 = generation_of(kernel) == "neuronxcc"
    findings: list[LintFinding] = []
    seen: set[types.CodeType] = set()
    waiting = [function_of(kernel)]
    first = waiting[0]
    while waiting:
        function = waiting.pop()
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        rules = (_Beta1 if beta1 else _Modern)(function, function is not first)
        findings += rules.findings()
        waiting += rules.helpers
    return findings


class _Rules:
    """The source of one function, and what is said about it."""

    def __init__(self, function: types.FunctionType, helper: bool = False) -> None:
        self.function = function
        self.helper = helper
        try:
            if function.__code__.co_filename == "<string>":
                raise OSError("Python 3.13 answers with the source of python -c")
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError) as error:
            raise NeuronError(f"the source of {function.__name__} is not to be had") from error
        self.first = first
        self.file = Path(function.__code__.co_filename).name
        module: Any = ast.parse(textwrap.dedent("".join(lines)))
        (self.tree,) = module.body
        self.helpers: list[types.FunctionType] = []
        self.said: dict[tuple[int, str], LintFinding] = {}

    def findings(self) -> list[LintFinding]:
        self.judge()
        return sorted(self.said.values(), key=lambda finding: finding.line)

    def judge(self) -> None:
        raise NotImplementedError

    def say(self, node: ast.AST, what: str, instead: str) -> None:
        line = getattr(node, "lineno", 1) + max(self.first, 1) - 1
        kind, _, _ = what.partition(", ")  # what is outside says it for what is inside
        self.said.setdefault((line, kind), LintFinding(self.file, line, what, instead))

    def assigned(
        self, names: set[str], nodes: Iterable[ast.AST], holds: Callable[[ast.AST], Any]
    ) -> None:
        """Add to the names those that are assigned what holds one of them."""
        assignments = [node for node in nodes if isinstance(node, ast.Assign)]
        before = -1
        while before < len(names):
            before = len(names)
            for node in assignments:
                if holds(node.value):
                    names |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def body(self) -> Iterator[ast.AST]:
        for statement in self.tree.body:
            yield from ast.walk(statement)

    def module(self, node: ast.AST) -> str | None:
        """The name of the module that an expression is, by the function's globals."""
        if isinstance(node, ast.Name):
            value = self.function.__globals__.get(node.id)
            return value.__name__ if isinstance(value, types.ModuleType) else None
        if isinstance(node, ast.Attribute) and (outer := self.module(node.value)):
            return f"{outer}.{node.attr}"
        return None


class _Modern(_Rules):
    def judge(self) -> None:
        self._find_tiles()
        calls = [node for node in self.body() if isinstance(node, ast.Call)]
        loops = [node for node in calls if getattr(node.func, "attr", "") == "fori_loop"]
        bodies = {a.id for node in loops for a in node.args if isinstance(a, ast.Name)}
        for node in self.body():
            if isinstance(node, ast.Raise) and self.helper:
                continue
            if isinstance(node, ast.FunctionDef) and node.name in bodies:
                continue
            if type(node) in SYNTAX:
                what, instead = SYNTAX[type(node)]
                self.say(node, f"{what} is not in the kernel language", instead)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr in REMOVED:
                if self._is(node.value, ".language"):
                    self.say(node, f"nl.{node.attr} is gone", REMOVED[node.attr])
            else:
                self._on_tiles(node)
        self._modules()

    def _is(self, node: ast.AST, end: str) -> bool:
        name = self.module(node)
        return name is not None and name.startswith(MODERN) and name.endswith(end)

    def _call(self, node: ast.Call) -> None:
        names = {keyword.arg for keyword in node.keywords}
        if "mask" in names:
            self.say(node, "mask= is gone", "a slice that min() cuts")
        called: Any = node.func
        instruction = isinstance(called, ast.Attribute) and self._is(called.value, ".isa")
        writes = instruction and called.attr not in WITHOUT_DST
        if writes and "dst" not in names and not node.args:
            self.say(node, f"nisa.{called.attr} without dst", "dst=tile, first")
        if isinstance(node.func, ast.Name):
            value = self.function.__globals__.get(node.func.id)
            if isinstance(value, NkiKernel):
                value = value.function
            if isinstance(value, types.FunctionType) and not value.__module__.startswith(OURS):
                self.helpers.append(value)

    def _modules(self) -> None:
        """Calls into libraries that the compiler does not have."""
        for node in self.body():
            name = self.module(node.func) if isinstance(node, ast.Call) else None
            if name is None:
                continue
            if name.startswith(BETA1):
                self.say(node, f"{name} in a kernel of modern NKI", "its like in nki")
            elif not self.helper and not name.startswith((*MODERN, *PLAIN)):
                self.say(node, f"a call of {name} in a kernel", "plain Python, or an argument")

    def _on_tiles(self, node: ast.AST) -> None:
        tile, own = self._is_tile, self._is_made
        any_tile = lambda *nodes: any(map(tile, nodes))
        say = lambda what, shown, instead: self.say(node, f"{what}, {_text(shown)}", instead)
        match node:
            case ast.BinOp(left=a, right=b) | ast.AugAssign(target=a, value=b) if any_tile(a, b):
                say("an operator on a tile", node, "nisa.tensor_tensor(dst, …)")
            case ast.UnaryOp(op=op, operand=a) if own(a) if isinstance(op, ast.Not) else tile(a):
                say("an operator on a tile", node, "nisa.tensor_scalar(dst, …)")
            case ast.Compare(left=a, ops=signs, comparators=others) if any_tile(a, *others):
                asks = any(isinstance(c, ast.Constant) and c.value is None for c in others)
                if not asks and not all(isinstance(sign, (ast.Is, ast.IsNot)) for sign in signs):
                    say("a comparison of a tile", node, "nisa.tensor_scalar")
            case ast.If(test=a) | ast.While(test=a) | ast.IfExp(test=a) if own(a):
                say("a branch on a tile", a, "a condition on shapes")
            case ast.For(iter=a) if own(a):
                say("a loop over a tile", a, "a range, and slices")
            case ast.Assign(targets=to) if any(isinstance(a, ast.Subscript) and own(a) for a in to):
                say("assignment into a tile", node, "nisa.tensor_copy(dst, src)")

    def _find_tiles(self) -> None:
        """Names that hold tiles: arguments without a default, and what is made of nl.ndarray."""
        arguments = self.tree.args
        positional = [*arguments.posonlyargs, *arguments.args]
        plain = len(positional) - len(arguments.defaults)
        # What has a shape, or is sliced: a number has neither.
        indexed = {
            node.value.id
            for node in self.body()
            if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name)
        }
        self.tiles = {
            argument.arg
            for argument in positional[:plain]
            if argument.arg in indexed
            and getattr(argument.annotation, "id", "tensor") == "tensor"
            and not self.helper  # whose arguments may be lists of sizes as well
        }
        self.assigned(self.tiles, self.body(), self._is_tile)

    def _is_made(self, node: ast.AST) -> bool:
        """Whether a tile that the kernel itself has made, so that it is nothing else."""
        arguments = {argument.arg for argument in self.tree.args.args}
        while isinstance(node, ast.Subscript):
            node = node.value
        return self._is_tile(node) and not (isinstance(node, ast.Name) and node.id in arguments)

    def _is_tile(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.tiles
            case ast.Subscript(value=value):
                return self._is_tile(value)
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                maker = name in MAKERS and self._is(value, ".language")
                return maker or (name == "reshape" and self._is_tile(value))
            case ast.BinOp(left=a, right=b):
                return self._is_tile(a) or self._is_tile(b)
        return False


class _Beta1(_Rules):
    def judge(self) -> None:
        for node in self.body():
            match node:
                case ast.For(iter=ast.Call(func=ast.Attribute(attr=name))) if name in ORDERED:
                    self._loop(node, f"nl.{name}")
                case ast.Call(func=ast.Name(id=name)):
                    value = self.function.__globals__.get(name)
                    if isinstance(value, types.FunctionType):
                        self.helpers.append(value)

    def _loop(self, loop: ast.For, kind: str) -> None:
        indices = _names(loop.target)
        self.assigned(
            indices, ast.walk(loop), lambda value: _names(value) & indices and not _loads(value)
        )
        for node in (inner for statement in loop.body for inner in ast.walk(statement)):
            match node:
                case ast.If(test=a) | ast.While(test=a) | ast.IfExp(test=a) if _names(a) & indices:
                    self.say(node, f"a branch on the index of {kind}", "mask=")
                case ast.AugAssign(target=ast.Name(), value=value) if not _loads(value):
                    what = f"{_text(node)} in a loop of {kind}, whose body is traced once"
                    self.say(node, what, "an expression of the index")
                case ast.Call(func=ast.Name(id="min" | "max" | "range"), args=arguments):
                    if any(_names(argument) & indices for argument in arguments):
                        self.say(node, f"{_text(node)} of the index of {kind}", "mask=")


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _loads(node: ast.AST) -> bool:
    """Whether a value is a tile, and no number any more."""
    return any(isinstance(n, (ast.Call, ast.Subscript)) for n in ast.walk(node))


def _text(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:60]
