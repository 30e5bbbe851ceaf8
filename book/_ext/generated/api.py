"""{api} SECTION: its public names, from the catalog and the modules themselves; {api}: all."""

import importlib
import inspect

from docutils import nodes
from docutils.statemachine import StringList

import kernels
from kernels.proof.catalog import OPERATORS

from .parts import Generated, fill, text

# Section → modules; what is in them is found.
AROUND = {
    "The catalog, the ladder and the budget": (
        "kernels.proof.catalog",
        "kernels.proof.ladder",
        "kernels.proof.budget",
        "kernels.proof.workload",
        "kernels.lessons.exercises",
        "kernels.lessons.gallery",
    ),
    "Looking into kernels": (
        "kernels.machines.pallas",
        "kernels.lessons.pictures",
        "kernels.lessons.pictures.plots",
    ),
    "Machines": (
        "kernels.machines.base",
        "kernels.machines.tpu",
        "kernels.machines.tpu.estimate.bands",
        "kernels.machines.gpu",
        "kernels.machines.neuron",
        "kernels.machines.neuron.api",
        "kernels.machines.neuron.linter",
        "kernels.machines.neuron.gpsimd",
        "kernels.machines.taichi",
        "kernels.machines.taichi.assembly",
    ),
    "Records and times": (
        "kernels.figures",
        "kernels.figures.report",
        "kernels.figures.status",
        "kernels.figures.benchmark",
        "kernels.machines.stopwatch",
    ),
    "What proves the estimates": (
        "validation.comparisons",
        "validation.tpu_programs",
        "validation.tpu_times",
        "validation.gpu_times",
        "validation.gpu_rates",
        "validation.tunings",
        "validation.scatter",
    ),
}


class Api(Generated):
    """Public names: of the operators in the catalog's order, or of what is around them."""

    optional_arguments = 1  # a key of AROUND, or "Operators"
    final_argument_whitespace = True

    def run(self):
        folders = dict.fromkeys(operator.package for operator in OPERATORS.values())
        sections = {"Operators": (self.operators, folders)}
        sections |= {title: (self.module, modules) for title, modules in AROUND.items()}
        if self.arguments:
            describe, names = sections[self.arguments[0]]
            return list(map(describe, names))
        return [self.section(title, *map(*section)) for title, section in sections.items()]

    def operators(self, package):
        """What a folder's operators do, and its public names, the operators first."""
        own = [operator for operator in OPERATORS.values() if operator.package == package]
        listed = nodes.bullet_list()
        for operator in own:
            name = fill(nodes.literal(), operator.name)
            listed += fill(nodes.list_item(), text(name, *self.said(operator)))
        names = dict.fromkeys([operator.name for operator in own])
        return self.section(package, listed, *self.described(package, names))

    def module(self, name):
        module = importlib.import_module(name)
        parent, _, own = name.rpartition(".")
        if parent != "kernels" and getattr(kernels, own, None) is module:
            line = text("Imported by ", fill(nodes.literal(), f"from kernels import {own}"), ".")
        else:
            line = nodes.container()
        words = self.parsed(inspect.getdoc(module) or "")
        return self.section(name, *words, line, *self.described(name))

    def described(self, name, first=()):
        """What autodoc says of a module's public names."""
        module = importlib.import_module(name)
        self.depend(module.__file__)
        lines = ["```{eval-rst}"]
        for member in dict.fromkeys([*first, *public(module)]):
            lines += [*documented(f"{name}.{member}", getattr(module, member)), ""]
        return self.parsed("\n".join([*lines, "```"]))

    def parsed(self, source):
        """The nodes of Markdown."""
        container = nodes.container()
        self.state.nested_parse(StringList(source.splitlines(), self.env.docname), 0, container)
        return container.children


def of(module, name):
    """The module in which a name's value was made."""
    return getattr(getattr(module, name), "__module__", module.__name__)


def public(module):
    """The names of `__all__`, or else those of the functions and classes that a module defines."""
    names = getattr(module, "__all__", None)
    if names is not None:  # a module that it lists has a place of its own, or none
        names = [n for n in names if not inspect.ismodule(getattr(module, n, module))]
        base = "kernels.machines.base"  # what every machine has stands there once
        names = [n for n in names if module.__name__ == base or of(module, n) != base]
    if names is None:
        own = (
            n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        )
        names = [n for n in own if not n.startswith("_") and inspect.getdoc(getattr(module, n))]
    return names


def documented(path, value):
    """The lines that let autodoc describe a name."""
    if inspect.isclass(value):
        return [f".. autoclass:: {path}", "   :members:"]
    if callable(value):
        return [f".. autofunction:: {path}"]
    shown = ", ".join(map(str, value)) if isinstance(value, dict | tuple) else str(value)
    return [f".. py:data:: {path}", "", f"   {shown}"]
