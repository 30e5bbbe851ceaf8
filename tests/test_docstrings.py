"""What the package offers says what it is, and what each of its arguments is."""

import dataclasses
import importlib
import inspect
import pkgutil
import re

import pytest

import kernels
from kernels.catalog import OPERATORS
from kernels.optional import MissingPackage

# Packages whose docstrings have no sections yet; a line goes when they have.
UNCONVERTED = ("kernels.neuron", "kernels.taichi", "kernels.tpu")


def offered():
    """Dotted name → what every package of kernels lists in __all__, and the public functions."""
    found = {o.function.__module__ + "." + o.name: o.function for o in OPERATORS.values()}
    names = (m.name for m in pkgutil.walk_packages(kernels.__path__, "kernels.") if m.ispkg)
    for package in ("kernels", *names):
        try:
            module = importlib.import_module(package)
        except MissingPackage:
            continue
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                found[f"{package}.{name}"] = value
    return found


OFFERED = offered()


def parameters(value):
    """The names of what a function, or the construction of a dataclass, takes."""
    if inspect.isclass(value) and not dataclasses.is_dataclass(value):
        return []
    return [name for name in inspect.signature(value).parameters if name != "self"]


def explained(documentation):
    """The names that an `Args:` section has entries for; several may share one."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", documentation + "\n", re.M)
    entries = re.findall(r"^    (\S.*?):", section[1], re.M) if section else []
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


def faults(value):
    """What the docstring of a function or a class lacks, in words."""
    documentation = inspect.getdoc(value) if value.__doc__ else None
    if not documentation or (dataclasses.is_dataclass(value) and _made_up(value)):
        return ["a docstring"]
    names = parameters(value)
    if len(names) < 2:
        return []
    told = explained(documentation)
    return [f"{name} under Args:" for name in names if name not in told]


def _made_up(value):
    """Whether the docstring is the signature that a dataclass has without one."""
    return value.__doc__.startswith(f"{value.__name__}(")


def converted(name):
    return not any(f"{name}.".startswith(f"{package}.") for package in UNCONVERTED)


def test_there_is_something_to_read():
    assert {f"kernels.{path}" for path in ("vector.iota", "pictures.Player", "records.add")} <= (
        OFFERED.keys()
    )
    assert len([name for name in OFFERED if converted(name)]) > 60


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_offered_is_described(name):
    lacking = faults(OFFERED[name])
    if converted(name):
        assert not lacking, f"{name} lacks {', '.join(lacking)}"
    else:
        assert "a docstring" not in lacking


@pytest.mark.parametrize("package", UNCONVERTED)
def test_an_exception_is_one(package):
    """A package that has its sections is taken off the list."""
    inside = [name for name in OFFERED if f"{name}.".startswith(f"{package}.")]
    assert inside and any(faults(OFFERED[name]) for name in inside)


def bare(x, y):
    pass


def one_paragraph(x, y):
    """Add. x: a number. y: another."""


def one_left_out(x, y, *more, scale=1):
    """Add.

    Args:
        x: a number.
        more: further ones: as many as there are.
            scale: of a wrapped line, which is no entry.

    Returns:
        y: what was left out.
    """


@dataclasses.dataclass
class Bare:
    x: int
    y: int


@dataclasses.dataclass
class Fields:
    """Two.

    Args:
        x: one.
    """

    x: int
    y: int


def whole(x, y, *more, scale=1):
    """Add.

    Args:
        x, y: numbers.
        *more: further ones.
        scale: of the sum.
    """


@pytest.mark.parametrize(
    ("planted", "lacking"),
    [
        (bare, ["a docstring"]),
        (one_paragraph, ["x under Args:", "y under Args:"]),
        (one_left_out, ["y under Args:", "scale under Args:"]),
        (Bare, ["a docstring"]),
        (Fields, ["y under Args:"]),
        (whole, []),
    ],
)
def test_a_planted_fault_is_found(planted, lacking):
    assert faults(planted) == lacking
