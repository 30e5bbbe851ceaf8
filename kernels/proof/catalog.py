"""The catalog: every operator that a folder of the package declares.

It knows none of them. A folder with an operator.py is one, and each contract.Operator in it is an
entry; the tests, the command line, the records and the book's tables read them here.
"""

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import kernels
from kernels.machines.checks import fail, one_of
from kernels.proof.contract import RUNGS, Implementation, Operator

__all__ = ["OPERATORS", "RUNGS", "Implementation", "Operator", "find"]


def _collect() -> dict[str, Operator]:
    """The declarations of every folder, by name, in the order of folders and of their files."""
    operators: dict[str, Operator] = {}
    files = [path for root in kernels.__path__ for path in Path(root).glob("*/operator.py")]
    folders = sorted(path.parent.name for path in files)
    for folder in folders:
        module = importlib.import_module(f"kernels.{folder}.operator")
        for value in vars(module).values():
            if not isinstance(value, Operator) or value.package != f"kernels.{folder}":
                continue
            if operators.setdefault(value.name, value) is not value:
                fail(f"an operator of kernels.{folder}", repr(value.name), "a name not yet taken")
    return operators


OPERATORS = _collect()


def find(*paths: str | None) -> Iterator[tuple[Operator, Implementation]]:
    """Every entry that the paths name, in that order; all of them for nothing at all.

    Args:
        paths: "OPERATOR", "OPERATOR/IMPLEMENTATION" or a folder such as "matmul" each. Where the
            operator is left out, as in "/pallas", those that have the implementation are meant.

    Returns:
        Pairs of an operator and one of its implementations.

    Raises:
        ValueError: for a name that is in none of them; the message lists what there is.
    """
    for path in paths or (None,):
        name, _, implementation = (path or "").partition("/")
        named = [o for o in OPERATORS.values() if name in ("", o.name)]
        named = named or [o for o in OPERATORS.values() if o.package == f"kernels.{name}"]
        if not name and implementation:
            has = [o for o in named if implementation in o.names]
            named = has or named  # where none has it, the first one says what there is
        if not named:
            one_of("operator", name, OPERATORS)
        for operator in named:
            if implementation:
                yield operator, operator[implementation]
            else:
                yield from zip(itertools.repeat(operator), operator.implementations)
